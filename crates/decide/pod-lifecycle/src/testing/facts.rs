//! `network=down; volumes=pending a b; image web pulling; rejected OutOfcpu no room; unheard`

use crate::testing::{PlanCase, at};
use crate::view::{
    Admission, AttemptImage, DesiredState, Disruption, ImageState, PodLifecycleSettings,
    TerminationCause, TerminationRequest, VolumesState,
};
use std::sync::Arc;
use std::time::Duration;

use pod_model::pod::status::{ConditionStatus, PodCondition};

pub(super) fn desired_state(text: &str) -> DesiredState {
    let tokens: Vec<&str> = text.split(' ').filter(|token| !token.is_empty()).collect();
    let Some(first) = tokens.first() else { return DesiredState::Run };
    let grace = tokens.iter().find_map(|token| token.strip_prefix("grace="));
    let cause = match *first {
        "deleted" => TerminationCause::Deleted,
        "removed" => TerminationCause::ManifestRemoved,
        "orphan" => TerminationCause::Orphan,
        "evicted" => TerminationCause::Evicted {
            reason: "Evicted".to_owned(),
            message: "the node was low on memory".to_owned(),
            disruption: tokens.iter().find_map(|token| token.strip_prefix("disruption=")).map(
                |reason| Disruption {
                    reason: reason.to_owned(),
                    message: "the node took it back".to_owned(),
                },
            ),
        },
        other => panic!("no wish {other}"),
    };
    let grace_seconds = grace.map(|text| text.parse().expect("grace"));
    let is_removal = !matches!(cause, TerminationCause::Evicted { .. });
    DesiredState::End(TerminationRequest { cause, is_removal, grace_seconds, requested_at: at(0) })
}

pub(super) fn apply(case: &mut PlanCase, text: &str) {
    let facts = &mut case.facts;
    facts.admission = Admission::Admitted;
    facts.volumes = VolumesState::Ready;
    let mut settings = PodLifecycleSettings::default();
    let mut supply = true;
    for fact in text.split(';').map(str::trim).filter(|fact| !fact.is_empty()) {
        let tokens: Vec<&str> = fact.split(' ').collect();
        match tokens.as_slice() {
            ["making-room", others @ ..] => {
                let others = others.iter().map(|name| (*name).to_owned()).collect();
                facts.admission = Admission::WaitingForPreemption(others);
            }
            ["pending"] => facts.admission = Admission::Pending,
            ["nodevices"] => facts.admission = Admission::WaitingForDevices,
            ["rejected", reason, rest @ ..] => {
                facts.admission =
                    Admission::Rejected { reason: (*reason).to_owned(), message: rest.join(" ") };
            }
            ["nonetwork"] => facts.network_ready = Err("no plugin".to_owned()),
            ["noruntime"] => facts.runtime_ready = Err("nobody answers".to_owned()),
            ["volumes", "pending", names @ ..] => {
                let names = names.iter().map(|name| (*name).to_owned()).collect();
                facts.volumes = VolumesState::Pending(names);
            }
            ["volumes", "failed", rest @ ..] => {
                facts.volumes = VolumesState::Failed(rest.join(" "));
            }
            ["noimages"] => supply = false,
            ["image", name, attempt, state, rest @ ..] => {
                let state = match *state {
                    "pulling" => ImageState::Pulling,
                    "present" => ImageState::Present { image_ref: "ref-img".to_owned() },
                    reason => ImageState::Failed {
                        reason: reason.to_owned(),
                        message: rest.join(" "),
                        retry_at: rest.first().and_then(|token| token.parse().ok()).map(at),
                    },
                };
                let attempt = attempt.parse().expect("attempt");
                facts.images.insert((*name).to_owned(), Box::new(AttemptImage { attempt, state }));
            }
            ["log", name, number] => {
                let number = number.parse().expect("number");
                facts.highest_log_numbers.insert((*name).to_owned(), number);
            }
            ["hosts", ips @ ..] => {
                facts.host_ips = ips.iter().map(|ip| (*ip).to_owned()).collect();
            }
            ["unheard"] => facts.final_status_reported = false,
            ["cap", seconds] => {
                let seconds = seconds.parse().expect("seconds");
                settings.max_restart_period = Duration::from_secs(seconds);
            }
            ["norules"] => settings.restart_rules = false,
            ["norestartall"] => settings.restart_all = false,
            ["ipv6"] => settings.prefers_ipv6 = true,
            ["gate", name, status] => facts.external_conditions.push(PodCondition {
                kind: (*name).into(),
                status: ConditionStatus::from_text(status),
                ..PodCondition::default()
            }),
            other => panic!("no fact {other:?}"),
        }
    }
    facts.settings = Arc::new(settings);
    if supply {
        case.supply_images();
    }
}
