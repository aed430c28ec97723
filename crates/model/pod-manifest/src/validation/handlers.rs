//! Rules for probes and hooks.

use pod_model::pod::handler::{
    ExecAction, GrpcAction, HttpGetAction, Lifecycle, LifecycleHandler, Probe, SleepAction,
    TcpSocketAction, UriScheme,
};
use pod_model::pod::spec::OsName;
use pod_model::pod::{Container, PortReference};

use super::findings::{Findings, Path};
use super::{Surroundings, words};

const PORTS: (i64, i64) = (1, 65535);
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
    around: &Surroundings<'_>,
    findings: &mut Findings,
    path: &Path,
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

fn check_probe(probe: &Probe, around: &Surroundings<'_>, findings: &mut Findings, path: &Path) {
    let ways = Ways {
        exec: probe.exec.as_deref(),
        http_get: probe.http_get.as_deref(),
        tcp_socket: probe.tcp_socket.as_deref(),
        grpc: probe.grpc.as_deref(),
        sleep: None,
    };
    check_ways(&ways, around, findings, path);
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
    around: &Surroundings<'_>,
    findings: &mut Findings,
    path: &Path,
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
    around: &Surroundings<'_>,
    findings: &mut Findings,
    path: &Path,
) {
    let ways = Ways {
        exec: hook.exec.as_deref(),
        http_get: hook.http_get.as_deref(),
        tcp_socket: hook.tcp_socket.as_deref(),
        grpc: None,
        sleep: hook.sleep.as_ref(),
    };
    check_ways(&ways, around, findings, path);
}

/// The handler kinds of a probe or a hook; exactly one must be set.
struct Ways<'spec> {
    exec: Option<&'spec ExecAction>,
    http_get: Option<&'spec HttpGetAction>,
    tcp_socket: Option<&'spec TcpSocketAction>,
    grpc: Option<&'spec GrpcAction>,
    sleep: Option<&'spec SleepAction>,
}

fn check_ways(ways: &Ways<'_>, around: &Surroundings<'_>, findings: &mut Findings, path: &Path) {
    let given = [
        (ways.exec.is_some(), "exec"),
        (ways.http_get.is_some(), "httpGet"),
        (ways.tcp_socket.is_some(), "tcpSocket"),
        (ways.grpc.is_some(), "grpc"),
        (ways.sleep.is_some(), "sleep"),
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
    if let Some(exec) = ways.exec {
        if exec.command.is_empty() {
            findings.required(&path.child("command"));
        }
    } else if let Some(get) = ways.http_get {
        check_http_get(get, findings, &path);
    } else if let Some(tcp) = ways.tcp_socket {
        check_port(&tcp.port, findings, &path.child("port"));
    } else if let Some(grpc) = ways.grpc {
        findings.range(&path.child("port"), grpc.port.into(), PORTS);
    } else if let (Some(sleep), Some(grace)) =
        (ways.sleep, around.spec.termination_grace_period_seconds)
        && !(0..=grace).contains(&sleep.seconds)
    {
        let why = format!("expected zero or more, and at most the grace period of {grace} s");
        findings.invalid(&path, sleep.seconds, why);
    }
}

fn check_http_get(get: &HttpGetAction, findings: &mut Findings, path: &Path) {
    findings.require(&get.path, &path.child("path"));
    check_port(&get.port, findings, &path.child("port"));
    if !get.scheme.is_known() {
        findings.unsupported(&path.child("scheme"), &get.scheme, UriScheme::KNOWN);
    }
    for header in &get.http_headers {
        let verdict = words::header_name(&header.name);
        findings.word(&path.child("httpHeaders"), &header.name, verdict);
    }
}

fn check_port(port: &PortReference, findings: &mut Findings, path: &Path) {
    match port {
        PortReference::Number(number) => findings.range(path, i64::from(*number), PORTS),
        PortReference::Name(name) => findings.word(path, name, words::port_name(name)),
    }
}
