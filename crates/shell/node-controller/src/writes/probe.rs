//! Reads some leases past all caches and watches, to check that the watch delivers everything.
//!
//! Rule: a response counts from the time at which the request was sent. One request without a
//! response leaves all unproven. Decides nothing.

use node_health::{Moment, Stamp};
use tokio::task::JoinSet;

use super::{Target, node};
use crate::gate::{Failure, Gate};

/// The leases read.
#[derive(Debug)]
pub(crate) struct Probed {
    pub(crate) sent: Moment,
    pub(crate) found: Vec<(Target, Stamp)>,
    pub(crate) failure: Option<Failure>,
}

pub(crate) async fn probe(gate: &Gate, nodes: Vec<Target>) -> Probed {
    let sent = gate.now();
    let mut questions = JoinSet::new();
    for target in nodes {
        let gate = gate.clone();
        questions.spawn(async move {
            let answer = node::renewed(&gate, &target.name).await;
            (target, answer)
        });
    }
    let mut probed = Probed { sent, found: Vec::new(), failure: None };
    while let Some(answer) = questions.join_next().await {
        match answer {
            Ok((target, Ok(Some(renewed)))) => probed.found.push((target, renewed)),
            Ok((_, Ok(None))) => {}
            Ok((_, Err(failure))) => probed.failure = Some(failure),
            Err(error) => probed.failure = Some(Failure::Unreadable(error.to_string())),
        }
    }
    probed
}
