//! Rules for probes and hooks.

use std::ops::RangeInclusive;

use pod_model::pod::handler::{
    ExecAction, GrpcAction, HttpGetAction, Lifecycle, LifecycleHandler, Probe, SleepAction,
    TcpSocketAction, UriScheme,
};
use pod_model::pod::spec::OsName;
use pod_model::pod::{Container, PortReference};

use super::findings::{FieldPath, PodFindings};
use super::{ValidationContext, formats};

const PORTS: RangeInclusive<i64> = 1..=65535;
const PLAIN_SIGNALS: [&str; 34] = [
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
];

/// The probes and hooks of a container that may have them.
pub(super) fn check_container(
    container: &Container,
    around: &ValidationContext<'_>,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    if let Some(lifecycle) = &container.lifecycle {
        check_lifecycle(lifecycle, around, findings, &path.child("lifecycle"));
    }
    for (probe, field) in [
        (&container.liveness_probe, "livenessProbe"),
        (&container.readiness_probe, "readinessProbe"),
        (&container.startup_probe, "startupProbe"),
    ] {
        let Some(probe) = probe else { continue };
        let path = path.child(field);
        check_probe(probe, around, findings, &path);
        let grace = path.child("terminationGracePeriodSeconds");
        if field == "readinessProbe" {
            if let Some(seconds) = probe.termination_grace_period_seconds {
                findings.invalid(&grace, seconds, "a readiness probe ends no container");
            }
        } else if probe.success_threshold != 1 {
            findings.invalid(
                &path.child("successThreshold"),
                probe.success_threshold,
                "expected 1",
            );
        }
    }
}

fn check_probe(
    probe: &Probe,
    around: &ValidationContext<'_>,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    let handler_kinds = HandlerKinds {
        exec: probe.exec.as_deref(),
        http_get: probe.http_get.as_deref(),
        tcp_socket: probe.tcp_socket.as_deref(),
        grpc: probe.grpc.as_deref(),
        sleep: None,
    };
    check_handler_kinds(&handler_kinds, around, findings, path);
    for (number, field) in [
        (probe.initial_delay_seconds, "initialDelaySeconds"),
        (probe.timeout_seconds, "timeoutSeconds"),
        (probe.period_seconds, "periodSeconds"),
        (probe.success_threshold, "successThreshold"),
        (probe.failure_threshold, "failureThreshold"),
    ] {
        findings.not_negative(&path.child(field), number.into());
    }
    if let Some(seconds) = probe.termination_grace_period_seconds.filter(|seconds| *seconds <= 0) {
        let path = path.child("terminationGracePeriodSeconds");
        findings.invalid(&path, seconds, "expected more than zero");
    }
}

fn check_lifecycle(
    lifecycle: &Lifecycle,
    around: &ValidationContext<'_>,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    for (hook, field) in [(&lifecycle.post_start, "postStart"), (&lifecycle.pre_stop, "preStop")] {
        if let Some(hook) = hook {
            check_hook(hook, around, findings, &path.child(field));
        }
    }
    let Some(signal) = &lifecycle.stop_signal else { return };
    let path = path.child("stopSignal");
    match around.spec.os.as_ref().map(|os| &os.name) {
        None => findings.forbidden(&path, "needs spec.os.name"),
        Some(OsName::Linux) if !is_linux_signal(signal) => {
            findings.invalid(&path, signal, "expected the name of a signal, such as SIGUSR1");
        }
        Some(OsName::Windows) if !matches!(&**signal, "SIGKILL" | "SIGTERM") => {
            findings.unsupported(&path, signal, &["SIGKILL", "SIGTERM"]);
        }
        Some(_) => {}
    }
}

fn is_linux_signal(signal: &str) -> bool {
    let numbered = |prefix: &str, highest: u32| {
        let number = signal.strip_prefix(prefix).filter(|rest| !rest.starts_with(['0', '+']));
        number.and_then(|rest| rest.parse::<u32>().ok()).is_some_and(|at| at <= highest)
    };
    PLAIN_SIGNALS.contains(&signal)
        || matches!(signal, "SIGRTMIN" | "SIGRTMAX")
        || numbered("SIGRTMIN+", 15)
        || numbered("SIGRTMAX-", 14)
}

fn check_hook(
    hook: &LifecycleHandler,
    around: &ValidationContext<'_>,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    let handler_kinds = HandlerKinds {
        exec: hook.exec.as_deref(),
        http_get: hook.http_get.as_deref(),
        tcp_socket: hook.tcp_socket.as_deref(),
        grpc: None,
        sleep: hook.sleep.as_ref(),
    };
    check_handler_kinds(&handler_kinds, around, findings, path);
}

/// The handler kinds of a probe or a hook; exactly one must be set.
struct HandlerKinds<'spec> {
    exec: Option<&'spec ExecAction>,
    http_get: Option<&'spec HttpGetAction>,
    tcp_socket: Option<&'spec TcpSocketAction>,
    grpc: Option<&'spec GrpcAction>,
    sleep: Option<&'spec SleepAction>,
}

fn check_handler_kinds(
    handler_kinds: &HandlerKinds<'_>,
    around: &ValidationContext<'_>,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    let given = [
        (handler_kinds.exec.is_some(), "exec"),
        (handler_kinds.http_get.is_some(), "httpGet"),
        (handler_kinds.tcp_socket.is_some(), "tcpSocket"),
        (handler_kinds.grpc.is_some(), "grpc"),
        (handler_kinds.sleep.is_some(), "sleep"),
    ];
    let mut chosen = given.iter().filter(|(given, _)| *given).map(|(_, field)| *field);
    let Some(first) = chosen.next() else {
        findings.forbidden(
            path,
            "expected one of exec, httpGet, tcpSocket, grpc (probe) and sleep (hook)",
        );
        return;
    };
    for surplus in chosen {
        findings.forbidden(&path.child(surplus), format!("{first} is given already"));
    }
    let path = path.child(first);
    if let Some(exec) = handler_kinds.exec {
        if exec.command.is_empty() {
            findings.required(&path.child("command"));
        }
    } else if let Some(get) = handler_kinds.http_get {
        check_http_get(get, findings, &path);
    } else if let Some(tcp) = handler_kinds.tcp_socket {
        check_port(&tcp.port, findings, &path.child("port"));
    } else if let Some(grpc) = handler_kinds.grpc {
        findings.range(&path.child("port"), grpc.port.into(), PORTS);
    } else if let (Some(sleep), Some(grace)) =
        (handler_kinds.sleep, around.spec.termination_grace_period_seconds)
        && !(0..=grace).contains(&sleep.seconds)
    {
        let why = format!("expected zero or more, and at most the grace period of {grace} s");
        findings.invalid(&path, sleep.seconds, why);
    }
}

fn check_http_get(get: &HttpGetAction, findings: &mut PodFindings, path: &FieldPath) {
    findings.require(&get.path, &path.child("path"));
    check_port(&get.port, findings, &path.child("port"));
    if !get.scheme.is_known() {
        findings.unsupported(&path.child("scheme"), &get.scheme, UriScheme::KNOWN);
    }
    for header in &get.http_headers {
        let format_result = formats::header_name(&header.name);
        findings.check_format(&path.child("httpHeaders"), &header.name, format_result);
    }
}

fn check_port(port: &PortReference, findings: &mut PodFindings, path: &FieldPath) {
    match port {
        PortReference::Number(number) => findings.range(path, i64::from(*number), PORTS),
        PortReference::Name(name) => findings.check_format(path, name, formats::port_name(name)),
    }
}
