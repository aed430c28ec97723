//! Back-off and names as tables; then random histories: at rest the registered plugins are those
//! whose sockets exist.

use std::collections::BTreeSet;

use ports::plugins::SocketIdentity;
use proptest::prelude::*;

use super::*;

fn scan(sockets: &[(&str, u64)]) -> PluginDirScan {
    let identity = |inode: &u64| SocketIdentity { inode: *inode, created: 0 };
    PluginDirScan {
        sockets: sockets.iter().map(|(path, it)| ((*path).to_owned(), identity(it))).collect(),
        ..PluginDirScan::default()
    }
}

fn named(name: &str) -> StepOutcome {
    StepOutcome::Introduced(PluginDescription {
        plugin_type: "CSIPlugin".to_owned(),
        name: name.to_owned(),
        ..PluginDescription::default()
    })
}

fn failure() -> StepOutcome {
    StepOutcome::Failed("no".to_owned())
}

const NOW: Duration = Duration::from_secs(100);

#[test]
fn back_off_doubles_up_to_two_minutes() {
    let cases = [(1, 500), (2, 1_000), (3, 2_000), (8, 64_000), (9, 122_000), (u32::MAX, 122_000)];
    for (failures, millis) in cases {
        assert_eq!(back_off(failures), Duration::from_millis(millis), "{failures} failures");
    }
}

#[test]
fn a_failed_step_is_tried_again_when_it_is_due_and_not_before() {
    let mut registry = PluginRegistry::default();
    registry.scanned(&scan(&[("/a", 1)]), NOW);
    assert_eq!(registry.finished("/a", failure(), NOW), []);
    let due = NOW + FIRST_BACK_OFF;
    assert_eq!(registry.next_try(), Some(due));
    assert_eq!(registry.elapsed(due - Duration::from_millis(1)), []);
    let again =
        RegistryAction::Start { socket: "/a".to_owned(), step: RegistrationStep::Introduce };
    assert_eq!(registry.elapsed(due), [again]);
    assert_eq!(registry.next_try(), None);
}

#[test]
fn one_that_was_rejected_for_its_name_follows_when_the_name_is_free() {
    let mut registry = PluginRegistry::default();
    registry.scanned(&scan(&[("/first", 1), ("/other", 3), ("/second", 2)]), NOW);
    registry.finished("/first", named("disks"), NOW);
    for _ in 0..3 {
        registry.finished("/first", StepOutcome::Succeeded, NOW);
    }
    for (socket, name) in [("/second", "disks"), ("/other", "more")] {
        registry.finished(socket, named(name), NOW);
        registry.finished(socket, failure(), NOW);
        registry.finished(socket, StepOutcome::Succeeded, NOW);
    }
    registry.scanned(&scan(&[("/other", 3), ("/second", 2)]), NOW);
    let actions = registry.finished("/first", StepOutcome::Succeeded, NOW);
    let again =
        RegistryAction::Start { socket: "/second".to_owned(), step: RegistrationStep::Introduce };
    assert_eq!(actions, [again]);
}

#[test]
fn a_result_for_a_forgotten_socket_changes_nothing() {
    let mut registry = PluginRegistry::default();
    registry.scanned(&scan(&[("/a", 1)]), NOW);
    let abort = RegistryAction::Abort { socket: "/a".to_owned() };
    assert_eq!(registry.scanned(&scan(&[]), NOW), [abort]);
    assert_eq!(registry.finished("/a", named("disks"), NOW), []);
    assert_eq!(registry.plugins().count(), 0);
}

/// An event of a random history. Numbers choose among what is there at that time.
#[derive(Clone, Debug)]
enum HistoryEvent {
    /// A socket appears, or is replaced by a new one.
    Create(usize),
    Remove(usize),
    Scan,
    /// A step in flight ends; `fails`: with an error.
    Finish {
        which: usize,
        fails: bool,
    },
    Elapse(u64),
    /// The agent is started again: the machine and its steps are lost, the handlers too.
    Restart,
    /// The registry's task is started again: the machine and its steps are lost.
    Resume,
}

fn history_event() -> impl Strategy<Value = HistoryEvent> {
    prop_oneof![
        3 => (0_usize..4).prop_map(HistoryEvent::Create),
        2 => (0_usize..4).prop_map(HistoryEvent::Remove),
        4 => Just(HistoryEvent::Scan),
        12 => (0_usize..8, prop::bool::weighted(0.2))
            .prop_map(|(which, fails)| HistoryEvent::Finish { which, fails }),
        2 => (0_u64..200_000).prop_map(HistoryEvent::Elapse),
        1 => Just(HistoryEvent::Restart),
        1 => Just(HistoryEvent::Resume),
    ]
}

