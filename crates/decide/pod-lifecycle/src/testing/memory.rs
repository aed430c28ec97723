//! `startup web w0; ready web w0; failed web web0 liveness; backoff web 20 -40; reported; ...`

use std::time::Duration;

use crate::action::{Action, ActionKey, ContainerKind, KillReason};
use crate::back_off::{self, RestartBackOff};
use crate::containers_by_name;
use crate::input::{PodInput, ProbeKind};
use crate::memory::{
    ActionFailure, ConditionMemory, ContainerExit, ContainerStop, Ending, InFlight, Reported,
    SavedStartFailure, TerminalStatus,
};
use crate::testing::{PlanCase, at};
use crate::view::{Admission, VolumesState};

pub(super) fn apply(case: &mut PlanCase, text: &str) {
    case.memory.prepared = true;
    case.memory.persisted.start_time = Some(at(-200).nanos());
    for item in text.split(';').map(str::trim).filter(|item| !item.is_empty()) {
        let tokens: Vec<&str> = item.split(' ').collect();
        if !pod(case, &tokens) {
            container(case, &tokens);
        }
    }
}

fn seconds(text: &str) -> i64 {
    text.parse().unwrap_or_else(|_| panic!("no seconds: {text}"))
}

fn nanos(text: &str) -> i64 {
    at(seconds(text)).nanos()
}

fn pod(case: &mut PlanCase, tokens: &[&str]) -> bool {
    let memory = &mut case.memory;
    match tokens {
        ["unprepared"] => memory.prepared = false,
        ["new"] => memory.persisted.start_time = None,
        ["since", start] => memory.persisted.start_time = Some(nanos(start)),
        // As if the current status had been reported before.
        ["reported"] => {
            let saved = (case.facts.admission.clone(), case.facts.volumes.clone());
            case.facts.admission = Admission::Admitted;
            case.facts.volumes = VolumesState::Ready;
            let plan = case.plan();
            let (desired, now) = (case.desired.clone(), case.now);
            case.memory.apply_input(&desired, &PodInput::Planned(&plan), now);
            (case.facts.admission, case.facts.volumes) = saved;
        }
        ["ended", key, when] => {
            memory.last_end.insert(read_key(key), at(seconds(when)));
        }
        ["failure", key, retry] => {
            let failure =
                ActionFailure { message: "boom".to_owned(), retry_at: at(seconds(retry)) };
            memory.failures.insert(read_key(key), failure);
        }
        ["stopped", id] => {
            memory.persisted.stopped_sandboxes.insert((*id).to_owned());
        }
        ["ending", since, grace] => memory.persisted.termination = Some(termination(since, grace)),
        ["clearing", since, grace] => memory.persisted.clearing = Some(termination(since, grace)),
        ["verdict", phase, rest @ ..] => {
            memory.persisted.terminal_status = Some(TerminalStatus {
                failed: *phase == "Failed",
                reason: rest.join(" "),
                ..TerminalStatus::default()
            });
        }
        ["disrupted", reason, rest @ ..] => {
            let terminal_status = memory.persisted.terminal_status.get_or_insert_default();
            let (reason, message) = ((*reason).to_owned(), rest.join(" "));
            terminal_status.disruption = Some(crate::view::Disruption { reason, message });
        }
        ["cleaned", dirs] => memory.persisted.cleaned = Some(*dirs == "all"),
        ["ips", ips @ ..] => {
            memory.persisted.pod_ips = ips.iter().map(|ip| (*ip).to_owned()).collect();
        }
        ["condition", name, met, since] => {
            let known = ConditionMemory { met: *met == "True", since: nanos(since) };
            memory.persisted.conditions.insert((*name).to_owned(), known);
        }
        ["flight", began, action @ ..] => {
            let action = read_action(action);
            let flight = InFlight { action: action.clone(), began_at: at(seconds(began)) };
            memory.in_flight.insert(action.key(), flight);
        }
        _ => return false,
    }
    true
}

fn termination(since: &str, grace: &str) -> Ending {
    let grace_seconds = seconds(grace);
    let deadline = at(seconds(since) + grace_seconds).nanos();
    Ending { since: nanos(since), grace_seconds, deadline }
}

fn read_key(text: &str) -> ActionKey {
    match text {
        "pod" => ActionKey::Pod,
        "sandbox" => ActionKey::Sandbox,
        name => ActionKey::Container(name.to_owned()),
    }
}

