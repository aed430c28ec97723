//! The planner of one pod: desired state, observed state, memory and time → the next actions.
//!
//! ```text
//!  DesiredPod ─┐                      ┌─> actions (each under a key; one per key in flight)
//!  ObservedPod ┼─> plan(view) ────────┼─> wants   (images, volumes, probes)
//!  PodMemory  ─┤                      ├─> status  (v1 PodStatus)
//!  Facts, now ─┘                      └─> wake_at, waiting_on, stage
//!
//!  PodMemory::absorb(desired, happening, now) ─> events, timeline marks, whether to save
//! ```
//!
//! Rules: pure and total; the memory changes only by `absorb` and `recover`; nothing is started on
//! an observation that is older than the end of the last action (`ObservedPod::as_of`); once a pod
//! terminates nothing starts. Which adapter executes an action, and where events go, is decided by
//! the shell.
//!
//! How a worker uses it (the shell depends on this contract; change it only by agreement):
//!
//! 1. `PodMemory::recover` once (with an observation), then for each change of the desired state,
//!    the observation or the facts, and at `wake_at`: `plan`, then
//!    `absorb(Happening::Planned(&plan))`, then for each action `absorb(Happening::Began(&action))`
//!    and execute it.
//! 2. `absorb(Happening::Ended { .. })` when it is over; then observe the pod again, always, and
//!    `absorb(Happening::Observed(&observed))`. `as_of` is when the observation was begun, and is
//!    later than the end of the action.
//! 3. An action with `replaces` comes while another of its key is in flight: abort that one first,
//!    and send no `Ended` for it.
//! 4. Where `Told::save` is `BeforeGoingOn`, the memory is on disk before the next action begins. A
//!    container that is to start may be created meanwhile; it is started only after that.
//! 5. Probe results go to `absorb`; the probe scheduler stops what is no longer in `Wants::probes`.

mod action;
mod back_off;
mod ending;
mod happening;
mod kill_notes;
mod lineup;
mod memory;
mod plan;
mod probes;
mod restart;
mod running;
mod sandbox;
mod scene;
mod status;
mod stop;
mod time;
mod view;
mod waiting;
mod words;

#[cfg(test)]
mod laws;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod testing;

pub use action::{Action, ActionKey, ContainerKind, KillReason};
pub use happening::{
    EventKind, Happening, Mark, Outcome, PodEvent, ProbeKind, ProbeResult, Save, StartFailure,
    StartStage, Told,
};
pub use kill_notes::{MemoryKillNote, MemoryKillNotes};
pub use memory::PodMemory;
pub use plan::{ImageWant, PodPlan, ProbeWant, Stage, Waiting, Wants, plan};
pub use sandbox::sandbox_attempt;
pub use view::{
    Admission, DesiredPod, Disruption, EndCause, EndWish, Facts, ImageFact, ImageState,
    ObservedContainer, ObservedPod, Settings, View, VolumesFact, Wish,
};
