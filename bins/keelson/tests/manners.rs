//! The agent as a process: locks, signals, the service manager, health, the log. The built binary
//! on a temporary root directory; no container runtime is needed, none answers.

#[path = "manners/front.rs"]
mod front;
#[path = "manners/support.rs"]
mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};
use support::{KubeletBed, TIMEOUT, TestAgent};

#[test]
fn a_second_agent_on_the_same_root_is_refused_and_the_first_goes_on() {
    let bed = KubeletBed::new("");
    let mut first = bed.start(&[]);
    first.wait_for("READY=1");
    let second = bed.command(&[]).env_remove("NOTIFY_SOCKET").output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let words = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(words.contains(&format!("pid {}", first.process())), "{words}");
    assert!(words.contains(bed.root().to_str().unwrap()), "{words}");
    assert_eq!(first.exit_code_within(Duration::from_millis(200)), None);
    first.signal(rustix::process::Signal::TERM);
    assert_eq!(first.exit_code(), Some(0));
    // The lock is released when its holder dies, whatever the file contains.
    let mut third = bed.start(&[]);
    third.wait_for("READY=1");
}

#[test]
fn signals_end_the_agent_in_order_and_notify_the_service_manager() {
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let bed = KubeletBed::new("");
        let mut agent = bed.start(&[]);
        agent.wait_for("READY=1");
        agent.wait_for("STATUS=container runtime does not answer: ");
        agent.signal(signal);
        agent.wait_for("STOPPING=1");
        assert_eq!(agent.exit_code(), Some(0), "{}", agent.log());
        assert!(agent.log().contains("containers go on running"), "{}", agent.log());
    }
}

#[test]
fn a_hangup_ends_it_as_it_ends_a_go_program() {
    use std::os::unix::process::ExitStatusExt;
    let bed = KubeletBed::new("");
    let mut agent = bed.start(&[]);
    agent.wait_for("READY=1");
    agent.signal(rustix::process::Signal::HUP);
    if hangups_are_ignored() {
        // The tests were started under nohup, and the agent inherits the ignored SIGHUP, as in Go.
        assert_eq!(agent.exit_code_within(Duration::from_millis(500)), None);
    } else {
        assert_eq!(agent.status().signal(), Some(1));
    }
}

#[test]
fn the_watchdog_is_pinged_at_half_its_timeout_by_the_watched_process_only() {
    let bed = KubeletBed::new("");
    let mut agent = bed.start_with(&[], |command| {
        command.env("WATCHDOG_USEC", "1200000");
    });
    agent.wait_for("READY=1");
    agent.wait_for("WATCHDOG=1");
    let begun = Instant::now();
    agent.wait_for("WATCHDOG=1");
    agent.wait_for("WATCHDOG=1");
    let two_pings = begun.elapsed();
    assert!(two_pings >= Duration::from_millis(600), "{two_pings:?}");
    assert!(two_pings < TIMEOUT, "{two_pings:?}");

    let bed = KubeletBed::new("");
    let mut unwatched = bed.start_with(&[], |command| {
        command.env("WATCHDOG_USEC", "1200000").env("WATCHDOG_PID", "1");
    });
    unwatched.wait_for("READY=1");
    std::thread::sleep(Duration::from_millis(1500));
    assert!(!unwatched.notifications().iter().any(|message| message == "WATCHDOG=1"));
}

#[test]
fn a_watchdog_that_cannot_be_served_is_refused() {
    let bed = KubeletBed::new("");
    let refused = bed.command(&[]).env("WATCHDOG_USEC", "1000000").output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(words.contains("WATCHDOG_USEC"), "{words}");
}

#[test]
fn a_contended_lock_file_ends_the_holder_with_exit_on_lock_contention() {
    let bed = KubeletBed::new("");
    let lock = bed.path("lock").to_str().unwrap().to_owned();
    let flags = [format!("--lock-file={lock}"), "--exit-on-lock-contention".to_owned()];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut first = bed.start(&flags);
    first.wait_for("READY=1");
    let mut second = bed.start(&flags);
    assert_eq!(first.exit_code(), Some(0), "{}", first.log());
    second.wait_for("READY=1");
    // Any process that opens the file counts.
    drop(File::open(&lock).unwrap());
    assert_eq!(second.exit_code(), Some(0), "{}", second.log());
    assert!(second.log().contains("lock file"), "{}", second.log());
}

