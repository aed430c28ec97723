//! Every transition of the table: each phase with each input.

use super::*;

const OLD: SocketIdentity = SocketIdentity { inode: 1, created: 10 };
const NEW: SocketIdentity = SocketIdentity { inode: 1, created: 20 };

fn plugin() -> PluginDescription {
    PluginDescription {
        plugin_type: "CSIPlugin".to_owned(),
        name: "disks.example.com".to_owned(),
        endpoint: "/run/disks.sock".to_owned(),
        versions: vec!["1.0.0".to_owned()],
    }
}

fn failed() -> SocketInput {
    SocketInput::Finished(StepOutcome::Failed("it broke".to_owned()))
}

fn succeeded() -> SocketInput {
    SocketInput::Finished(StepOutcome::Succeeded)
}

fn introduced() -> SocketInput {
    SocketInput::Finished(StepOutcome::Introduced(plugin()))
}

fn machine(phase: PluginPhase, live: Option<SocketIdentity>) -> SocketMachine {
    SocketMachine { phase, live, current: OLD, last_error: None, failures: 3 }
}

/// The phase afterwards in one word, and the effect in one word.
fn words(machine: &SocketMachine, effect: &SocketEffect) -> (&'static str, &'static str) {
    let phase = match &machine.phase {
        PluginPhase::Introducing => "introducing",
        PluginPhase::Validating(_) => "validating",
        PluginPhase::Registering(_) => "registering",
        PluginPhase::Confirming(_) => "confirming",
        PluginPhase::Rejecting(_) => "rejecting",
        PluginPhase::Registered(_) => "registered",
        PluginPhase::Deregistering(_) => "deregistering",
        PluginPhase::Waiting { remembered: None } => "waiting",
        PluginPhase::Waiting { remembered: Some(_) } => "waiting to deregister",
    };
    let effect = match effect {
        SocketEffect::Nothing => "nothing",
        SocketEffect::Start(RegistrationStep::Introduce) => "introduce",
        SocketEffect::Start(RegistrationStep::Validate(_)) => "validate",
        SocketEffect::Start(RegistrationStep::Register(_)) => "register",
        SocketEffect::Start(RegistrationStep::Notify(Ok(()))) => "confirm",
        SocketEffect::Start(RegistrationStep::Notify(Err(_))) => "reject",
        SocketEffect::Start(RegistrationStep::Deregister(_)) => "deregister",
        SocketEffect::Abort => "abort",
        SocketEffect::Forget => "forget",
        SocketEffect::BackOff => "back off",
    };
    (phase, effect)
}

/// Phase, socket at that time, input; phase afterwards, effect.
type MachineRow = (PluginPhase, Option<SocketIdentity>, SocketInput, &'static str, &'static str);

fn check(rows: Vec<MachineRow>) {
    for (phase, live, input, next, effect) in rows {
        let mut subject = machine(phase.clone(), live);
        let happened = subject.advance(input.clone());
        assert_eq!(
            words(&subject, &happened),
            (next, effect),
            "{phase:?} with socket {live:?} gets {input:?}"
        );
    }
}

#[test]
fn a_socket_that_appears_is_asked_its_name() {
    let (subject, effect) = SocketMachine::new(OLD);
    assert_eq!(words(&subject, &effect), ("introducing", "introduce"));
}

#[test]
fn the_socket_stays_goes_or_is_replaced() {
    use PluginPhase as P;
    let same = SocketInput::Present(OLD);
    let other = SocketInput::Present(NEW);
    let gone = SocketInput::Absent;
    let waits = || P::Waiting { remembered: None };
    let owes = || P::Waiting { remembered: Some(plugin()) };
    check(vec![
        (P::Introducing, Some(OLD), same.clone(), "introducing", "nothing"),
        (P::Introducing, Some(OLD), other.clone(), "introducing", "introduce"),
        (P::Introducing, Some(OLD), gone.clone(), "introducing", "abort"),
        (P::Validating(plugin()), Some(OLD), same.clone(), "validating", "nothing"),
        (P::Validating(plugin()), Some(OLD), other.clone(), "introducing", "introduce"),
        (P::Validating(plugin()), Some(OLD), gone.clone(), "validating", "abort"),
        (P::Registering(plugin()), Some(OLD), same.clone(), "registering", "nothing"),
        (P::Registering(plugin()), Some(OLD), other.clone(), "registering", "nothing"),
        (P::Registering(plugin()), Some(OLD), gone.clone(), "registering", "nothing"),
        (P::Confirming(plugin()), Some(OLD), same.clone(), "confirming", "nothing"),
        (P::Confirming(plugin()), Some(OLD), other.clone(), "deregistering", "deregister"),
        (P::Confirming(plugin()), Some(OLD), gone.clone(), "deregistering", "deregister"),
        (P::Rejecting("no".to_owned()), Some(OLD), same.clone(), "rejecting", "nothing"),
        (P::Rejecting("no".to_owned()), Some(OLD), other.clone(), "introducing", "introduce"),
        (P::Rejecting("no".to_owned()), Some(OLD), gone.clone(), "rejecting", "abort"),
        (P::Registered(plugin()), Some(OLD), same.clone(), "registered", "nothing"),
        (P::Registered(plugin()), Some(OLD), other.clone(), "deregistering", "deregister"),
        (P::Registered(plugin()), Some(OLD), gone.clone(), "deregistering", "deregister"),
        (P::Deregistering(plugin()), None, same.clone(), "deregistering", "nothing"),
        (P::Deregistering(plugin()), None, other.clone(), "deregistering", "nothing"),
        (P::Deregistering(plugin()), Some(NEW), gone.clone(), "deregistering", "nothing"),
        (waits(), Some(OLD), same.clone(), "waiting", "nothing"),
        (waits(), Some(OLD), other.clone(), "introducing", "introduce"),
        (waits(), Some(OLD), gone.clone(), "waiting", "forget"),
        (owes(), None, same, "waiting to deregister", "nothing"),
        (owes(), None, other, "waiting to deregister", "nothing"),
        (owes(), Some(NEW), gone, "waiting to deregister", "nothing"),
    ]);
}

