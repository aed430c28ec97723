//! Invariants of the planner on arbitrary views: it is total, deterministic, bounded, never starts
//! what runs, and never starts what terminates.

use proptest::prelude::*;

use ports::runtime_objects::ContainerState;

use crate::action::Action;
use crate::input::{ActionOutcome, PodInput, ProbeKind, ProbeResult, StartFailure, StartStage};
use crate::memory::PodMemory;
use crate::plan::PodStage;
use crate::testing::{PlanCase, at};
use crate::view::DesiredState;

fn container_seen(name: &'static str) -> impl Strategy<Value = String> {
    let state = prop_oneof![
        Just("running"),
        Just("created"),
        Just("unknown"),
        Just("exited 0"),
        Just("exited 1"),
        Just("exited 3"),
        Just("exited 137 oom=5"),
    ];
    let extra = prop_oneof![Just(""), Just(" changed"), Just(" nohash"), Just(" in=s9")];
    (0..4u32, state, extra, -700..5i64, -700..5i64).prop_map(
        move |(count, state, extra, started, done)| {
            format!("{name}#{count} {state}{extra} started={started} done={done}")
        },
    )
}

fn seen() -> impl Strategy<Value = String> {
    let sandbox = prop_oneof![
        Just(String::new()),
        Just("s0".to_owned()),
        Just("s0 dead".to_owned()),
        Just("s0; s1".to_owned()),
        Just("s0 dead; s1 noip".to_owned()),
        Just("s0 hostnet".to_owned()),
    ];
    let any = prop_oneof![
        container_seen("one"),
        container_seen("side"),
        container_seen("web"),
        container_seen("log"),
        container_seen("eph"),
        container_seen("stranger"),
    ];
    (sandbox, proptest::collection::vec(any, 0..7)).prop_map(|(sandbox, containers)| {
        let mut all = vec![sandbox];
        all.extend(containers);
        all.join("; ")
    })
}

fn pod() -> impl Strategy<Value = String> {
    let policy = prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")];
    let web = prop_oneof![
        Just("app:web"),
        Just("app:web(live,ready,startup,pre,post)"),
        Just("app:web(policy=Never,in3=RestartAllContainers)"),
        Just("app:web(policy=OnFailure,notin0=Restart)"),
    ];
    let more = prop_oneof![
        Just(""),
        Just("static"),
        Just("deadline=100"),
        Just("host"),
        Just("deletion=0"),
        Just("grace=-5"),
    ];
    let inits = prop_oneof![
        Just(""),
        Just("init:one"),
        Just("side:side(startup,pre)"),
        Just("side:side(startup,post)"),
        Just("init:one side:side"),
        Just("side:side(live) init:one(policy=Never)"),
    ];
    (policy, inits, web, more).prop_map(|(policy, inits, web, more)| {
        format!("{policy} {inits} {web} app:log eph:eph(target=web) {more}")
    })
}

fn remembered() -> impl Strategy<Value = String> {
    let one = prop_oneof![
        Just("startup web web0"),
        Just("startup side side0"),
        Just("ready web web1"),
        Just("failed web web0 liveness"),
        Just("failed side side0 startup"),
        Just("backoff web 300 -10"),
        Just("backoff one 10 -9"),
        Just("killed web web1"),
        Just("hookfailed web web0"),
        Just("hookfailed side side0"),
        Just("stopping web web0 -5"),
        Just("hooked side side0 9"),
        Just("stopdone web web0 -2"),
        Just("trouble web CreateContainerError 3"),
        Just("was web running 2"),
        Just("was log exited 1 0"),
        Just("was one waiting 1"),
        Just("ending -10 30"),
        Just("clearing -10 30"),
        Just("verdict Failed"),
        Just("verdict Succeeded"),
        Just("cleaned some"),
        Just("cleaned all"),
        Just("stopped s0"),
        Just("condition AllContainersRestarting True -5"),
        Just("condition Initialized True -5"),
        Just("flight -1 start web 1"),
        Just("flight -1 start side 0"),
        Just("flight -2 stop web web0 30"),
        Just("flight -2 hook side side0 30"),
        Just("flight -2 sandbox 1"),
        Just("flight -2 prepare"),
        Just("failure web 5"),
        Just("failure sandbox -5"),
        Just("unprepared"),
        Just("new"),
    ];
    proptest::collection::vec(one, 0..8).prop_map(|all| all.join("; "))
}

