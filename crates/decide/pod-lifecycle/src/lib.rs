//! The planner of one pod: desired state, observed state, memory and time → the next actions.
//!
//! ```text
//!  DesiredPod ─┐                      ┌─> actions (each under a key; one per key in flight)
//!  ObservedPod ┼─> plan(view) ────────┼─> requirements   (images, volumes, probes)
//!  PodMemory  ─┤                      ├─> status  (v1 PodStatus)
//!  LifecycleFacts, now ─┘                      └─> wake_at, waiting_on, stage
//!
//!  PodMemory::apply_input(desired, input, now) ─> events, timeline marks, whether to save
//! ```
//!
//! Rules: pure and total; the memory changes only by `apply_input` and `recover`; nothing is started on
//! an observation that is older than the end of the last action (`ObservedPod::as_of`); once a pod
//! terminates nothing starts. Which adapter executes an action, and where events go, is decided by
//! the shell.
//!
//! How a worker uses it (the shell depends on this contract; change it only by agreement):
//!
//! 1. `PodMemory::recover` once (with an observation), then for each change of the desired state,
//!    the observation or the facts, and at `wake_at`: `plan`, then
//!    `apply_input(PodInput::Planned(&plan))`, then for each action `apply_input(PodInput::ActionBegun(&action))`
//!    and execute it.
//! 2. `apply_input(PodInput::Ended { .. })` when it is over; then observe the pod again, always, and
//!    `apply_input(PodInput::Observed(&observed))`. `as_of` is when the observation was begun, and is
//!    later than the end of the action.
//! 3. An action with `replaces` comes while another of its key is in flight: abort that one first,
//!    and send no `Ended` for it.
//! 4. Where `PodEffects::save` is `BeforeNextAction`, the memory is on disk before the next action begins. A
//!    container that is to start may be created meanwhile; it is started only after that.
//! 5. Probe results go to `apply_input`; the probe scheduler stops what is no longer in `Requirements::probes`.

mod action;
pub mod api_status;
mod back_off;
mod containers_by_name;
mod input;
mod memory;
mod oom_kills;
mod plan;
mod plan_context;
mod probes;
mod restart;
mod running;
mod sandbox;
mod status;
mod status_text;
mod stop;
mod termination;
mod time;
mod view;
mod waiting;

#[cfg(test)]
mod invariants;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod testing;

pub use action::{Action, ActionKey, ContainerKind, KillReason};
pub use input::{
    ActionOutcome, EventType, Milestone, PodEffects, PodEvent, PodInput, ProbeKind, ProbeResult,
    SaveUrgency, StartFailure, StartStage,
};
pub use memory::PodMemory;
pub use oom_kills::{OomKillRecord, OomKillRecords};
pub use plan::{PodPlan, PodStage, RequiredImage, RequiredProbe, Requirements, WaitReason, plan};
pub use sandbox::sandbox_attempt;
pub use view::{
    Admission, AttemptImage, DesiredPod, DesiredState, Disruption, ExternalEnd, ImageState,
    LifecycleFacts, ObservedContainer, ObservedPod, PodLifecycleSettings, PodView,
    TerminationCause, TerminationRequest, VolumesState,
};
