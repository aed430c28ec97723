//! What each fuzz target asserts about any input. The package in fuzz/ feeds these functions with
//! inputs guided by coverage; the tests here replay the checked-in corpus in every landing.

use container_setup::termination::{LOG_CAP, end_of_log};
use node_config::flags;
use node_config::{ConfigFiles, SourceFile};
use pod_model::{GoDuration, Quantity, log_line};

mod archives;
mod authorities;
mod devices;
mod images;
mod manifests;
mod networks;
mod profiles;
mod registries;
mod streams;
#[cfg(test)]
mod tests;
mod users;

pub use archives::archive;
pub use authorities::authority;
pub use devices::cdi;
pub use images::{image_document, layer};
pub use manifests::manifest;
pub use networks::cni;
pub use profiles::seccomp;
pub use registries::{challenge, reference};
pub use streams::{spdy, websocket};
pub use users::users;

/// What parses has a canonical form that parses to an equal value and, in the same family of
/// suffixes, is its own canonical form. (The family may be lost on the way: 2312.5Ki is written
/// 2368000, which reads as a decimal number. So it is upstream.)
pub fn quantity(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Ok(value) = text.parse::<Quantity>() else { return };
    let canonical = value.to_string();
    let again: Quantity = canonical.parse().expect("a canonical form parses");
    assert!(again == value, "{text:?} became {canonical:?}");
    assert_eq!(again.with_format(value.format()).to_string(), canonical, "of {text:?}");
}

/// As for quantities; the form of a duration is that of Go.
pub fn duration(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Ok(value) = text.parse::<GoDuration>() else { return };
    let shown = value.to_string();
    let again: GoDuration = shown.parse().expect("what is shown parses");
    assert_eq!(again, value, "{text:?} became {shown:?}");
}

/// Any bytes as the configuration file, and any as a drop-in: a value or errors, never neither.
pub fn config(input: &[u8]) {
    let middle = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
    let (file, drop_in) = input.split_at(middle);
    let arguments =
        ["--config=/etc/kubelet.yaml".to_owned(), "--config-dir=/etc/kubelet.d".to_owned()];
    let files = ConfigFiles {
        config: Some(SourceFile { path: "/etc/kubelet.yaml".into(), bytes: file.to_vec() }),
        drop_ins: match drop_in.get(1..) {
            None => Vec::new(),
            Some(bytes) => {
                vec![SourceFile { path: "/etc/kubelet.d/10.conf".into(), bytes: bytes.to_vec() }]
            }
        },
        // Any file is a bad file of another kind too, and must be refused in order.
        credential_providers: input
            .first()
            .is_some_and(|byte| *byte == b'p')
            .then(|| vec![SourceFile { path: "/etc/providers.yaml".into(), bytes: file.to_vec() }]),
    };
    let loaded = node_config::load(flags::parse(&arguments), &files);
    assert!(loaded.config.is_some() || !loaded.diagnostics.is_empty(), "refused without a word");
    for diagnostic in &loaded.diagnostics {
        assert!(!diagnostic.to_string().contains('\n'), "a problem is one line: {diagnostic}");
    }
}

/// Any words as a command line, one per line of the input.
pub fn command_line(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let arguments: Vec<String> = text.split('\n').map(ToOwned::to_owned).collect();
    let loaded = node_config::load(flags::parse(&arguments), &ConfigFiles::default());
    assert!(loaded.config.is_some() || !loaded.diagnostics.is_empty(), "refused without a word");
}

/// Any bytes as a container's log. What parses is made of pieces of the line, in their order; the
/// end of any log keeps its cap, and does not depend on what lies before the tail that is read.
pub fn container_log(input: &[u8]) {
    for line in input.split(|byte| *byte == b'\n') {
        let Some(parsed) = log_line::parse(line) else { continue };
        assert!(line.starts_with(parsed.time.as_bytes()), "the time stands first");
        assert!(line.ends_with(parsed.text), "the text stands last");
        assert!(parsed.time.len() + parsed.text.len() < line.len(), "there is more between");
    }
    for is_whole in [true, false] {
        // A byte that is no text is shown as three.
        assert!(end_of_log(input, is_whole).len() <= 3 * LOG_CAP, "beyond the cap");
    }
}
