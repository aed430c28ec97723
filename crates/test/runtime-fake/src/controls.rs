//! How tests control the fake runtime: behaviour of containers and calls, faults, and the record of
//! calls.

use std::time::Duration;

use crate::behaviour::{Behaviour, Fault};
use crate::runtime::{CreatedContainer, FakeRuntime, FakeRuntimeState, mark_exited};
use ports::runtime_objects::{
    ContainerRecord, ContainerState, ExecOutput, ImageRecord, RuntimeEventKind, RuntimeSignal,
    SandboxConfig, SandboxRecord,
};

impl FakeRuntime {
    /// Sets what containers of this name do when they are started.
    pub fn set_behaviour(&self, container: &str, behaviour: Behaviour) {
        self.shared.state().behaviours.insert(container.to_owned(), behaviour);
    }

    /// Sets the exit code and output of commands in containers of this name.
    pub fn set_exec_output(&self, container: &str, exit_code: i32, stdout: &str) {
        let output = ExecOutput { exit_code, stdout: stdout.into(), ..ExecOutput::default() };
        self.shared.state().execs.insert(container.to_owned(), output);
    }

    /// Adds an image as if pulled: it also has a repo digest.
    pub fn add_pulled_image(&self, name: &str) {
        self.add_image(name);
        let repository = name.rsplit_once(':').map_or(name, |(repository, _)| repository);
        if let Some(record) = self.shared.state().images.get_mut(name) {
            record.repo_digests = vec![format!("{repository}@sha256:{name}")];
        }
    }

    /// Adds an image as if imported: it has no repo digest.
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
    pub fn set_pulls_succeed(&self, succeed: bool) {
        self.shared.state().pullable = succeed;
    }

    /// Injects a fault into the next call of this name (`run_sandbox`, `start_container`, …).
    pub fn inject_fault(&self, call: &str, fault: Fault) {
        self.shared.state().faults.entry(call.to_owned()).or_default().push_back(fault);
    }

    /// Delays events by this long.
    pub fn delay_events(&self, delay: Duration) {
        self.shared.state().events.delay = delay;
    }

    /// Sets the timestamps of events this much earlier than they happened.
    pub fn backdate_events(&self, clock_lag: Duration) {
        self.shared.state().events.clock_lag = clock_lag;
    }

    /// Sets whether a container's event carries its exit status.
    pub fn include_exit_in_events(&self, include: bool) {
        self.shared.state().events.event_faults.omits_exit = !include;
    }

    /// From now on observations of these pods never return. Those of other pods do, and an
    /// observation of all pods returns only the identities of these.
    pub fn hang_observations_of(&self, uids: impl IntoIterator<Item = String>) {
        self.shared.state().unanswered = uids.into_iter().collect();
    }