#[test]
fn without_exit_on_lock_contention_the_holder_stays_and_the_second_waits() {
    let bed = KubeletBed::new("");
    let other = KubeletBed::new("");
    let flag = format!("--lock-file={}", bed.path("lock").display());
    let mut first = bed.start(&[&flag]);
    first.wait_for("READY=1");
    let mut second = other.start(&[&flag]);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(second.exit_code_within(Duration::ZERO), None);
    assert!(second.notifications().is_empty(), "{:?}", second.notifications());
    first.signal(rustix::process::Signal::TERM);
    assert_eq!(first.exit_code(), Some(0));
    second.wait_for("READY=1");
}

#[test]
fn giving_way_without_a_lock_file_is_refused() {
    let bed = KubeletBed::new("");
    let refused = bed.command(&["--exit-on-lock-contention"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(words.contains("needs --lock-file"), "{words}");
}

#[test]
fn health_is_answered_on_the_port_and_a_taken_port_is_only_an_error_in_the_log() {
    let bed = KubeletBed::new("");
    let mut agent = bed.start(&[]);
    agent.wait_for("READY=1");
    assert_eq!(bed.health("/healthz"), Some("ok".to_owned()));
    for check in ["ping", "log", "syncloop"] {
        assert_eq!(bed.health(&format!("/healthz/{check}")), Some("ok".to_owned()), "{check}");
    }

    let bed = KubeletBed::new("");
    let taken = TcpListener::bind(("127.0.0.1", bed.health_port())).unwrap();
    let mut agent = bed.start(&[]);
    agent.wait_for("READY=1");
    agent.wait_for_log("Failed to serve health checks");
    drop(taken);
    // Retried after five seconds.
    assert_eq!(bed.health("/healthz"), Some("ok".to_owned()));
    assert_eq!(agent.exit_code_within(Duration::ZERO), None);
}

#[test]
fn a_health_port_of_zero_is_no_port() {
    let bed = KubeletBed::new("healthzPort: 0\n");
    let mut agent = bed.start(&[]);
    agent.wait_for("READY=1");
    let refused = std::net::TcpStream::connect(("127.0.0.1", bed.health_port()));
    assert!(refused.is_err());
}

#[test]
fn a_closed_log_pipe_does_not_end_the_agent() {
    let bed = KubeletBed::new("logging: {verbosity: 10}\n");
    let mut command = bed.command(&[]);
    command.stderr(Stdio::piped());
    let mut agent = TestAgent::of(command, &bed);
    agent.close_standard_error();
    agent.wait_for("READY=1");
    agent.wait_for("STATUS=");
    agent.signal(rustix::process::Signal::TERM);
    assert_eq!(agent.exit_code(), Some(0));
}

#[test]
fn an_unread_log_pipe_does_not_block_the_agent() {
    let bed = KubeletBed::new("logging: {verbosity: 10}\n");
    // Full before the agent's first line, so that this one would already wait.
    let (reader, mut writer) = std::io::pipe().unwrap();
    let size = rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
    writer.write_all(&vec![b'.'; size]).unwrap();
    let mut command = bed.command(&[]);
    command.stderr(writer);
    let mut agent = TestAgent::of(command, &bed);
    agent.wait_for("READY=1");
    assert_eq!(bed.health("/healthz"), Some("ok".to_owned()));
    agent.signal(rustix::process::Signal::TERM);
    assert_eq!(agent.exit_code(), Some(0));
    drop(reader);
}

#[test]
fn a_late_reader_gets_the_whole_log() {
    let bed = KubeletBed::new("logging: {verbosity: 10}\n");
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let size = rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
    writer.write_all(&vec![b'.'; size]).unwrap();
    let mut command = bed.command(&[]);
    command.stderr(writer);
    let mut agent = TestAgent::of(command, &bed);
    agent.wait_for("READY=1");
    agent.wait_for("STATUS=");
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).map(|_| text)
    });
    agent.signal(rustix::process::Signal::TERM);
    assert_eq!(agent.exit_code(), Some(0));
    let text = reading.join().unwrap().unwrap();
    let log = text.trim_start_matches('.');
    assert!(log.contains("This agent does not do all that the reference does yet"), "{log}");
    assert!(log.ends_with('\n') && log.contains("\"Node agent has ended\""), "{log}");
}