fn case() -> impl Strategy<Value = String> {
    let desired_state = prop_oneof![
        4 => Just(""),
        1 => Just("deleted"),
        1 => Just("removed grace=3"),
        1 => Just("orphan"),
        1 => Just("evicted disruption=X"),
    ];
    let facts = prop_oneof![
        4 => Just(""),
        1 => Just("noimages"),
        1 => Just("nonetwork"),
        1 => Just("volumes pending v"),
        1 => Just("image web 0 ErrImagePull 4 no; unheard"),
        1 => Just("norules; norestartall"),
        1 => Just("pending"),
        1 => Just("rejected X y"),
        1 => Just("cap 1; log web 9"),
    ];
    (pod(), seen(), remembered(), facts, desired_state).prop_map(
        |(pod, seen, memory, facts, desired_state)| {
            format!(
                "pod: {pod}\nseen: {seen}\nmemory: {memory}\nfacts: {facts}\nwish: {desired_state}"
            )
        },
    )
}

fn outcome() -> impl Strategy<Value = ActionOutcome> {
    prop_oneof![
        Just(ActionOutcome::Aborted),
        Just(ActionOutcome::Done(Ok(()))),
        Just(ActionOutcome::Done(Err("no".to_owned()))),
        Just(ActionOutcome::SandboxRun(Ok("s5".to_owned()))),
        Just(ActionOutcome::SandboxRun(Err("no".to_owned()))),
        Just(ActionOutcome::ContainerStarted(Ok("c5".to_owned()))),
        Just(ActionOutcome::ContainerStarted(Err(StartFailure {
            stage: StartStage::PostStart,
            message: String::new(),
            id: None,
        }))),
        Just(ActionOutcome::ContainerStopped { hook_failed: true, result: Ok(()) }),
        Just(ActionOutcome::ContainerStopped { hook_failed: false, result: Err("no".to_owned()) }),
    ]
}

