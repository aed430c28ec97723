//! Policies of the node, pure: facts and wishes in, verdicts out. Admission, eviction and the like
//! are planned here; so far there is the question whether the agent may start on this machine.

mod start_up;

pub use start_up::{MachineFacts, Refusal, StartWishes, refusals};
