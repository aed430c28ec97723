//! Events applied to the memory.

use crate::happening::{Happening, Outcome, Told};
use crate::testing::Case;

mod actions;
mod golden;
mod happenings;
mod probing;
mod recovery;

fn absorb(case: &mut Case, happening: &Happening<'_>) -> Told {
    let desired = case.desired.clone();
    case.memory.absorb(&desired, happening, case.now)
}

fn said(told: &Told) -> Vec<String> {
    told.events
        .iter()
        .map(|event| {
            let about = event.field_path.as_deref().unwrap_or("pod");
            format!("{:?} {} {about} {}", event.kind, event.reason, event.message)
        })
        .collect()
}

/// Plans, begins the plan's only action, and finishes it with this outcome.
fn carry_out(case: &mut Case, outcome: Outcome) -> Told {
    let plan = case.plan();
    absorb(case, &Happening::Planned(&plan));
    let action = plan.actions.first().expect("an action").clone();
    absorb(case, &Happening::Began(&action));
    absorb(case, &Happening::Ended { key: action.key(), outcome })
}
