//! `s0 ready ip=10.0.0.1 n=0; s1 dead; web#0 running w0 started=-5; a#1 exited 3 a1 done=-2 in=s0`
//!
//! A name with `#` is a container and its restart count; others are sandboxes. Later ones are
//! newer. Without an id a container has its name and count, such as `web0`.

use pod_model::pod::{Pod, container_hash_text};
use ports::ApiTime;
use ports::runtime_objects::{ContainerRecord, ContainerState, LinuxResources, SandboxRecord};

use crate::containers_by_name::{HASH, RESTART_COUNT};
use crate::oom_kills::{OomKillRecord, OomKillRecords};
use crate::view::{ObservedContainer, ObservedPod};

use super::at;

pub(super) fn read(text: &str, pod: &Pod) -> ObservedPod {
    let mut observed = ObservedPod { as_of: at(0), ..ObservedPod::default() };
    let things = text.split(';').map(str::trim).filter(|thing| !thing.is_empty());
    for (order, thing) in things.enumerate() {
        let created = at(-1000).nanos() + i64::try_from(order).expect("order");
        let mut tokens = thing.split(' ').filter(|token| !token.is_empty());
        let name = tokens.next().expect("name");
        let rest: Vec<&str> = tokens.collect();
        match name.split_once('#') {
            Some((name, count)) => {
                let count = count.parse().expect("count");
                let newest = observed.sandboxes.first().map(|sandbox| sandbox.id.clone());
                let mut seen = container(pod, name, count, &rest);
                if seen.record.created_at == 0 {
                    seen.record.created_at = created;
                }
                if seen.record.sandbox_id.is_empty() {
                    seen.record.sandbox_id = newest.unwrap_or_default();
                }
                observed.containers.push(seen);
            }
            None if name == "stale" => observed.as_of = at(-100),
            None if name == "never" => observed.as_of = ApiTime::default(),
            None => {
                let attempt = u32::try_from(observed.sandboxes.len()).expect("few");
                let mut sandbox = sandbox(name, &rest);
                if !rest.iter().any(|token| token.starts_with("n=")) {
                    sandbox.attempt = attempt;
                }
                sandbox.created_at = created;
                observed.sandboxes.insert(0, sandbox);
            }
        }
    }
    observed
}

fn sandbox(id: &str, tokens: &[&str]) -> SandboxRecord {
    let mut sandbox = SandboxRecord {
        id: id.to_owned(),
        ready: true,
        ips: vec!["10.0.0.1".to_owned()],
        ..SandboxRecord::default()
    };
    for token in tokens {
        let (key, value) = token.split_once('=').unwrap_or((token, ""));
        match key {
            "ready" => {}
            "dead" => sandbox.ready = false,
            "ip" => sandbox.ips = value.split(',').map(str::to_owned).collect(),
            "noip" => sandbox.ips.clear(),
            "n" => sandbox.attempt = value.parse().expect("attempt"),
            "hostnet" => sandbox.host_network = Some(true),
            "podnet" => sandbox.host_network = Some(false),
            other => panic!("no word {other}"),
        }
    }
    sandbox
}

fn container(pod: &Pod, name: &str, count: u32, tokens: &[&str]) -> ObservedContainer {
    let mut seen = ObservedContainer::default();
    let hash = pod
        .spec
        .all_containers()
        .find(|(_, _, each)| &*each.name == name)
        .map(|(_, _, each)| container_hash_text(each));
    let record = &mut seen.record;
    *record = ContainerRecord {
        id: format!("{name}{count}"),
        name: name.to_owned(),
        attempt: count,
        image: "img".to_owned(),
        image_ref: "ref-img".to_owned(),
        ..ContainerRecord::default()
    };
    record.annotations.insert(RESTART_COUNT.to_owned(), count.to_string());
    record.annotations.extend(hash.map(|hash| (HASH.to_owned(), hash)));
    for token in tokens {
        let (key, value) = token.split_once('=').unwrap_or((token, ""));
        let seconds = || at(value.parse().expect("seconds")).nanos();
        match key {
            "running" => {
                record.state = ContainerState::Running;
                record.started_at = at(-100).nanos();
            }
            "created" => record.state = ContainerState::Created,
            "unknown" => record.state = ContainerState::Unknown,
            "exited" => {
                record.state = ContainerState::Exited;
                record.started_at = at(-100).nanos();
                record.finished_at = at(-5).nanos();
            }
            "started" => record.started_at = seconds(),
            "done" => record.finished_at = seconds(),
            "made" => record.created_at = seconds(),
            "in" => record.sandbox_id = value.to_owned(),
            "id" => record.id = value.to_owned(),
            "changed" => {
                record.annotations.insert(HASH.to_owned(), "1".to_owned());
            }
            "nohash" => {
                record.annotations.remove(HASH);
            }
            "nocount" => {
                record.annotations.remove(RESTART_COUNT);
            }
            "said" => seen.termination_message = Some(value.replace('_', " ")),
            "runtime" => record.message = value.replace('_', " "),
            "reason" => record.reason = value.to_owned(),
            "shares" => {
                record.resources = Some(LinuxResources {
                    cpu_shares: value.parse().expect("shares"),
                    ..LinuxResources::default()
                });
            }
            "oom" => {
                let (order, killed) = (next_order(&seen.oom_kills), at(-5).nanos());
                let kill = oom_killed_process(order, killed, value.parse().ok());
                assert!(seen.oom_kills.add(kill, false));
            }
            "killed" => {
                let order = next_order(&seen.oom_kills);
                assert!(seen.oom_kills.add(oom_killed_process(order, seconds(), Some(200)), false));
            }
            "ooms" => {
                let (unnamed, limit) = (value.parse().expect("a count"), Some(200));
                let note = OomKillRecord { unnamed, limit, ..OomKillRecord::default() };
                assert!(seen.oom_kills.add(note, false));
            }
            code => {
                record.exit_code = code.parse().unwrap_or_else(|_| panic!("no word {code}"));
                if record.reason.is_empty() {
                    let reason = if record.exit_code == 0 { "Completed" } else { "Error" };
                    reason.clone_into(&mut record.reason);
                }
            }
        }
    }
    seen
}

fn next_order(kills: &OomKillRecords) -> u64 {
    kills.iter().next_back().map_or(7, |note| note.order + 1)
}

/// An OOM-killed process; `oom` when the containers that exit do not mention it.
fn oom_killed_process(order: u64, killed: i64, limit: Option<u64>) -> OomKillRecord {
    OomKillRecord {
        order,
        at: killed,
        process: "eater".to_owned(),
        pid: i32::try_from(order).expect("few"),
        bytes: 100,
        limit,
        ..OomKillRecord::default()
    }
}