    /// Sets whether calls fail; the event stream reports the loss and the return of the connection.
    pub fn set_unavailable(&self, unavailable: bool) {
        let mut state = self.shared.state();
        state.is_unavailable = unavailable;
        let signal = if unavailable {
            RuntimeSignal::Lost("gone".to_owned())
        } else {
            RuntimeSignal::Connected
        };
        if !state.events.event_faults.lacks_event_stream {
            state.events.queue.push_back(signal);
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Ends the event stream while calls go on working.
    pub fn break_event_stream(&self) {
        let mut state = self.shared.state();
        state.events.event_faults.drops_events = true;
        state.events.queue.push_back(RuntimeSignal::Lost("refused".to_owned()));
        state.events.queue.push_back(RuntimeSignal::Refused("refused again".to_owned()));
        drop(state);
        self.shared.changed.notify_one();
    }

    pub fn drop_events(&self, enabled: bool) {
        self.shared.state().events.event_faults.drops_events = enabled;
    }

    pub fn duplicate_events(&self, enabled: bool) {
        self.shared.state().events.event_faults.duplicates_events = enabled;
    }

    /// Sets whether the runtime supports an event stream. Read when a client
    /// subscribes.
    pub fn support_event_stream(&self, supported: bool) {
        self.shared.state().events.event_faults.lacks_event_stream = !supported;
    }

    /// How often a read-only call such as `observe_pod` was made.
    pub fn call_counts(&self, call: &str) -> usize {
        self.shared.state().call_counts.get(call).copied().unwrap_or_default()
    }

    /// The names of all calls, in order.
    pub fn call_names(&self) -> Vec<&'static str> {
        self.shared.state().call_names.clone()
    }

    pub fn set_network_down(&self, down: bool) {
        self.shared.state().is_network_down = down;
    }

    /// Sets the addresses of sandboxes that are created from now on.
    pub fn set_sandbox_addresses(&self, addresses: &[&str]) {
        self.shared.state().addresses = addresses.iter().map(ToString::to_string).collect();
    }

    /// Makes every running container of this name exit with this code.
    pub fn crash(&self, container: &str, code: i32) {
        self.crash_with_message(container, code, "");
    }

    /// The same, with this message in the container's status.
    pub fn crash_with_message(&self, container: &str, code: i32, message: &str) {
        let mut state = self.shared.state();
        state.advance_to_now(&self.shared);
        let now = (self.shared.now)();
        let FakeRuntimeState { containers, events, .. } = &mut *state;
        for created in containers.values_mut() {
            if created.record.name == container && created.record.state == ContainerState::Running {
                mark_exited(created, code, now);
                message.clone_into(&mut created.record.message);
                events.push_exit(&created.record, &created.uid);
            }
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Kills every sandbox and its containers; only the sandboxes' events are sent.
    pub fn kill_sandboxes(&self) {
        let mut state = self.shared.state();
        let now = (self.shared.now)();
        let FakeRuntimeState { sandboxes, containers, events, .. } = &mut *state;
        for sandbox in sandboxes.values_mut().filter(|sandbox| sandbox.ready) {
            sandbox.ready = false;
            events.push(RuntimeEventKind::Stopped, &sandbox.id, &sandbox.uid);
        }
        for created in containers.values_mut() {
            if created.record.state == ContainerState::Running {
                mark_exited(created, 137, now);
            }
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Forgets every sandbox and container without an event, as a reboot of the machine does.
    pub fn forget_all(&self) {
        let mut state = self.shared.state();
        state.sandboxes.clear();
        state.containers.clear();
    }

    /// Makes the state of the running containers of this name unknown.
    pub fn make_state_unknown(&self, container: &str) {
        let mut state = self.shared.state();
        let FakeRuntimeState { containers, events, .. } = &mut *state;
        for created in containers.values_mut() {
            if created.record.name == container && created.record.state == ContainerState::Running {
                created.record.state = ContainerState::Unknown;
                events.push(RuntimeEventKind::Stopped, &created.record.id, &created.uid);
            }
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Adds a sandbox that the agent under test did not create.
    pub fn insert_sandbox(&self, record: SandboxRecord) {
        self.shared.state().sandboxes.insert(record.id.clone(), record);
    }

    pub fn insert_container(&self, uid: &str, record: ContainerRecord) {
        let behaviour = Behaviour::RunsForEver;
        let created = CreatedContainer { uid: uid.to_owned(), behaviour, exits_at: None, record };
        self.shared.state().containers.insert(created.record.id.clone(), created);
    }

    /// Mutating calls, in order: `run_sandbox u1`, `start_container main#0`, …
    pub fn calls(&self) -> Vec<String> {
        self.shared.state().calls.clone()
    }

    /// The sandbox configurations that pulls were made for, in order.
    pub fn pull_sandbox_configs(&self) -> Vec<Option<SandboxConfig>> {
        self.shared.state().pull_sandbox_configs.clone()
    }

    /// The variables of the container of that name that was created last.
    pub fn environment(&self, container: &str) -> Vec<(String, String)> {
        self.shared.state().environments.get(container).cloned().unwrap_or_default()
    }

    pub fn containers(&self) -> Vec<ContainerRecord> {
        let mut state = self.shared.state();
        state.advance_to_now(&self.shared);
        state.containers.values().map(|created| created.record.clone()).collect()
    }

    pub fn sandboxes(&self) -> Vec<SandboxRecord> {
        self.shared.state().sandboxes.values().cloned().collect()
    }
}
