//! Events applied to the memory.

use crate::input::{ActionOutcome, PodEffects, PodInput};
use crate::testing::PlanCase;

mod actions;
mod golden;
mod inputs;
mod probing;
mod recovery;

fn apply_input(case: &mut PlanCase, input: &PodInput<'_>) -> PodEffects {
    let desired = case.desired.clone();
    case.memory.apply_input(&desired, input, case.now)
}

fn event_texts(emitted: &PodEffects) -> Vec<String> {
    emitted
        .events
        .iter()
        .map(|event| {
            let about = event.field_path.as_deref().unwrap_or("pod");
            format!("{:?} {} {about} {}", event.kind, event.reason, event.message)
        })
        .collect()
}

/// Plans, begins the plan's only action, and finishes it with this outcome.
fn carry_out(case: &mut PlanCase, outcome: ActionOutcome) -> PodEffects {
    let plan = case.plan();
    apply_input(case, &PodInput::Planned(&plan));
    let action = plan.actions.first().expect("an action").clone();
    apply_input(case, &PodInput::ActionBegun(&action));
    apply_input(case, &PodInput::Ended { key: action.key(), outcome })
}
