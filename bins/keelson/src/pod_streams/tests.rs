//! Tables of arguments and of exit codes.

use super::choose::{DeclaredStreams, declared_streams, running};
use super::port_pair::PortPair;
use super::session_end::SessionEnd;
use ports::local_api::{LocalContainer, LocalPod};
use serde_json::json;

#[test]
fn ports_are_written_in_pairs() {
    for (text, expected) in [
        ("8080:80", Some((8080, 80))),
        ("80", Some((80, 80))),
        (":80", Some((0, 80))),
        ("0:80", Some((0, 80))),
        ("65535:1", Some((65535, 1))),
        ("80:", None),
        ("80:0", None),
        ("0", None),
        ("", None),
        ("+80", None),
        ("80:+1", None),
        ("65536", None),
        ("a:80", None),
        ("1:2:3", None),
    ] {
        let pair: Option<PortPair> = text.parse().ok();
        assert_eq!(pair.map(|pair| (pair.local, pair.remote)), expected, "{text}");
    }
}

#[test]
fn a_session_end_has_the_commands_exit_code_or_an_error() {
    let code = |code: &str| {
        json!({ "status": "Failure", "reason": "NonZeroExitCode", "message": "exit",
            "details": { "causes": [{ "reason": "ExitCode", "message": code }] } })
        .to_string()
    };
    let failed = r#"{"status":"Failure","reason":"InternalError","message":"no such file"}"#;
    for (status, session_end, exit_code) in [
        (String::new(), SessionEnd::Success, 0),
        (r#"{"metadata":{},"status":"Success"}"#.to_owned(), SessionEnd::Success, 0),
        (code("7"), SessionEnd::Code(7), 7),
        (code("255"), SessionEnd::Code(255), 255),
        (code("300"), SessionEnd::Code(300), 255),
        (code("-1"), SessionEnd::Code(-1), 255),
        (code("x"), SessionEnd::Failed("exit".to_owned()), 126),
        (failed.to_owned(), SessionEnd::Failed("no such file".to_owned()), 126),
        ("plain words\n".to_owned(), SessionEnd::Failed("plain words".to_owned()), 126),
        ("{}".to_owned(), SessionEnd::Failed("{}".to_owned()), 126),
    ] {
        let found = SessionEnd::of_status(status.as_bytes());
        assert_eq!(found, session_end, "{status}");
        assert_eq!(found.exit_code(), exit_code, "{status}");
    }
    assert_eq!(SessionEnd::OutputClosed.exit_code(), 141);
}

fn pod(names: &[&str], annotation: Option<&str>) -> LocalPod {
    let specs: Vec<_> = names
        .iter()
        .map(|name| json!({ "name": name, "stdin": *name == "b", "tty": *name == "b" }))
        .collect();
    let container = |name: &str, id: &str, state: &str| LocalContainer {
        name: name.to_owned(),
        id: id.to_owned(),
        state: state.to_owned(),
        ..LocalContainer::default()
    };
    LocalPod {
        name: "pod".to_owned(),
        containers: vec![
            container("a", "a2", "exited"),
            container("a", "a1", "running"),
            container("b", "b1", "running"),
            container("i", "i1", "exited"),
        ],
        object: json!({
            "metadata": { "annotations": { "kubectl.kubernetes.io/default-container": annotation } },
            "spec": { "containers": specs, "initContainers": [{ "name": "i" }] },
        }),
        ..LocalPod::default()
    }
}

#[test]
fn the_container_is_the_named_one_or_the_one_that_needs_no_name() {
    for (names, annotation, wanted, expected) in [
        (&["a"][..], None, None, Ok("a1")),
        (&["a", "b"], None, None, Err("several containers; say -c with one of a, b")),
        (&["a", "b"], Some("b"), None, Ok("b1")),
        (&["a", "b"], Some("b"), Some("a"), Ok("a1")),
        (&["a"], None, Some("i"), Err("container i of pod does not run; see keelson explain")),
        (&["a"], None, Some("x"), Err("has no container x; it has a")),
    ] {
        let pod = pod(names, annotation);
        match (running(&pod, wanted), expected) {
            (Ok(found), Ok(id)) => assert_eq!(found.id, id, "{names:?} {wanted:?}"),
            (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
            (found, _) => panic!("{names:?} {wanted:?}: {found:?}"),
        }
    }
    assert_eq!(
        declared_streams(&pod(&["a", "b"], None), "b"),
        DeclaredStreams { stdin: true, tty: true }
    );
    assert_eq!(declared_streams(&pod(&["a", "b"], None), "a"), DeclaredStreams::default());
}