#[test]
fn a_step_ends() {
    use PluginPhase as P;
    let waits = || P::Waiting { remembered: None };
    check(vec![
        (P::Introducing, Some(OLD), introduced(), "validating", "validate"),
        (P::Introducing, Some(OLD), succeeded(), "waiting", "back off"),
        (P::Introducing, Some(OLD), failed(), "waiting", "back off"),
        (P::Validating(plugin()), Some(OLD), introduced(), "waiting", "back off"),
        (P::Validating(plugin()), Some(OLD), succeeded(), "registering", "register"),
        (P::Validating(plugin()), Some(OLD), failed(), "rejecting", "reject"),
        (P::Registering(plugin()), Some(OLD), introduced(), "waiting to deregister", "back off"),
        (P::Registering(plugin()), Some(OLD), succeeded(), "confirming", "confirm"),
        (P::Registering(plugin()), Some(NEW), succeeded(), "deregistering", "deregister"),
        (P::Registering(plugin()), None, succeeded(), "deregistering", "deregister"),
        (P::Registering(plugin()), Some(OLD), failed(), "rejecting", "reject"),
        (P::Registering(plugin()), Some(NEW), failed(), "introducing", "introduce"),
        (P::Registering(plugin()), None, failed(), "registering", "forget"),
        (P::Confirming(plugin()), Some(OLD), introduced(), "waiting to deregister", "back off"),
        (P::Confirming(plugin()), Some(OLD), succeeded(), "registered", "nothing"),
        (P::Confirming(plugin()), Some(OLD), failed(), "deregistering", "deregister"),
        (P::Rejecting("no".to_owned()), Some(OLD), introduced(), "waiting", "back off"),
        (P::Rejecting("no".to_owned()), Some(OLD), succeeded(), "waiting", "back off"),
        (P::Rejecting("no".to_owned()), Some(OLD), failed(), "waiting", "back off"),
        (P::Registered(plugin()), Some(OLD), introduced(), "registered", "nothing"),
        (P::Registered(plugin()), Some(OLD), succeeded(), "registered", "nothing"),
        (P::Registered(plugin()), Some(OLD), failed(), "registered", "nothing"),
        (P::Deregistering(plugin()), None, introduced(), "waiting to deregister", "back off"),
        (P::Deregistering(plugin()), None, succeeded(), "deregistering", "forget"),
        (P::Deregistering(plugin()), Some(NEW), succeeded(), "introducing", "introduce"),
        (P::Deregistering(plugin()), Some(OLD), succeeded(), "introducing", "introduce"),
        (P::Deregistering(plugin()), None, failed(), "waiting to deregister", "back off"),
        (P::Deregistering(plugin()), Some(NEW), failed(), "waiting to deregister", "back off"),
        (waits(), Some(OLD), introduced(), "waiting", "nothing"),
        (waits(), Some(OLD), succeeded(), "waiting", "nothing"),
        (waits(), Some(OLD), failed(), "waiting", "nothing"),
    ]);
}

#[test]
fn the_back_off_is_over() {
    use PluginPhase as P;
    let due = SocketInput::Due;
    let owes = || P::Waiting { remembered: Some(plugin()) };
    check(vec![
        (P::Introducing, Some(OLD), due.clone(), "introducing", "nothing"),
        (P::Validating(plugin()), Some(OLD), due.clone(), "validating", "nothing"),
        (P::Registering(plugin()), Some(OLD), due.clone(), "registering", "nothing"),
        (P::Confirming(plugin()), Some(OLD), due.clone(), "confirming", "nothing"),
        (P::Rejecting("no".to_owned()), Some(OLD), due.clone(), "rejecting", "nothing"),
        (P::Registered(plugin()), Some(OLD), due.clone(), "registered", "nothing"),
        (P::Deregistering(plugin()), None, due.clone(), "deregistering", "nothing"),
        (P::Waiting { remembered: None }, Some(OLD), due.clone(), "introducing", "introduce"),
        (owes(), None, due.clone(), "deregistering", "deregister"),
        (owes(), Some(NEW), due, "deregistering", "deregister"),
    ]);
}

#[test]
fn a_failed_confirmation_is_taken_back_and_waits_with_its_error() {
    let mut subject = machine(PluginPhase::Confirming(plugin()), Some(OLD));
    subject.advance(failed());
    assert_eq!(subject.advance(succeeded()), SocketEffect::BackOff);
    assert_eq!(subject.phase, PluginPhase::Waiting { remembered: None });
    assert_eq!(subject.last_error.as_deref(), Some("it broke"));
}

#[test]
fn failures_count_until_it_is_registered_or_replaced() {
    let mut subject = machine(PluginPhase::Introducing, Some(OLD));
    subject.advance(failed());
    assert_eq!(subject.failures, 4);
    subject.advance(SocketInput::Present(NEW));
    assert_eq!((subject.failures, subject.last_error.as_deref()), (0, None));
    let mut subject = machine(PluginPhase::Confirming(plugin()), Some(OLD));
    subject.last_error = Some("earlier".to_owned());
    subject.advance(succeeded());
    assert_eq!((subject.failures, subject.last_error), (0, None));
}
