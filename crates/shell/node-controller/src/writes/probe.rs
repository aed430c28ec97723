//! Reads some leases past all caches and watches, to check that the watch delivers everything.
//!
//! Rule: a response counts from the time at which the request was sent. One request without a
//! response leaves all unproven. Decides nothing.

use node_health::{ControllerTime, RemoteTime};
use tokio::task::JoinSet;

use super::{NodeTarget, node};
use crate::api_gate::{ApiGate, RequestError};

/// The leases read.
#[derive(Debug)]
pub(crate) struct Probed {
    pub(crate) sent: ControllerTime,
    pub(crate) found: Vec<(NodeTarget, RemoteTime)>,
    pub(crate) failure: Option<RequestError>,
}

pub(crate) async fn probe(api_gate: &ApiGate, nodes: Vec<NodeTarget>) -> Probed {
    let sent = api_gate.now();
    let mut questions = JoinSet::new();
    for target in nodes {
        let api_gate = api_gate.clone();
        questions.spawn(async move {
            let answer = node::renewed(&api_gate, &target.name).await;
            (target, answer)
        });
    }
    let mut probed = Probed { sent, found: Vec::new(), failure: None };
    while let Some(answer) = questions.join_next().await {
        match answer {
            Ok((target, Ok(Some(renewed)))) => probed.found.push((target, renewed)),
            Ok((_, Ok(None))) => {}
            Ok((_, Err(failure))) => probed.failure = Some(failure),
            Err(error) => probed.failure = Some(RequestError::Unreadable(error.to_string())),
        }
    }
    probed
}
