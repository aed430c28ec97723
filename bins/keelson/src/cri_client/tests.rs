//! Command line, tables, JSON and error lines of the verb, without a runtime.

use std::time::Duration;

use clap::{CommandFactory, Parser};
use cri_wire::v1;
use ports::container_runtime::{ContainerRuntimeError, UnavailableCause};

use super::lifecycle::LifecycleCommand;
use super::{CriClientCommand, CriFormat, CriSubcommand, json, listing, next_step};
use crate::table::{Table, age, short_id, size};

#[derive(Debug, Parser)]
#[command(name = "cri-client")]
struct Program {
    #[command(flatten)]
    command: CriClientCommand,
}

fn parsed(arguments: &[&str]) -> Result<CriClientCommand, clap::Error> {
    let all = std::iter::once("cri-client").chain(arguments.iter().copied());
    Program::try_parse_from(all).map(|program| program.command)
}

#[test]
fn the_command_line_is_well_formed() {
    Program::command().debug_assert();
}

#[test]
fn options_stand_before_or_after_the_subcommand() {
    for arguments in [
        &["-o", "json", "--timeout", "3s", "--runtime-endpoint", "unix:///a", "pods"][..],
        &["pods", "-o", "json", "--timeout=3s", "--runtime-endpoint=unix:///a"][..],
    ] {
        let command = parsed(arguments).expect("taken");
        assert_eq!(command.output, CriFormat::Json);
        assert_eq!(command.timeout, Duration::from_secs(3));
        assert_eq!(command.runtime_endpoint.to_string(), "unix:///a");
    }
}

#[test]
fn wrong_values_are_refused_with_their_name() {
    for (arguments, named) in [
        (&["--timeout", "0s", "version"][..], "--timeout"),
        (&["--timeout", "soon", "version"][..], "--timeout"),
        (&["--runtime-endpoint", "tcp://localhost:1", "version"][..], "only unix sockets"),
        (&["stop", "--grace", "-1", "abc"][..], "-1"),
        (&["rm"][..], "CONTAINERS"),
    ] {
        let error = parsed(arguments).expect_err("refused").to_string();
        assert!(error.contains(named), "{arguments:?}: {error}");
    }
}

#[test]
fn a_command_in_a_container_keeps_its_own_options() {
    let command = parsed(&["exec", "abc", "ls", "-o", "json", "--timeout"]).expect("taken");
    let CriSubcommand::LifecycleCommand(LifecycleCommand::Exec {
        container, command: words, ..
    }) = command.subcommand
    else {
        panic!("exec expected")
    };
    assert_eq!(container, "abc");
    assert_eq!(words, ["ls", "-o", "json", "--timeout"]);
    assert_eq!(command.output, CriFormat::Table);
}

#[test]
fn tables_align() {
    let mut table = Table::new(&["A", "LONG HEAD", "C"]);
    table.row(["wide cell".into(), "é".into(), String::new()]);
    table.row(["x".into(), String::new(), "z".into()]);
    let expected = "\
A           LONG HEAD   C
wide cell   é
x                       z
";
    assert_eq!(table.render(), expected);
}

#[test]
fn short_forms() {
    assert_eq!(short_id("sha256:0123456789abcdef"), "0123456789abc");
    assert_eq!(short_id("ab"), "ab");
    let second = 1_000_000_000;
    let ages =
        [(0, "0s"), (119, "119s"), (120, "2m"), (7_199, "119m"), (7_200, "2h"), (172_800, "2d")];
    for (seconds, text) in ages {
        assert_eq!(age(1_000_000 * second + seconds * second, 1_000_000 * second), text);
    }
    assert_eq!(age(0, second), "0s", "a clock that went back");
    let sizes = [
        (0, "0B"),
        (999, "999B"),
        (1_000, "1kB"),
        (1_550, "1.5kB"),
        (999_999, "999.9kB"),
        (4_260_000, "4.2MB"),
        (u64::MAX, "18.4EB"),
    ];
    for (bytes, text) in sizes {
        assert_eq!(size(bytes), text);
    }
}

#[test]
fn lists_show_what_people_look_for() {
    let metadata = Some(v1::ContainerMetadata { name: "web".into(), attempt: 2 });
    let labels = [("io.kubernetes.pod.name".to_owned(), "shop".to_owned())].into();
    let container = v1::Container {
        id: "c".repeat(64),
        pod_sandbox_id: "p".repeat(64),
        metadata,
        labels,
        image: Some(v1::ImageSpec { image: "busybox:1".into(), ..Default::default() }),
        state: v1::ContainerState::ContainerExited.into(),
        created_at: 1,
        ..Default::default()
    };
    let text = listing::containers_table(&[container], 5_000_000_001).render();
    let line = text.lines().nth(1).expect("one row");
    let words: Vec<&str> = line.split_whitespace().collect();
    let short = ("c".repeat(13), "p".repeat(13));
    assert_eq!(words, [&short.0, "busybox:1", "5s", "Exited", "web", "2", &short.1, "shop"]);

    let sandbox = v1::PodSandbox { state: 1, ..Default::default() };
    let text = listing::pods_table(&[sandbox], 0).render();
    assert!(text.contains("NotReady") && text.contains("(default)"), "{text}");

    let image = v1::Image {
        id: "sha256:abc".into(),
        repo_tags: vec!["one:1".into(), "two:2".into()],
        repo_digests: vec!["one@sha256:abc".into()],
        ..Default::default()
    };
    let text = listing::images_table(&[image, v1::Image::default()]).render();
    assert_eq!(text.lines().count(), 4);
    assert!(!text.contains('@') && text.contains("<none>"), "{text}");
}

