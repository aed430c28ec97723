//! The runtime of the simulated node: records, reserved names, containers that run and exit by
//! themselves.

use std::collections::BTreeMap;

use pod_model::pod::{Pod, container_hash_text};
use ports::ApiTime;
use ports::runtime_objects::{ContainerRecord, ContainerState, SandboxRecord};

use crate::containers_by_name::{HASH, RESTART_COUNT};
use crate::view::{ObservedContainer, ObservedPod};

use super::rng::SimulationRng;

#[derive(Default)]
pub(super) struct SimulatedRuntime {
    pub(super) now: i64,
    pub(super) sandboxes: Vec<SandboxRecord>,
    pub(super) containers: Vec<ContainerRecord>,
    /// When a running container exits by itself, and with which code.
    pub(super) scheduled_exits: BTreeMap<String, (i64, i32)>,
    pub(super) ids: u32,
    /// The highest count with which a container of each name was started.
    pub(super) started: BTreeMap<String, u32>,
    pub(super) starts: BTreeMap<String, u32>,
}

impl SimulatedRuntime {
    pub(super) fn observe(&self) -> ObservedPod {
        ObservedPod {
            as_of: ApiTime::from_nanos(self.now),
            sandboxes: self.sandboxes.iter().rev().cloned().collect(),
            containers: self
                .containers
                .iter()
                .map(|record| ObservedContainer {
                    record: record.clone(),
                    ..ObservedContainer::default()
                })
                .collect(),
        }
    }

    fn id(&mut self, prefix: &str) -> String {
        self.ids += 1;
        format!("{prefix}-{}", self.ids)
    }

    pub(super) fn run_sandbox(
        &mut self,
        attempt: u32,
        host_network: bool,
    ) -> Result<String, String> {
        if self.sandboxes.iter().any(|each| each.attempt == attempt) {
            return Err(format!("sandbox {attempt} is reserved"));
        }
        let id = self.id("sandbox");
        let ips = if host_network { Vec::new() } else { vec!["10.0.0.9".to_owned()] };
        self.sandboxes.push(SandboxRecord {
            id: id.clone(),
            attempt,
            ready: true,
            created_at: self.now,
            ips,
            host_network: Some(host_network),
            ..SandboxRecord::default()
        });
        Ok(id)
    }

    pub(super) fn stop_sandbox(&mut self, id: &str) {
        for sandbox in self.sandboxes.iter_mut().filter(|each| each.id == id) {
            sandbox.ready = false;
        }
        let inside: Vec<String> = self
            .containers
            .iter()
            .filter(|each| each.sandbox_id == id && each.state == ContainerState::Running)
            .map(|each| each.id.clone())
            .collect();
        for id in inside {
            self.end(&id, 137);
        }
    }

    pub(super) fn remove_sandbox(&mut self, id: &str) {
        self.stop_sandbox(id);
        self.sandboxes.retain(|each| each.id != id);
        self.containers.retain(|each| each.sandbox_id != id);
    }

    pub(super) fn create(
        &mut self,
        pod: &Pod,
        name: &str,
        attempt: u32,
        sandbox: &str,
    ) -> Result<String, String> {
        if self.containers.iter().any(|each| each.name == name && each.attempt == attempt) {
            return Err(format!("name {name} {attempt} is reserved"));
        }
        if !self.sandboxes.iter().any(|each| each.id == sandbox && each.ready) {
            return Err("no such sandbox".to_owned());
        }
        let id = self.id(name);
        let mut record = ContainerRecord {
            id: id.clone(),
            sandbox_id: sandbox.to_owned(),
            name: name.to_owned(),
            attempt,
            state: ContainerState::Created,
            created_at: self.now,
            ..ContainerRecord::default()
        };
        record.annotations.insert(RESTART_COUNT.to_owned(), attempt.to_string());
        let spec = pod.spec.all_containers().find(|(_, _, each)| &*each.name == name);
        let hash = spec.map(|(_, _, each)| container_hash_text(each));
        record.annotations.extend(hash.map(|hash| (HASH.to_owned(), hash)));
        self.containers.push(record);
        Ok(id)
    }

    /// Starts a created container. Its exit is random.
    pub(super) fn start(
        &mut self,
        id: &str,
        scheduled_exit: Option<(i64, i32)>,
    ) -> Result<(), String> {
        let now = self.now;
        let found = self.containers.iter_mut().find(|each| each.id == id);
        let Some(record) = found else { return Err("no such container".to_owned()) };
        if record.state != ContainerState::Created {
            return Ok(());
        }
        record.state = ContainerState::Running;
        record.started_at = now;
        let name = record.name.clone();
        let attempt = record.attempt;
        let highest = self.started.entry(name.clone()).or_insert(attempt);
        *highest = (*highest).max(attempt);
        *self.starts.entry(name).or_default() += 1;
        if let Some(scheduled_exit) = scheduled_exit {
            self.scheduled_exits.insert(id.to_owned(), scheduled_exit);
        }
        Ok(())
    }

    pub(super) fn end(&mut self, id: &str, code: i32) {
        let now = self.now;
        self.scheduled_exits.remove(id);
        let running =
            |each: &&mut ContainerRecord| each.id == id && each.state == ContainerState::Running;
        for record in self.containers.iter_mut().filter(running) {
            record.state = ContainerState::Exited;
            record.finished_at = now;
            record.exit_code = code;
            record.reason = if code == 0 { "Completed".into() } else { "Error".into() };
        }
    }

    pub(super) fn remove(&mut self, id: &str) {
        self.scheduled_exits.remove(id);
        self.containers.retain(|each| each.id != id);
    }

    /// Containers whose time has come exit.
    pub(super) fn exit_due_containers(&mut self) -> bool {
        let due: Vec<(String, i32)> = self
            .scheduled_exits
            .iter()
            .filter(|(_, (at, _))| *at <= self.now)
            .map(|(id, (_, code))| (id.clone(), *code))
            .collect();
        for (id, code) in &due {
            self.end(id, *code);
        }
        !due.is_empty()
    }

    /// How a container of this name behaves: init containers complete, jobs complete, others mostly
    /// keep running.
    pub(super) fn scheduled_exit(
        &self,
        name: &str,
        is_init: bool,
        rng: &mut SimulationRng,
        calm: bool,
    ) -> Option<(i64, i32)> {
        let ends =
            is_init || name.starts_with("job") || name.starts_with("other") || name == "more";
        if ends {
            let code = if calm || rng.percent(60) { 0 } else { [1, 3][rng.below(2) as usize] };
            return Some((self.now + rng.millis(500, 8_000), code));
        }
        let code = [1, 0, 3][rng.below(3) as usize];
        (!calm && rng.percent(35)).then(|| (self.now + rng.millis(500, 60_000), code))
    }
}
