//! Command lines of an OCI runtime, and its error messages.

use super::*;

#[test]
fn the_last_error_of_a_log_is_the_reason() {
    let runc = concat!(
        "{\"level\":\"warning\",\"msg\":\"first\",\"time\":\"x\"}\n",
        "{\"level\":\"error\",\"msg\":\"runc create failed: exec: \\\"no\\\": not found\\n\",\"time\":\"x\"}\n",
        "{\"level\":\"info\",\"msg\":\"afterwards\",\"time\":\"x\"}\n",
    );
    let crun = "{ \"msg\" : \"open `a`: \\u00e9\", \"level\" : \"error\" }";
    for (log, reason) in [
        (runc, Some("runc create failed: exec: \"no\": not found ")),
        (crun, Some("open `a`: é")),
        ("{\"msg\":\"no level\"}", Some("no level")),
        ("", None),
        ("plain words", None),
        ("{\"level\":\"error\",\"msg\":\"not closed", None),
        ("{\"level\":\"error\",\"msg\":7}", None),
    ] {
        assert_eq!(last_error(log).as_deref(), reason, "{log:?}");
    }
}

fn call(program: &str, dir: &Path, arguments: &[&str], limit: u64) -> Result<(), String> {
    let handler = HandlerSpec { program: program.to_owned(), ..Default::default() };
    let call =
        RuntimeInvocation { handler: &handler, root: dir, log: &dir.join("log"), systemd: false };
    let arguments: Vec<OsString> = arguments.iter().map(Into::into).collect();
    let runtime_command =
        RuntimeCommand { arguments: &arguments, id: "id", after_id: &["9".into()] };
    call.run(&runtime_command, Stdio::Null, Duration::from_secs(limit))
}

fn script(dir: &Path, text: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = dir.join("runtime");
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[test]
fn a_call_has_its_arguments_its_reason_and_its_limit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let message = path.join("said");
    let program = script(path, &format!("echo \"$@\" > {}", message.display()));
    call(&program, path, &["start"], 10).unwrap();
    let expected =
        format!("--root {0} --log {0}/log --log-format json start id 9\n", path.display());
    assert_eq!(fs::read_to_string(&message).unwrap(), expected);
    let program = script(path, "echo '{\"level\":\"error\",\"msg\":\"why\"}' > \"$4\"; exit 3");
    assert_eq!(call(&program, path, &[], 10).unwrap_err(), "why");
    let program = script(path, "exit 3");
    assert!(call(&program, path, &[], 10).unwrap_err().contains("exit status: 3"));
    let program = script(path, "exec sleep 100");
    assert!(call(&program, path, &[], 1).unwrap_err().contains("longer than 1 seconds"));
    let missing = path.join("missing").display().to_string();
    assert!(call(&missing, path, &[], 1).unwrap_err().contains("missing"));
}
