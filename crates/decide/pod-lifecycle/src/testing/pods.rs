//! `Always grace=30 init:a side:b(startup,pre) app:c(live=3,ready) eph:d(target=c)`

use pod_model::pod::container::{
    ContainerRestartPolicy, ContainerRestartRule, ExitCodeOperator, ExitCodes, PullPolicy,
    RestartRuleAction,
};
use pod_model::pod::handler::{ExecAction, Lifecycle, LifecycleHandler, Probe};
use pod_model::pod::spec::{PodReadinessGate, RestartPolicy};
use pod_model::pod::{Container, EphemeralContainer, Pod};

pub(crate) fn read(text: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = "p".into();
    pod.metadata.namespace = "ns".into();
    pod.metadata.uid = "u1".into();
    pod.spec.termination_grace_period_seconds = Some(30);
    for token in tokens(text) {
        if let Some((list, rest)) = token.split_once(':') {
            let container = container(rest);
            match list {
                "init" => pod.spec.init_containers.push(container),
                "side" => {
                    let restart_policy = Some(ContainerRestartPolicy::Always);
                    pod.spec.init_containers.push(Container { restart_policy, ..container });
                }
                "app" => pod.spec.containers.push(container),
                "eph" => pod.spec.ephemeral_containers.push(EphemeralContainer {
                    target_container_name: option(rest, "target").unwrap_or_default().into(),
                    container,
                }),
                other => panic!("no list {other}"),
            }
            continue;
        }
        let (name, value) = token.split_once('=').unwrap_or((token, ""));
        match name {
            "Always" | "OnFailure" | "Never" => {
                pod.spec.restart_policy = RestartPolicy::from_text(name);
            }
            "grace" => {
                pod.spec.termination_grace_period_seconds = value.parse().ok();
            }
            "deadline" => pod.spec.active_deadline_seconds = value.parse().ok(),
            "deletion" => pod.metadata.deletion_grace_period_seconds = value.parse().ok(),
            "host" => pod.spec.host_network = true,
            "static" => {
                pod.metadata.annotations.insert("kubernetes.io/config.source", "file".into());
            }
            "generation" => pod.metadata.generation = value.parse().expect("generation"),
            "gate" => {
                pod.spec.readiness_gates.push(PodReadinessGate { condition_type: value.into() });
            }
            "phase" => pod.status.phase = pod_model::pod::spec::PodPhase::from_text(value),
            other => panic!("no word {other}"),
        }
    }
    pod
}

/// Words outside parentheses.
fn tokens(text: &str) -> Vec<&str> {
    let mut depth = 0;
    text.split(|letter: char| {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        letter == ' ' && depth == 0
    })
    .filter(|token| !token.is_empty())
    .collect()
}

fn options(text: &str) -> Vec<&str> {
    text.split_once('(').map_or(Vec::new(), |(_, rest)| {
        rest.trim_end_matches(')').split(',').filter(|token| !token.is_empty()).collect()
    })
}

fn option<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    options(text).into_iter().find_map(|token| {
        let (key, value) = token.split_once('=').unwrap_or((token, ""));
        (key == name).then_some(value)
    })
}

fn container(text: &str) -> Container {
    let name = text.split('(').next().unwrap_or_default();
    let probe = |key: &str| {
        option(text, key).map(|value| {
            let mut parts = value.split('/');
            Box::new(Probe {
                exec: Some(Box::default()),
                period_seconds: 10,
                timeout_seconds: 1,
                success_threshold: 1,
                failure_threshold: parts.next().and_then(|text| text.parse().ok()).unwrap_or(3),
                termination_grace_period_seconds: parts.next().and_then(|text| text.parse().ok()),
                ..Probe::default()
            })
        })
    };
    let hook = |key: &str| {
        option(text, key).map(|_| {
            let exec = Some(Box::new(ExecAction::default()));
            Box::new(LifecycleHandler { exec, ..LifecycleHandler::default() })
        })
    };
    let (post_start, pre_stop) = (hook("post"), hook("pre"));
    let has_hooks = post_start.is_some() || pre_stop.is_some();
    let lifecycle = Lifecycle { post_start, pre_stop, stop_signal: None };
    Container {
        name: name.into(),
        image: option(text, "image").unwrap_or("img").into(),
        image_pull_policy: PullPolicy::from_text(option(text, "pull").unwrap_or("IfNotPresent")),
        liveness_probe: probe("live"),
        readiness_probe: probe("ready"),
        startup_probe: probe("startup"),
        lifecycle: has_hooks.then(|| Box::new(lifecycle)),
        restart_policy: option(text, "policy").map(ContainerRestartPolicy::from_text),
        restart_policy_rules: options(text).into_iter().filter_map(rule).collect(),
        ..Container::default()
    }
}

/// `in42+43=Restart`, `notin0=RestartAllContainers`
fn rule(token: &str) -> Option<ContainerRestartRule> {
    let (codes, action) = token.split_once('=')?;
    let (operator, codes) = match (codes.strip_prefix("in"), codes.strip_prefix("notin")) {
        (_, Some(codes)) => (ExitCodeOperator::NotIn, codes),
        (Some(codes), _) => (ExitCodeOperator::In, codes),
        _ => return None,
    };
    let values: Vec<i32> = codes.split('+').filter_map(|code| code.parse().ok()).collect();
    Some(ContainerRestartRule {
        action: RestartRuleAction::from_text(action),
        exit_codes: (!values.is_empty()).then_some(ExitCodes { operator, values }),
    })
}
