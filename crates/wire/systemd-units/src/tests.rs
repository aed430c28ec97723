//! A scripted systemd: its replies, and its errors.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::message::{DbusMessage, DbusWriter, FIXED_HEADER_BYTES, whole_length};

type Calls = std::thread::JoinHandle<Vec<(String, String)>>;

/// Answers each call as the script says, by its number and name; returns the calls at the end.
fn systemd(
    greeting: &'static str,
    script: impl Fn(u32, &str) -> Vec<Vec<u8>> + Send + 'static,
) -> (tempfile::TempDir, SystemdAddress, Calls) {
    let temp_dir = tempfile::tempdir().unwrap();
    let path = temp_dir.path().join("private");
    let listener = UnixListener::bind(&path).unwrap();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut calls = Vec::new();
        read_line(&mut stream);
        stream.write_all(greeting.as_bytes()).unwrap();
        if !greeting.starts_with("OK") {
            return calls;
        }
        read_line(&mut stream);
        let mut serial = 0;
        loop {
            let mut fixed_header = [0; FIXED_HEADER_BYTES];
            if stream.read_exact(&mut fixed_header).is_err() {
                return calls;
            }
            let mut bytes = fixed_header.to_vec();
            bytes.resize(whole_length(&fixed_header).unwrap(), 0);
            stream.read_exact(&mut bytes[FIXED_HEADER_BYTES..]).unwrap();
            let message = DbusMessage::read(&bytes).unwrap();
            serial += 1;
            let first = message.first_text().unwrap_or_default();
            calls.push((message.member.clone(), first));
            for answer in script(serial, &message.member) {
                if stream.write_all(&answer).is_err() {
                    return calls;
                }
            }
        }
    });
    (temp_dir, SystemdAddress::Private(path), thread)
}

fn read_line(stream: &mut UnixStream) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    String::from_utf8_lossy(&line).into_owned()
}

/// A reply (2), a failure (3) or a signal (4).
fn message(kind: u8, reply_to: u32, names: [&str; 2], signature: &str, texts: &[&str]) -> Vec<u8> {
    let mut body = DbusWriter::default();
    for (mark, text) in signature.bytes().zip(texts) {
        match mark {
            b'u' => body.word(text.parse().unwrap()),
            _ => body.text(text),
        }
    }
    let mut writer = DbusWriter::default();
    for byte in [b'l', kind, 0, 1] {
        writer.byte(byte);
    }
    writer.word(u32::try_from(body.0.len()).unwrap());
    writer.word(1);
    writer.array(8, |writer| {
        for (code, text) in [(3, names[0]), (4, names[1])] {
            if !text.is_empty() {
                writer.align(8);
                writer.byte(code);
                writer.signature("s");
                writer.text(text);
            }
        }
        writer.align(8);
        writer.byte(5);
        writer.signature("u");
        writer.word(reply_to);
        writer.align(8);
        writer.byte(8);
        writer.signature("g");
        writer.signature(signature);
    });
    writer.align(8);
    writer.0.extend_from_slice(&body.0);
    writer.0
}

fn reply(to: u32, job: &str) -> Vec<u8> {
    message(2, to, ["", ""], "o", &[job])
}

fn removed(job: &str, result: &str) -> Vec<u8> {
    message(4, 0, ["JobRemoved", ""], "uoss", &["1", job, "a.slice", result])
}

fn error_name(to: u32, name: &str) -> Vec<u8> {
    message(3, to, ["", name], "s", &["because"])
}

const GREETING: &str = "OK 1234\r\n";

fn connect(address: &SystemdAddress) -> Result<Systemd, UnitError> {
    Systemd::connect(std::slice::from_ref(address), Duration::from_secs(5))
}

#[test]
fn a_unit_is_waited_for() {
    let (_temp_dir, address, calls) = systemd(GREETING, |serial, member| match member {
        "StartTransientUnit" => vec![
            // The job may end before the call is answered; other jobs end all the time.
            removed("/job/7", "failed"),
            removed("/job/1", "done"),
            reply(serial, "/job/1"),
        ],
        "StopUnit" => vec![reply(serial, "/job/2"), removed("/job/2", "done")],
        _ => vec![reply(serial, "")],
    });
    let mut systemd = connect(&address).unwrap();
    let properties = [
        ("MemoryMax", PropertyValue::Number(1)),
        ("Wants", PropertyValue::Strings(vec!["b".into()])),
    ];
    systemd.start_transient("a.slice", &properties).unwrap();
    systemd.set_properties("a.slice", &properties).unwrap();
    systemd.stop("a.slice").unwrap();
    systemd.reset_failed("a.slice").unwrap();
    drop(systemd);
    let unit = |member: &str| (member.to_owned(), "a.slice".to_owned());
    let expected = ["StartTransientUnit", "SetUnitProperties", "StopUnit", "ResetFailedUnit"];
    assert_eq!(calls.join().unwrap(), expected.map(unit));
}

#[test]
fn systemd_errors_map_to_distinct_unit_errors() {
    let (_temp_dir, address, _calls) = systemd(GREETING, |serial, member| match member {
        "StartTransientUnit" => vec![error_name(serial, "org.freedesktop.systemd1.UnitExists")],
        "StopUnit" => vec![error_name(serial, "org.freedesktop.systemd1.NoSuchUnit")],
        "ResetFailedUnit" => vec![error_name(serial, "org.freedesktop.systemd1.NoSuchUnit")],
        _ => vec![error_name(serial, "org.freedesktop.DBus.Error.InvalidArgs")],
    });
    let mut systemd = connect(&address).unwrap();
    assert!(matches!(systemd.start_transient("a", &[]), Err(UnitError::Exists(_))));
    assert!(matches!(systemd.stop("a"), Err(UnitError::Missing(_))));
    assert!(systemd.reset_failed("a").is_ok());
    let refused = systemd.set_properties("a", &[]).unwrap_err();
    assert!(refused.to_string().ends_with("InvalidArgs: because"), "{refused}");
    assert!(!refused.is_transient());
}