const SANDBOX: &str = r#"{
  "metadata": {"name": "shop", "uid": "u1", "namespace": "default", "attempt": 1},
  "log_directory": "/var/log/pods/shop",
  "port_mappings": [{"protocol": "UDP", "container_port": 53}],
  "labels": {"app": "shop"},
  "linux": {"security_context": {"namespace_options": {"network": 2}}}
}"#;

#[test]
fn configuration_files_are_read_in_both_spellings() {
    let snake: v1::PodSandboxConfig = json::from_text(SANDBOX).expect("the standard's names");
    assert_eq!(snake.log_directory, "/var/log/pods/shop");
    assert_eq!(snake.port_mappings[0].protocol(), v1::Protocol::Udp);
    let security = snake.linux.clone().and_then(|linux| linux.security_context);
    let namespaces = security.and_then(|security| security.namespace_options).expect("given");
    assert_eq!(namespaces.network(), v1::NamespaceMode::Node);
    let camel = json::to_value(&snake).expect("JSON").to_string();
    assert!(camel.contains("\"logDirectory\""), "{camel}");
    let again: v1::PodSandboxConfig = json::from_text(&camel).expect("camel case");
    assert_eq!(again, snake);
}

#[test]
fn errors_in_configuration_files_name_file_and_field() {
    for (text, named) in [
        (r#"{"metadata": {"nmae": "x"}}"#, "nmae"),
        (r#"{"log_directory": 7}"#, "line 1"),
        ("{} {}", "nothing after it"),
        ("", "EOF"),
    ] {
        let error = json::from_text::<v1::PodSandboxConfig>(text).expect_err("wrong");
        assert!(format!("{error:#}").contains(named), "{text}: {error:#}");
    }
}

#[test]
fn answers_show_every_field_and_open_the_runtimes_own_texts() {
    let info = [("a", r#"{"pid": 7}"#), ("b", "plain"), ("c", "12")]
        .map(|(key, text)| (key.to_owned(), text.to_owned()))
        .into();
    let answer = v1::ContainerStatusResponse { status: Some(Default::default()), info };
    let value = json::with_opened_info(&answer).expect("JSON");
    assert_eq!(value["info"]["a"]["pid"], 7);
    assert_eq!(value["info"]["b"], "plain");
    assert_eq!(value["info"]["c"], "12");
    assert_eq!(value["status"]["state"], "CONTAINER_CREATED");
    assert_eq!(value["status"]["createdAt"], "0");
}

#[test]
fn failures_are_one_line_with_the_next_step() {
    let unavailable = |cause| ContainerRuntimeError::Unavailable {
        call: "Version",
        endpoint: "unix:///run/x.sock".into(),
        cause,
        message: "why".into(),
    };
    let limit = Duration::from_secs(2);
    let cases = [
        (
            unavailable(UnavailableCause::NoSocket),
            "no runtime listens on unix:///run/x.sock; start containerd or give --runtime-endpoint",
        ),
        (unavailable(UnavailableCause::NotPermitted), "as root"),
        (unavailable(UnavailableCause::Broken), "(why)"),
        (ContainerRuntimeError::DeadlineExceeded { call: "Status", limit }, "within 2s"),
        (
            ContainerRuntimeError::Unimplemented { call: "RuntimeConfig", message: "m".into() },
            "does not offer RuntimeConfig",
        ),
        (ContainerRuntimeError::NotFound { call: "ContainerStatus", message: "m".into() }, "ps -a"),
        (
            ContainerRuntimeError::Refused {
                call: "C",
                code: "Internal".into(),
                message: "m".into(),
            },
            "C: Internal: m",
        ),
    ];
    for (error, expected) in cases {
        let line = format!("{:#}", next_step::explain(error));
        assert!(line.contains(expected), "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }
}

#[test]
fn an_event_is_one_line() {
    let metadata = v1::PodSandboxMetadata {
        name: "shop".into(),
        namespace: "default".into(),
        ..Default::default()
    };
    let event = v1::ContainerEventResponse {
        container_id: "abc".into(),
        container_event_type: v1::ContainerEventType::ContainerStoppedEvent.into(),
        created_at: 42,
        pod_sandbox_status: Some(v1::PodSandboxStatus {
            metadata: Some(metadata),
            ..Default::default()
        }),
        containers_statuses: Vec::new(),
    };
    let expected = "1970-01-01T00:00:00.000000042Z stopped abc pod default/shop";
    assert_eq!(listing::event_line(&event), expected);
}