fn assert_invariants(case: &PlanCase, text: &str) {
    let plan = case.plan();
    assert_eq!(case.plan(), plan, "the same view, another plan\n{text}");
    let mut keys: Vec<_> = plan.actions.iter().map(Action::key).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), plan.actions.len(), "two actions of one key\n{text}");
    for action in &plan.actions {
        let busy = case.memory.is_in_flight(&action.key());
        assert_eq!(busy, action.replaces(), "a key in flight\n{text}");
        let starts = matches!(action, Action::StartContainer { .. } | Action::RunSandbox { .. });
        let ends = matches!(case.desired.desired_state, DesiredState::End(_))
            || plan.stage > PodStage::Running
            || case.memory.persisted.termination.is_some()
            || case.memory.persisted.terminal_status.is_some();
        assert!(!(starts && ends), "{action:?} of a pod that ends\n{text}");
        if let Action::StartContainer { name, .. } = action {
            let runs = case.observed.containers.iter().any(|each| {
                each.record.name == *name && each.record.state == ContainerState::Running
            });
            let newest_runs = runs
                && crate::containers_by_name::ContainersByName::new(&case.observed)
                    .latest(name)
                    .is_some_and(|record| record.state == ContainerState::Running);
            assert!(!newest_runs, "starts {name}, which runs\n{text}");
        }
    }
    assert!(plan.wake_at.is_none_or(|wake| wake > case.now), "wakes in the past\n{text}");
    let ready = plan
        .status
        .condition("Ready")
        .is_some_and(|it| it.status == pod_model::pod::status::ConditionStatus::True);
    let silent = plan.stage == PodStage::Running && !ready && plan.waiting_on.is_none();
    assert!(!silent, "waits in silence\n{text}");
    if let Some(terminal_status) = &case.memory.persisted.terminal_status {
        assert_eq!(plan.status.phase, terminal_status.phase(), "left its phase\n{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plans_are_total_repeatable_and_bounded(text in case()) {
        assert_invariants(&PlanCase::read(&text), &text);
    }

    #[test]
    fn memory_accepts_inputs_in_any_order(
        text in case(),
        ends in proptest::collection::vec((0..3u8, outcome()), 0..6),
        saved in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut case = PlanCase::read(&text);
        let desired = case.desired.clone();
        for (step, (which, outcome)) in ends.into_iter().enumerate() {
            case.now = at(i64::try_from(step).unwrap_or(0));
            let plan = case.plan();
            case.memory.apply_input(&desired, &PodInput::Planned(&plan), case.now);
            for action in &plan.actions {
                case.memory.apply_input(&desired, &PodInput::ActionBegun(action), case.now);
            }
            let key = match which {
                0 => crate::action::ActionKey::Pod,
                1 => crate::action::ActionKey::Sandbox,
                _ => crate::action::ActionKey::Container("web".to_owned()),
            };
            case.memory.apply_input(&desired, &PodInput::Ended { key, outcome }, case.now);
            let probe = PodInput::Probe {
                container: "web".to_owned(),
                container_id: "web0".to_owned(),
                kind: ProbeKind::Startup,
                result: ProbeResult::Failure(String::new()),
            };
            case.memory.apply_input(&desired, &probe, case.now);
            let observed = case.observed.clone();
            case.memory.apply_input(&desired, &PodInput::Observed(&observed), case.now);
            case.observed.as_of = at(i64::try_from(step).unwrap_or(0) + 1);
            assert_invariants(&case, &text);
        }
        let plan = case.plan();
        case.memory.apply_input(&desired, &PodInput::Planned(&plan), case.now);
        let observed = case.observed.clone();
        case.memory.apply_input(&desired, &PodInput::Observed(&observed), case.now);
        let again = PodMemory::recover(
            &desired, &case.observed, Some(&case.memory.to_saved()), &case.facts.settings, case.now,
        );
        prop_assert_eq!(&again.persisted, &case.memory.persisted);
        PodMemory::recover(&desired, &case.observed, Some(&saved), &case.facts.settings, case.now);
    }

    /// Once a pod terminates, whatever else happens, it is not started again.
    #[test]
    fn a_terminating_pod_is_never_started_again(text in case()) {
        let mut case = PlanCase::read(&text);
        let desired = case.desired.clone();
        let plan = case.plan();
        case.memory.apply_input(&desired, &PodInput::Planned(&plan), case.now);
        if plan.stage > PodStage::Running {
            case.desired.desired_state = DesiredState::Run;
            case.facts.admission = crate::view::Admission::Admitted;
            prop_assert!(case.plan().stage > PodStage::Running);
        }
    }

    /// What was reported once and saved is reported again by a restarted agent.
    #[test]
    fn an_agent_restart_reports_nothing_twice(text in case()) {
        let mut case = PlanCase::read(&text);
        case.memory.in_flight.clear();
        case.memory.failures.clear();
        case.memory.transient.clear();
        let desired = case.desired.clone();
        let observed = case.observed.clone();
        for _ in 0..2 {
            case.memory.apply_input(&desired, &PodInput::Observed(&observed), case.now);
            let plan = case.plan();
            case.memory.apply_input(&desired, &PodInput::Planned(&plan), case.now);
        }
        let before = case.plan();
        let prepared = case.memory.prepared;
        case.memory = PodMemory::recover(
            &desired, &case.observed, Some(&case.memory.to_saved()), &case.facts.settings, case.now,
        );
        case.memory.prepared = prepared;
        let after = case.plan();
        prop_assert_eq!(&after.status, &before.status);
        prop_assert_eq!(&after.actions, &before.actions);
    }
}