#[test]
fn a_job_that_fails_is_an_error() {
    let (_temp_dir, address, _calls) =
        systemd(GREETING, |serial, _| vec![reply(serial, "/job/1"), removed("/job/1", "failed")]);
    let failed = connect(&address).unwrap().start_transient("a.slice", &[]).unwrap_err();
    assert!(matches!(failed, UnitError::Failed { .. }), "{failed}");
}

#[test]
fn a_silent_garbled_or_absent_systemd_is_a_transient_error() {
    let (_temp_dir, address, _calls) = systemd(GREETING, |_, _| Vec::new());
    let mut silent =
        Systemd::connect(std::slice::from_ref(&address), Duration::from_millis(100)).unwrap();
    let timed_out = silent.stop("a").unwrap_err();
    assert!(
        timed_out.is_transient() && timed_out.to_string().contains("no answer in time"),
        "{timed_out}"
    );
    let (_temp_dir, address, _calls) = systemd(GREETING, |_, _| vec![vec![0xff; 64]]);
    let noise = connect(&address).unwrap().stop("a").unwrap_err();
    assert!(noise.to_string().contains("byte order mark"), "{noise}");
    let huge = [b'l', 2, 0, 1, 255, 255, 255, 127, 1, 0, 0, 0, 255, 255, 255, 127];
    let (_temp_dir, address, _calls) = systemd(GREETING, move |_, _| vec![huge.to_vec()]);
    let long = connect(&address).unwrap().stop("a").unwrap_err();
    assert!(long.to_string().contains("too long"), "{long}");
    let (_temp_dir, address, _calls) = systemd("REJECTED EXTERNAL\r\n", |_, _| Vec::new());
    assert!(matches!(connect(&address), Err(UnitError::Unreachable { .. })));
    let nowhere = SystemdAddress::Private(PathBuf::from("/nowhere/private"));
    assert!(connect(&nowhere).unwrap_err().is_transient());
    assert!(Systemd::connect(&[], Duration::from_secs(1)).is_err());
}

#[test]
fn a_bus_is_joined_first() {
    let (temp_dir, address, calls) = systemd(GREETING, |serial, member| match member {
        "StartTransientUnit" => vec![reply(serial, "/job/1"), removed("/job/1", "done")],
        _ => vec![reply(serial, "")],
    });
    let nowhere = SystemdAddress::Private(temp_dir.path().join("none"));
    let addresses = [nowhere, SystemdAddress::Bus(address.path().to_owned())];
    let mut systemd = Systemd::connect(&addresses, Duration::from_secs(5)).unwrap();
    systemd.start_transient("a.slice", &[]).unwrap();
    drop(systemd);
    let members: Vec<String> =
        calls.join().unwrap().into_iter().map(|(member, _)| member).collect();
    assert_eq!(members, ["Hello", "AddMatch", "Subscribe", "StartTransientUnit"]);
}

/// Where systemd is the first process, the real one.
#[test]
fn a_real_systemd_starts_changes_and_stops_a_slice() {
    let usual = SystemdAddress::default_addresses();
    if !usual[0].path().exists() {
        return;
    }
    for address in usual.iter().filter(|address| address.path().exists()) {
        let unit = format!("keelsonunits{}.slice", std::process::id());
        let limit = Duration::from_secs(20);
        let mut systemd = Systemd::connect(std::slice::from_ref(address), limit).unwrap();
        let properties = [
            ("Description", PropertyValue::Text("a test".to_owned())),
            ("MemoryMax", PropertyValue::Number(64 << 20)),
            ("MemoryAccounting", PropertyValue::Bool(true)),
            ("Wants", PropertyValue::Strings(vec!["-.slice".to_owned()])),
        ];
        systemd.start_transient(&unit, &properties).unwrap();
        let group = PathBuf::from("/sys/fs/cgroup").join(&unit);
        let limit = || std::fs::read_to_string(group.join("memory.max")).unwrap();
        assert_eq!(limit().trim(), (64 << 20).to_string());
        let again = systemd.start_transient(&unit, &properties);
        assert!(matches!(again, Err(UnitError::Exists(_))), "{again:?}");
        systemd.set_properties(&unit, &[("MemoryMax", PropertyValue::Number(32 << 20))]).unwrap();
        assert_eq!(limit().trim(), (32 << 20).to_string());
        systemd.stop(&unit).unwrap();
        assert!(!group.exists());
        let refused = systemd.start_transient(&unit, &[("NoSuchThing", PropertyValue::Bool(true))]);
        assert!(matches!(refused, Err(UnitError::Refused { .. })), "{refused:?}");
        systemd.reset_failed(&unit).unwrap();
        // Stopping a unit that never existed succeeds, or reports it missing.
        let stopped = systemd.stop(&format!("never{unit}"));
        assert!(matches!(stopped, Ok(()) | Err(UnitError::Missing(_))), "{stopped:?}");
        let inner = format!("{}-inner.slice", unit.trim_end_matches(".slice"));
        systemd.start_transient(&inner, &properties).unwrap();
        systemd.stop(&unit).unwrap();
        let stopped = systemd.stop(&inner);
        assert!(matches!(stopped, Ok(()) | Err(UnitError::Missing(_))), "{stopped:?}");
    }
}