/// The world around the registry: a directory, steps in flight, a handler.
#[derive(Default)]
struct World {
    registry: PluginRegistry,
    dir: BTreeMap<String, SocketIdentity>,
    in_flight: BTreeMap<String, RegistrationStep>,
    /// Name and inode of what the handler holds: each plugin introduces itself by both.
    held: BTreeMap<String, (String, PluginDescription)>,
    inode: u64,
    now: Duration,
}

impl World {
    fn run(&mut self, actions: Vec<RegistryAction>) {
        for action in actions {
            match action {
                RegistryAction::Start { socket, step } => {
                    let replaced = self.in_flight.insert(socket, step);
                    assert!(
                        !matches!(
                            replaced,
                            Some(RegistrationStep::Register(_) | RegistrationStep::Deregister(_))
                        ),
                        "a handler's step was aborted: {replaced:?}"
                    );
                }
                RegistryAction::Abort { socket } => {
                    self.in_flight.remove(&socket);
                }
            }
        }
    }

    fn finish(&mut self, socket: &str, fails: bool) {
        let Some(step) = self.in_flight.remove(socket) else { return };
        let outcome = match (&step, fails) {
            (_, true) => StepOutcome::Failed("no".to_owned()),
            (RegistrationStep::Introduce, false) => match self.dir.get(socket) {
                Some(identity) => named(&format!("{socket}-{}", identity.inode)),
                None => StepOutcome::Failed("nothing listens".to_owned()),
            },
            (RegistrationStep::Register(plugin), false) => {
                let entry = (socket.to_owned(), plugin.clone());
                let earlier = self.held.insert(plugin.name.clone(), entry);
                assert_eq!(earlier, None, "registered twice");
                StepOutcome::Succeeded
            }
            (RegistrationStep::Deregister(plugin), false) => {
                assert!(self.held.remove(&plugin.name).is_some(), "{plugin:?} was not registered");
                StepOutcome::Succeeded
            }
            (RegistrationStep::Validate(_) | RegistrationStep::Notify(_), false) => {
                StepOutcome::Succeeded
            }
        };
        let actions = self.registry.finished(socket, outcome, self.now);
        self.run(actions);
    }

    fn scan(&mut self) {
        let scan = PluginDirScan { sockets: self.dir.clone(), ..PluginDirScan::default() };
        let actions = self.registry.scanned(&scan, self.now);
        self.run(actions);
    }

    fn happen(&mut self, event: &HistoryEvent) {
        match *event {
            HistoryEvent::Create(which) => {
                self.inode += 1;
                let identity = SocketIdentity { inode: self.inode, created: 0 };
                self.dir.insert(format!("/{which}"), identity);
            }
            HistoryEvent::Remove(which) => {
                self.dir.remove(&format!("/{which}"));
            }
            HistoryEvent::Scan => self.scan(),
            HistoryEvent::Finish { which, fails } => {
                let sockets: Vec<String> = self.in_flight.keys().cloned().collect();
                if let Some(socket) = sockets.get(which % sockets.len().max(1)) {
                    self.finish(&socket.clone(), fails);
                }
            }
            HistoryEvent::Elapse(millis) => {
                self.now += Duration::from_millis(millis);
                let actions = self.registry.elapsed(self.now);
                self.run(actions);
            }
            HistoryEvent::Restart => {
                self.registry = PluginRegistry::default();
                self.in_flight.clear();
                self.held.clear();
                self.scan();
            }
            HistoryEvent::Resume => {
                self.registry = PluginRegistry::resume(self.held.values().cloned());
                self.in_flight.clear();
                self.scan();
            }
        }
    }

    /// From now on everything works; until nothing is in flight and nothing is due.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            self.scan();
            let sockets: Vec<String> = self.in_flight.keys().cloned().collect();
            for socket in &sockets {
                self.finish(socket, false);
            }
            if let Some(at) = self.registry.next_try() {
                self.now = self.now.max(at);
                let actions = self.registry.elapsed(self.now);
                self.run(actions);
            } else if self.in_flight.is_empty() {
                return;
            }
        }
        panic!("does not come to rest: {:?}", self.registry.plugins().collect::<Vec<_>>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn at_rest_the_registered_plugins_are_those_whose_sockets_exist(
        history in prop::collection::vec(history_event(), 0..80)
    ) {
        let mut world = World::default();
        for event in history {
            world.happen(&event);
        }
        world.settle();
        let live: BTreeSet<String> =
            world.dir.iter().map(|(path, it)| format!("{path}-{}", it.inode)).collect();
        let held: BTreeSet<String> = world.held.keys().cloned().collect();
        prop_assert_eq!(&held, &live);
        let registered: BTreeSet<String> = world
            .registry
            .plugins()
            .map(|plugin| match plugin.phase {
                PluginPhase::Registered(description) => description.name,
                other => format!("{} is {other:?}", plugin.socket),
            })
            .collect();
        prop_assert_eq!(&registered, &live);
    }
}
