//! A test's controls of the fake runtime: behaviour of containers and calls, faults, and the record
//! of calls.

use std::time::Duration;

use crate::behaviour::{Behaviour, Fault};
use crate::runtime::{FakeRuntime, Made, State, end};
use ports::runtime_objects::{
    ContainerRecord, ContainerState, ExecOutput, ImageRecord, RuntimeEventKind, RuntimeSignal,
    SandboxConfig, SandboxRecord,
};

impl FakeRuntime {
    /// Sets what containers of this name do when they are started.
    pub fn behave(&self, container: &str, behaviour: Behaviour) {
        self.shared.state().behaviours.insert(container.to_owned(), behaviour);
    }

    /// Sets the exit code and output of commands in containers of this name.
    pub fn answer_exec(&self, container: &str, exit_code: i32, said: &str) {
        let output = ExecOutput { exit_code, stdout: said.into(), ..ExecOutput::default() };
        self.shared.state().execs.insert(container.to_owned(), output);
    }

    /// Adds an image as if pulled: it has a name by digest too.
    pub fn add_pulled_image(&self, name: &str) {
        self.add_image(name);
        let repository = name.rsplit_once(':').map_or(name, |(repository, _)| repository);
        if let Some(record) = self.shared.state().images.get_mut(name) {
            record.repo_digests = vec![format!("{repository}@sha256:{name}")];
        }
    }

    /// Adds an image as if imported.
    pub fn add_image(&self, name: &str) {
        let record = ImageRecord {
            id: format!("sha256:{name}"),
            repo_tags: vec![name.to_owned()],
            ..ImageRecord::default()
        };
        self.shared.state().images.insert(name.to_owned(), record);
    }

    /// Removes an image, as another client of the runtime may.
    pub fn remove_image_now(&self, name: &str) {
        self.shared.state().images.remove(name);
    }

    /// Sets whether pulls succeed.
    pub fn let_pulls_succeed(&self, succeed: bool) {
        self.shared.state().pullable = succeed;
    }

    /// Injects a fault into the next call of this name (`run_sandbox`, `start_container`, …).
    pub fn spoil(&self, call: &str, fault: Fault) {
        self.shared.state().faults.entry(call.to_owned()).or_default().push_back(fault);
    }

    /// Delays events by this long.
    pub fn tell_late(&self, late: Duration) {
        self.shared.state().events.late = late;
    }

    /// Puts the timestamps of events this much earlier than they happened.
    pub fn stamp_early(&self, behind: Duration) {
        self.shared.state().events.behind = behind;
    }

    /// Sets whether a container's event carries its exit status.
    pub fn tell_ends(&self, tell: bool) {
        self.shared.state().events.unkindness.tells_no_ends = !tell;
    }

    /// From now on observations of these pods are never answered; those of others are, and an
    /// observation of all pods returns only the identities of these.
    pub fn leave_unanswered(&self, uids: impl IntoIterator<Item = String>) {
        self.shared.state().unanswered = uids.into_iter().collect();
    }

    pub fn be_away(&self, away: bool) {
        let mut state = self.shared.state();
        state.is_away = away;
        let signal =
            if away { RuntimeSignal::Lost("gone".to_owned()) } else { RuntimeSignal::Connected };
        if !state.events.unkindness.has_no_stream {
            state.events.queue.push_back(signal);
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Ends the event stream while calls go on working.
    pub fn refuse_events(&self) {
        let mut state = self.shared.state();
        state.events.unkindness.loses_events = true;
        state.events.queue.push_back(RuntimeSignal::Lost("refused".to_owned()));
        state.events.queue.push_back(RuntimeSignal::Refused("refused again".to_owned()));
        drop(state);
        self.shared.changed.notify_one();
    }

    pub fn lose_events(&self, lose: bool) {
        self.shared.state().events.unkindness.loses_events = lose;
    }

    pub fn repeat_events(&self, repeat: bool) {
        self.shared.state().events.unkindness.repeats_events = repeat;
    }

    /// Sets whether the runtime supports an event stream. A subscriber learns it on subscribing.
    pub fn have_stream(&self, has: bool) {
        self.shared.state().events.unkindness.has_no_stream = !has;
    }

    /// How often a read-only call such as `observe_pod` was made.
    pub fn looks(&self, call: &str) -> usize {
        self.shared.state().looks.get(call).copied().unwrap_or_default()
    }

    /// The names of all calls, in order.
    pub fn asked(&self) -> Vec<&'static str> {
        self.shared.state().asked.clone()
    }

    pub fn take_network_down(&self, down: bool) {
        self.shared.state().is_network_down = down;
    }

    /// Sets the addresses of sandboxes that are created from now on.
    pub fn give_addresses(&self, addresses: &[&str]) {
        self.shared.state().addresses = addresses.iter().map(ToString::to_string).collect();
    }

    /// Ends every running container of this name.
    pub fn crash(&self, container: &str, code: i32) {
        self.crash_with(container, code, "");
    }

    /// The same, with this message in the container's status.
    pub fn crash_with(&self, container: &str, code: i32, message: &str) {
        let mut state = self.shared.state();
        state.pass_time(&self.shared);
        let now = (self.shared.now)();
        let State { containers, events, .. } = &mut *state;
        for made in containers.values_mut() {
            if made.record.name == container && made.record.state == ContainerState::Running {
                end(made, code, now);
                message.clone_into(&mut made.record.message);
                events.push_end(&made.record, &made.uid);
            }
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Kills every sandbox and what runs in it.
    pub fn lose_sandboxes(&self) {
        let mut state = self.shared.state();
        let now = (self.shared.now)();
        let State { sandboxes, containers, events, .. } = &mut *state;
        for sandbox in sandboxes.values_mut().filter(|sandbox| sandbox.ready) {
            sandbox.ready = false;
            events.push(RuntimeEventKind::Stopped, &sandbox.id, &sandbox.uid);
        }
        for made in containers.values_mut() {
            if made.record.state == ContainerState::Running {
                end(made, 137, now);
            }
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Makes the state of the running containers of this name unknown.
    pub fn lose_state(&self, container: &str) {
        let mut state = self.shared.state();
        let State { containers, events, .. } = &mut *state;
        for made in containers.values_mut() {
            if made.record.name == container && made.record.state == ContainerState::Running {
                made.record.state = ContainerState::Unknown;
                events.push(RuntimeEventKind::Stopped, &made.record.id, &made.uid);
            }
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Adds a sandbox that the agent under test did not create.
    pub fn plant_sandbox(&self, record: SandboxRecord) {
        self.shared.state().sandboxes.insert(record.id.clone(), record);
    }

    pub fn plant_container(&self, uid: &str, record: ContainerRecord) {
        let behaviour = Behaviour::RunsForEver;
        let made = Made { uid: uid.to_owned(), behaviour, exits_at: None, record };
        self.shared.state().containers.insert(made.record.id.clone(), made);
    }

    /// Mutating calls, in order: `run_sandbox u1`, `start_container main#0`, …
    pub fn calls(&self) -> Vec<String> {
        self.shared.state().calls.clone()
    }

    /// The sandbox configurations that pulls were made for, in order.
    pub fn pulled_for(&self) -> Vec<Option<SandboxConfig>> {
        self.shared.state().pulled_for.clone()
    }

    pub fn containers(&self) -> Vec<ContainerRecord> {
        let mut state = self.shared.state();
        state.pass_time(&self.shared);
        state.containers.values().map(|made| made.record.clone()).collect()
    }

    pub fn sandboxes(&self) -> Vec<SandboxRecord> {
        self.shared.state().sandboxes.values().cloned().collect()
    }
}
