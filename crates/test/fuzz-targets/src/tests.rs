//! Replays every input of the corpus and prefixes of each: a truncated input is a new input.

use std::path::Path;

fn replay(target: &str, run: fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&dir).expect("the corpus");
    let mut inputs = 0;
    for entry in entries {
        let input = std::fs::read(entry.expect("an entry").path()).expect("an input");
        for end in (0..=input.len()).rev().take(64) {
            run(&input[..end]);
        }
        inputs += 1;
    }
    assert!(inputs >= 5, "{} holds only {inputs} inputs", dir.display());
}

#[test]
fn quantity_corpus() {
    replay("quantity", super::quantity);
}

#[test]
fn duration_corpus() {
    replay("duration", super::duration);
}

#[test]
fn config_corpus() {
    replay("config", super::config);
}

#[test]
fn command_line_corpus() {
    replay("flags", super::command_line);
}

#[test]
fn container_log_corpus() {
    replay("container-log", super::container_log);
}

#[test]
fn layer_corpus() {
    replay("layer", super::layer);
}

#[test]
fn image_document_corpus() {
    replay("image-document", super::image_document);
}

#[test]
fn cni_corpus() {
    replay("cni", super::cni);
}

#[test]
fn spdy_corpus() {
    replay("spdy", super::spdy);
}

#[test]
fn websocket_corpus() {
    replay("websocket", super::websocket);
}

#[test]
fn authority_corpus() {
    replay("authority", super::authority);
}

#[test]
fn cdi_corpus() {
    replay("cdi", super::cdi);
}

#[test]
fn seccomp_corpus() {
    replay("seccomp", super::seccomp);
}

#[test]
fn challenge_corpus() {
    replay("challenge", super::challenge);
}

#[test]
fn reference_corpus() {
    replay("reference", super::reference);
}

#[test]
fn manifest_corpus() {
    replay("manifest", super::manifest);
}

#[test]
fn archive_corpus() {
    replay("archive", super::archive);
}

#[test]
fn users_corpus() {
    replay("users", super::users);
}
