//! The limit of each kind of call.

use std::time::Duration;

use cri_wire::v1::{CheckpointContainerRequest, ExecSyncRequest, StopContainerRequest};

use super::{CallLimits, EXEC_LIMIT, PULL_LIMIT, checkpoint, exec, ordinary, pull, sandbox, stop};

const LIMITS: CallLimits = CallLimits { request: Duration::from_secs(120), pull: PULL_LIMIT };

fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn ordinary_calls_have_fixed_limits() {
    assert_eq!(CallLimits::default(), LIMITS);
    assert_eq!(ordinary(&(), &LIMITS), secs(120));
    assert_eq!(sandbox(&(), &LIMITS), secs(240));
    assert_eq!(pull(&(), &LIMITS), secs(3600));
}

#[test]
fn a_stop_has_its_grace_on_top() {
    let stop_with =
        |timeout| stop(&StopContainerRequest { container_id: String::new(), timeout }, &LIMITS);
    assert_eq!(stop_with(30), secs(150));
    assert_eq!(stop_with(0), secs(120));
    assert_eq!(stop_with(-1), secs(120));
    assert!(stop_with(i64::MAX) > secs(1_000_000));
}

#[test]
fn an_exec_without_timeout_gets_the_default_exec_limit() {
    let exec_with = |timeout| exec(&ExecSyncRequest { timeout, ..Default::default() }, &LIMITS);
    assert_eq!(exec_with(5), secs(125));
    assert_eq!(exec_with(0), EXEC_LIMIT);
    assert_eq!(exec_with(-5), EXEC_LIMIT);
    assert!(exec_with(100_000) > EXEC_LIMIT, "its own time counts");
}

#[test]
fn a_checkpoint_has_the_longer_of_the_two() {
    let checkpoint_with = |timeout| {
        checkpoint(&CheckpointContainerRequest { timeout, ..Default::default() }, &LIMITS)
    };
    assert_eq!(checkpoint_with(10), secs(120));
    assert_eq!(checkpoint_with(300), secs(300));
}
