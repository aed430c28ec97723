//! The owner task of image pulls.

use super::token_bucket::TokenBucket;
use super::{PullJob, PullJobReceiver, PullKey, PullLimits, Pulled, PulledImageStore};
use crate::keyed_tasks::{KeyedTasks, Panicked};
use node_policy::image_access::CredentialOwner;
use ports::PodRuntime;
use ports::container_runtime::ContainerRuntimeError;
use ports::runtime_objects::{ImageSpec, PullRequest};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, oneshot};
use tokio::time::Instant;

/// The adapter ends a pull that takes too long, the runtime one that receives nothing. This timeout
/// is for a call that does not return.
const PULL_TIMEOUT: Duration = Duration::from_secs(6 * 3600);

#[cfg(test)]
mod tests;

type PullResponder = oneshot::Sender<Result<Pulled, String>>;

/// A pull, and its on-disk records.
struct Pull {
    request: PullRequest,
    named: String,
    owner: CredentialOwner,
}

struct PullQueue {
    limits: PullLimits,
    token_bucket: TokenBucket,
    /// In order of the first request.
    order: VecDeque<PullKey>,
    /// All waiting requests, in order.
    waiting: HashMap<PullKey, Vec<PullJob>>,
    running: HashMap<PullKey, Vec<PullResponder>>,
}

/// Pulls for ever. The orders are behind a lock so that the task can restart after a panic.
pub(crate) async fn run_pulls(
    runtime: Arc<dyn PodRuntime>,
    pulled: PulledImageStore,
    jobs: Arc<Mutex<PullJobReceiver>>,
    limits: PullLimits,
) {
    let mut jobs = jobs.lock().await;
    let token_bucket = TokenBucket::new(limits.per_second, limits.burst, Instant::now());
    let mut queue = PullQueue {
        limits,
        token_bucket,
        order: VecDeque::new(),
        waiting: HashMap::new(),
        running: HashMap::new(),
    };
    let mut pulls: KeyedTasks<PullKey, Result<Pulled, String>> = KeyedTasks::default();
    // Beside the pulls, which go on however slowly the runtime lists its images.
    let mut settling = std::pin::pin!(pulled.resolve_unfinished());
    loop {
        while let Some((key, next)) = queue.pop_next(pulls.len()) {
            let name = format!("pull {}", key.image);
            pulls.start(key, name, pull_and_record(runtime.clone(), pulled.clone(), next));
        }
        let next_start = queue.next_start(pulls.len(), Instant::now());
        tokio::select! {
            order = jobs.0.recv() => match order {
                Some(order) => queue.add(order),
                None => return,
            },
            () = &mut settling => {}
            (key, outcome) = pulls.next() => queue.answer(&key, outcome),
            () = tokio::time::sleep_until(next_start.unwrap_or_else(Instant::now)), if next_start.is_some() => {}
        }
    }
}

impl PullQueue {
    fn add(&mut self, order: PullJob) {
        if let Some(answers) = self.running.get_mut(&order.key) {
            answers.push(order.answer);
            return;
        }
        if let Some(waiting) = self.waiting.get_mut(&order.key) {
            waiting.push(order);
            return;
        }
        self.order.push_back(order.key.clone());
        self.waiting.insert(order.key.clone(), vec![order]);
    }

    /// Drops cancelled requests, and pulls without a request.
    fn drop_cancelled(&mut self) {
        self.waiting.retain(|_, jobs| {
            jobs.retain(|order| !order.answer.is_closed());
            !jobs.is_empty()
        });
        self.order.retain(|key| self.waiting.contains_key(key));
    }

    fn has_room(&self, running: usize) -> bool {
        self.limits.max_parallel.is_none_or(|most| running < most.max(1))
    }

    /// When the next pull may begin; None if none waits or all slots are in use.
    fn next_start(&self, running: usize, now: Instant) -> Option<Instant> {
        let waits = !self.order.is_empty() && self.has_room(running);
        waits.then(|| self.token_bucket.ready_at(now))
    }

    fn pop_next(&mut self, running: usize) -> Option<(PullKey, Pull)> {
        self.drop_cancelled();
        let now = Instant::now();
        if self.next_start(running, now)? > now {
            return None;
        }
        let key = self.order.pop_front()?;
        let mut jobs = self.waiting.remove(&key)?.into_iter();
        let (pull, answer) = begin(jobs.next()?);
        self.token_bucket.take(now);
        let others = jobs.map(|order| order.answer);
        self.running.insert(key.clone(), std::iter::once(answer).chain(others).collect());
        Some((key, pull))
    }

    fn answer(&mut self, key: &PullKey, outcome: Result<Result<Pulled, String>, Panicked>) {
        let outcome = outcome.unwrap_or_else(|Panicked(why)| Err(format!("a panic: {why}")));
        for answer in self.running.remove(key).into_iter().flatten() {
            // The requester may be gone.
            let _ = answer.send(outcome.clone());
        }
    }
}

/// The pull of the first remaining request, with that pod's sandbox configuration.
fn begin(order: PullJob) -> (Pull, PullResponder) {
    let PullJob { key, named, owner, annotations, sandbox, answer } = order;
    let image = ImageSpec {
        image: key.image,
        runtime_handler: key.handler,
        annotations,
        ..ImageSpec::default()
    };
    let request = PullRequest { image, login: key.login, sandbox: Some(*sandbox), limit: None };
    (Pull { request, named, owner }, answer)
}

/// Requests of one pull name the image alike except for the default tag.
async fn pull_and_record(
    runtime: Arc<dyn PodRuntime>,
    pulled: PulledImageStore,
    Pull { request, named, owner }: Pull,
) -> Result<Pulled, String> {
    pulled.begin(&named).await?;
    let outcome = pull(runtime, request).await;
    match &outcome {
        Ok(done) => pulled.succeeded(&named, &done.image_ref, owner).await,
        Err(_) => pulled.failed(&named).await,
    }
    outcome
}

/// A status without a gRPC code is reduced to its message, so that CRI's error names stand at its
/// beginning. upstream: cri-client pkg/remote_image.go
fn reference_error_text(error: ContainerRuntimeError) -> String {
    match error {
        ContainerRuntimeError::Refused { code, message, .. } if code == "Unknown" => message,
        ContainerRuntimeError::Refused { code, message, .. } => {
            format!("rpc error: code = {code} desc = {message}")
        }
        ContainerRuntimeError::NotFound { message, .. } => {
            format!("rpc error: code = NotFound desc = {message}")
        }
        other => other.to_string(),
    }
}

async fn pull(runtime: Arc<dyn PodRuntime>, request: PullRequest) -> Result<Pulled, String> {
    let began = Instant::now();
    let call = runtime.pull_image(&request);
    let image_ref = match tokio::time::timeout(PULL_TIMEOUT, call).await {
        Ok(Ok(image_ref)) => image_ref,
        Ok(Err(error)) => return Err(reference_error_text(error)),
        Err(_) => return Err(format!("the pull did not end within {PULL_TIMEOUT:?}")),
    };
    let size = match runtime.image(&request.image).await {
        Ok(Some(record)) => record.size,
        _ => 0,
    };
    Ok(Pulled { image_ref, size, took: began.elapsed() })
}