#[test]
fn a_health_address_that_is_a_name_is_an_error_in_the_log_and_never_looked_up() {
    let bed = KubeletBed::new("healthzBindAddress: node.example\n");
    let mut agent = bed.start(&[]);
    agent.wait_for("READY=1");
    agent.wait_for_log("Failed to start healthz server");
    assert!(agent.log().contains("node.example"), "{}", agent.log());
    assert!(std::net::TcpStream::connect(("127.0.0.1", bed.health_port())).is_err());
    assert_eq!(agent.exit_code_within(Duration::ZERO), None);
}

#[test]
fn the_log_is_klogs_text_or_json_as_configured() {
    let bed = KubeletBed::new("");
    let mut agent = bed.start(&[]);
    agent.wait_for("STATUS=");
    agent.signal(rustix::process::Signal::TERM);
    assert_eq!(agent.exit_code(), Some(0));
    for line in agent.log().lines() {
        let (head, _) = line.split_once("] \"").unwrap_or_else(|| panic!("{line}"));
        let words: Vec<&str> = head.split_whitespace().collect();
        assert!(matches!(&words[0][..1], "I" | "W" | "E"), "{line}");
        assert_eq!(words[2], agent.process().to_string(), "{line}");
        assert!(words[3].contains(".rs:"), "{line}");
    }

    let bed = KubeletBed::new("logging: {format: json}\n");
    let mut agent = bed.start(&[]);
    agent.wait_for("STATUS=");
    agent.signal(rustix::process::Signal::TERM);
    assert_eq!(agent.exit_code(), Some(0));
    for line in agent.log().lines() {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(object["ts"].is_f64() && object["caller"].is_string(), "{line}");
        assert!(object["msg"].is_string(), "{line}");
        assert!(object["v"].is_u64() || object["err"].is_string(), "{line}");
    }
}

#[test]
fn split_streams_keep_errors_apart() {
    let bed = KubeletBed::new(
        "featureGates: {LoggingAlphaOptions: true}\n\
         logging: {format: json, options: {json: {splitStream: true}}}\n",
    );
    let output = File::create(bed.path("output")).unwrap();
    let mut agent = bed.start_with(&[], |command| {
        command.stdout(output);
    });
    agent.wait_for("STATUS=");
    agent.signal(rustix::process::Signal::TERM);
    assert_eq!(agent.exit_code(), Some(0));
    let output = std::fs::read_to_string(bed.path("output")).unwrap();
    assert!(output.contains("\"Node agent is running\""), "{output}");
    assert!(!output.contains("Container runtime does not answer"), "{output}");
    let errors = agent.log();
    assert!(errors.contains("Container runtime does not answer"), "{errors}");
    assert!(!errors.contains("\"Node agent is running\""), "{errors}");
}

#[test]
fn an_unsupported_setting_is_one_warning() {
    let bed = KubeletBed::new("");
    let mut agent = bed.start(&[]);
    agent.wait_for("READY=1");
    agent.wait_for_log("This agent does not do all that the reference does yet");
    let said: Vec<String> = agent
        .log()
        .lines()
        .filter(|line| line.contains("This agent does not do all that the reference does yet"))
        .map(str::to_owned)
        .collect();
    assert_eq!(said.len(), 1);
    assert!(said[0].starts_with('W'), "{said:?}");
}

#[test]
fn all_configuration_errors_are_printed_at_once() {
    let bed = KubeletBed::new("maxPods: -1\nhealthzPort: 70000\nnodeLeaseDurationSeconds: -4\n");
    let refused = bed.command(&["--no-such-flag"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    for part in ["maxPods", "healthzPort", "nodeLeaseDurationSeconds", "no-such-flag"] {
        assert!(words.contains(part), "{part} in {words}");
    }
    assert!(words.lines().all(|line| line.starts_with(['E', 'W'])), "{words}");
}

#[test]
fn an_idle_agent_sleeps() {
    let bed = KubeletBed::new("");
    let mut agent = bed.start(&[]);
    agent.wait_for("READY=1");
    // An unreachable runtime is polled at growing intervals; in between the agent only sleeps,
    // which a process that polls something all the time does not. Switches caused by other
    // processes do not count.
    let mut windows = Vec::new();
    while windows.len() < 100 && !windows.ends_with(&[0, 0]) {
        let before = agent.voluntary_switches();
        std::thread::sleep(Duration::from_millis(300));
        windows.push(agent.voluntary_switches() - before);
    }
    assert!(windows.ends_with(&[0, 0]), "woken so often in each 300 ms: {windows:?}");
}

/// Whether this process ignores SIGHUP, which its children inherit.
fn hangups_are_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & 1 == 1
}