fn read_action(tokens: &[&str]) -> Action {
    match tokens {
        ["prepare"] => Action::PreparePod,
        ["cleanup"] => Action::CleanUpPod { forget: true },
        ["sandbox", attempt] => Action::RunSandbox { attempt: attempt.parse().expect("attempt") },
        ["stop-sandbox", id] => Action::StopSandbox { id: (*id).to_owned() },
        ["start", name, attempt] => Action::StartContainer {
            name: (*name).to_owned(),
            kind: ContainerKind::Regular,
            attempt: attempt.parse().expect("attempt"),
            sandbox_id: "s0".to_owned(),
            pod_ips: Vec::new(),
            image_ref: String::new(),
            target_id: None,
        },
        ["hook", name, id, limit] => Action::RunPreStop {
            id: (*id).to_owned(),
            name: (*name).to_owned(),
            limit: Duration::from_secs(limit.parse().expect("limit")),
        },
        ["stop", name, id, grace] => Action::StopContainer {
            id: (*id).to_owned(),
            name: (*name).to_owned(),
            grace: Duration::from_secs(grace.parse().expect("grace")),
            pre_stop: false,
            reason: KillReason::PodEnds,
            message: String::new(),
            replaces: false,
        },
        other => panic!("no action {other:?}"),
    }
}

fn container(case: &mut PlanCase, tokens: &[&str]) {
    let [what, name, rest @ ..] = tokens else { panic!("no memory {tokens:?}") };
    let found =
        containers_by_name::find(&case.desired.pod, name).map(|(_, container)| container.clone());
    let memory = case.memory.persisted.containers.entry((*name).to_owned()).or_default();
    match (*what, rest) {
        ("startup", [id]) => memory.startup_passed = Some((*id).to_owned()),
        ("ready", [id]) => memory.readiness = Some(((*id).to_owned(), true)),
        ("unready", [id]) => memory.readiness = Some(((*id).to_owned(), false)),
        ("failed", [id, kind]) => {
            let kind = match *kind {
                "liveness" => ProbeKind::Liveness,
                _ => ProbeKind::Startup,
            };
            memory.failed_probe = Some(((*id).to_owned(), kind));
        }
        ("killed", [id]) => memory.killed = Some((*id).to_owned()),
        ("hookfailed", [id]) => memory.post_start_failed = Some((*id).to_owned()),
        ("stopping", [id, deadline]) => {
            memory.stop = Some(ContainerStop {
                id: (*id).to_owned(),
                deadline: nanos(deadline),
                hook_done: false,
            });
        }
        ("hooked", [id, deadline]) => {
            memory.stop = Some(ContainerStop {
                id: (*id).to_owned(),
                deadline: nanos(deadline),
                hook_done: true,
            });
        }
        ("stopdone", [id, when]) => {
            let transient = case.memory.transient.entry((*name).to_owned()).or_default();
            transient.stop_done = Some(((*id).to_owned(), at(seconds(when))));
        }
        ("backoff", [delay, updated]) => {
            let key = found.as_ref().map_or(0, back_off::key);
            let delay_nanos = delay.parse::<u64>().expect("delay") * 1_000_000_000;
            memory.back_off = Some(RestartBackOff { key, delay_nanos, updated_at: nanos(updated) });
        }
        ("oldbackoff", [delay, updated]) => {
            let delay_nanos = delay.parse::<u64>().expect("delay") * 1_000_000_000;
            memory.back_off =
                Some(RestartBackOff { key: 1, delay_nanos, updated_at: nanos(updated) });
        }
        ("trouble", [reason, retry]) => {
            memory.start_failure = Some(SavedStartFailure {
                reason: (*reason).to_owned(),
                message: "boom".to_owned(),
                retry_at: (*retry != "none").then(|| nanos(retry)),
            });
        }
        ("shown", [reason]) => {
            let transient = case.memory.transient.entry((*name).to_owned()).or_default();
            transient.shown_start_blocker = Some(((*reason).to_owned(), "boom".to_owned()));
        }
        ("was", ["running", count]) => {
            memory.restart_count = count.parse().expect("count");
            memory.reported = Reported::Running { id: format!("containerd://{name}{count}") };
        }
        ("was", ["waiting", count]) => {
            memory.restart_count = count.parse().expect("count");
            memory.reported = Reported::Waiting;
        }
        ("was", ["exited", count, code]) => {
            memory.restart_count = count.parse().expect("count");
            memory.reported = Reported::Exited {
                exit: exit(name, count, code),
                image: "img".to_owned(),
                image_id: "ref-img".to_owned(),
            };
        }
        ("used", [number]) => memory.highest = Some(number.parse().expect("number")),
        ("before", [count, code]) => memory.last_exit = Some(exit(name, count, code)),
        other => panic!("no memory {other:?}"),
    }
}

fn exit(name: &str, count: &str, code: &str) -> ContainerExit {
    ContainerExit {
        code: code.parse().expect("code"),
        reason: "Error".to_owned(),
        message: "last words".to_owned(),
        container_id: format!("containerd://{name}{count}"),
        ..ContainerExit::default()
    }
}
