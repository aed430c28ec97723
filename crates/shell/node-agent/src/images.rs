//! Image pulls: which containers wait for which pull, how many pulls run, what is retried when.
//!
//! Rules: one pull per image, handler, login and namespace, however many containers wait for it. A
//! pod never shares a pull or an image that another pod's login has brought, nor a pull for another
//! namespace, for which the runtime may have another policy. Pulls run in order of request, at most
//! as many in parallel and per second as configured (a pull waits where the kubelet fails with
//! "pull QPS exceeded"). A pull that has begun goes on when all requesters are gone; a waiting one
//! is dropped. What a container does about its image is in `ensure_image`.

mod ensure_image;
mod logins;
mod pod_logins;
mod providers;
mod pulled;
mod queue;
mod sandboxes;
mod token_bucket;

pub(crate) use ensure_image::{ImageRequest, ImageUpdate, ensure_image};
pub(crate) use logins::NodeLogins;
use pod_logins::PodLogin;
pub(crate) use pod_logins::PodLogins;
pub(crate) use pulled::PulledImageStore;
pub(crate) use queue::run_pulls;
pub(crate) use sandboxes::PullSandboxes;

use crate::clock::AgentClock;
use crate::metrics::Metrics;
use node_policy::image_access::CredentialOwner;
use ports::PodRuntime;
use ports::runtime_objects::{ImageSpec, Labels, RegistryLogin, SandboxConfig};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Requests that may wait for the owner task; further senders block.
const QUEUE: usize = 64;

/// The configuration of pulls.
#[derive(Debug, Clone, PartialEq)]
pub struct PullLimits {
    /// None: no limit.
    pub max_parallel: Option<usize>,
    /// Pulls per second, and the burst; zero for no limit.
    pub per_second: u32,
    pub burst: u32,
}

/// Identifies a pull; requests with equal keys share one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct PullKey {
    image: String,
    handler: String,
    login: Option<RegistryLogin>,
    /// The node's own login, or none: what it brings is for every pod. A pod's own login is another
    /// pull even if it is the same login.
    is_for_all: bool,
    /// Of the pod: a runtime may judge a pull by it.
    namespace: String,
}

struct PullJob {
    key: PullKey,
    /// The image as the first requester names it.
    named: String,
    owner: CredentialOwner,
    annotations: Labels,
    /// Boxed, as the channel allocates room for whole orders.
    sandbox: Box<SandboxConfig>,
    answer: oneshot::Sender<Result<Pulled, String>>,
}

/// A pull that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pulled {
    pub(crate) image_ref: String,
    pub(crate) size: u64,
    /// Time of the pull itself, without waiting in the queue.
    pub(crate) took: Duration,
}

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct ImagePuller {
    runtime: Arc<dyn PodRuntime>,
    clock: AgentClock,
    logins: NodeLogins,
    pod_logins: PodLogins,
    sandboxes: PullSandboxes,
    pulled: PulledImageStore,
    metrics: Metrics,
    jobs: mpsc::Sender<PullJob>,
    /// Back-off of each pod and image, keyed as in the kubelet.
    back_offs: Arc<Mutex<HashMap<(String, String), ensure_image::PullBackOff>>>,
}

/// The receiving side, for the owner task.
pub(crate) struct PullJobReceiver(mpsc::Receiver<PullJob>);

/// What an [`ImagePuller`] works with.
pub(crate) struct ImagePullerParts {
    pub(crate) runtime: Arc<dyn PodRuntime>,
    pub(crate) clock: AgentClock,
    pub(crate) logins: NodeLogins,
    pub(crate) pod_logins: PodLogins,
    pub(crate) sandboxes: PullSandboxes,
    pub(crate) pulled_images: PulledImageStore,
    pub(crate) metrics: Metrics,
}

impl ImagePuller {
    pub(crate) fn new(parts: ImagePullerParts) -> (Self, PullJobReceiver) {
        let (jobs, taken) = mpsc::channel(QUEUE);
        let puller = Self {
            runtime: parts.runtime,
            clock: parts.clock,
            logins: parts.logins,
            pod_logins: parts.pod_logins,
            sandboxes: parts.sandboxes,
            pulled: parts.pulled_images,
            metrics: parts.metrics,
            jobs,
            back_offs: Arc::default(),
        };
        (puller, PullJobReceiver(taken))
    }

    /// Tries the pod's own logins, then each of the node's, until the registry accepts one.
    async fn pull_with_logins(
        &self,
        image: &ImageSpec,
        request: &ImageRequest,
        own: &[PodLogin],
    ) -> Result<Pulled, String> {
        let node =
            self.logins.for_image(&image.image, &request.pod.spec.service_account_name).await;
        let mut logins: Vec<(Option<RegistryLogin>, CredentialOwner)> = Vec::new();
        for own in own {
            logins.push((Some(own.login.clone()), own.owner.clone()));
        }
        logins.extend(node.logins.into_iter().map(|login| (Some(login), CredentialOwner::Node)));
        if logins.is_empty() {
            logins.push((None, CredentialOwner::Node));
        }
        let mut failures: Vec<String> = Vec::new();
        for (login, owner) in logins {
            match self.pull(image, request, login, owner).await {
                Ok(pulled) => return Ok(pulled),
                Err(why) if failures.contains(&why) => {}
                Err(why) => failures.push(why),
            }
        }
        // In the format in which Go prints several errors.
        let why = match failures.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        match node.errors.as_slice() {
            [] => Err(why),
            errors => Err(format!("{why} ({})", errors.join("; "))),
        }
    }

    async fn pull(
        &self,
        image: &ImageSpec,
        request: &ImageRequest,
        login: Option<RegistryLogin>,
        owner: CredentialOwner,
    ) -> Result<Pulled, String> {
        let (answer, answered) = oneshot::channel();
        let key = PullKey {
            image: image.image.clone(),
            handler: image.runtime_handler.clone(),
            login,
            is_for_all: owner == CredentialOwner::Node,
            namespace: request.pod.metadata.namespace.to_string(),
        };
        let (named, annotations) = (request.image.clone(), image.annotations.clone());
        let sandbox = self.sandboxes.of_pod(&request.pod, request.sandbox_attempt).await;
        let order = PullJob { key, named, owner, annotations, sandbox, answer };
        let gone = || "the agent is ending".to_owned();
        self.jobs.send(order).await.map_err(|_| gone())?;
        answered.await.map_err(|_| "the pull was interrupted".to_owned())?
    }
}
