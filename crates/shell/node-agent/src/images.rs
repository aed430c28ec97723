//! Image pulls: which containers wait for which pull, how many pulls run, what is retried when.
//!
//! Rules: one pull per image, handler, login and namespace, however many containers wait for it. A
//! pod never shares a pull or an image that another pod's login has brought, nor a pull for another
//! namespace, for which the runtime may have another policy. Pulls run in order of request, at most
//! as many in parallel and per second as configured (a pull waits where the kubelet fails with
//! "pull QPS exceeded"). A pull that has begun goes on when all requesters are gone; a waiting one
//! is dropped. What a container does about its image is in `obtain`.

mod logins;
mod obtain;
mod providers;
mod pulled;
mod queue;
mod rate;
mod sandboxes;

pub(crate) use logins::NodeLogins;
pub(crate) use obtain::{ImageNews, ImageRequest, obtain};
pub(crate) use pulled::PulledImages;
pub(crate) use queue::run_pulls;
pub(crate) use sandboxes::PullSandboxes;

use crate::clock::Clock;
use crate::metrics::Metrics;
use node_policy::image_access::LoginOwner;
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
    pub side_by_side: Option<usize>,
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

struct PullOrder {
    key: PullKey,
    /// The image as the first requester names it.
    named: String,
    owner: LoginOwner,
    annotations: Labels,
    /// Boxed, as the channel allocates room for whole orders.
    sandbox: Box<SandboxConfig>,
    answer: oneshot::Sender<Result<Pulled, String>>,
}

/// A login that a pod brings itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnLogin {
    pub(crate) login: RegistryLogin,
    pub(crate) owner: LoginOwner,
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
pub(crate) struct Images {
    runtime: Arc<dyn PodRuntime>,
    clock: Clock,
    logins: NodeLogins,
    sandboxes: PullSandboxes,
    pulled: PulledImages,
    metrics: Metrics,
    orders: mpsc::Sender<PullOrder>,
    /// Back-off of each pod and image, keyed as in the kubelet.
    back_offs: Arc<Mutex<HashMap<(String, String), obtain::Failures>>>,
}

/// The receiving side, for the owner task.
pub(crate) struct PullOrders(mpsc::Receiver<PullOrder>);

pub(crate) fn images(
    runtime: Arc<dyn PodRuntime>,
    clock: Clock,
    (logins, sandboxes): (NodeLogins, PullSandboxes),
    (pulled, metrics): (PulledImages, Metrics),
) -> (Images, PullOrders) {
    let (orders, taken) = mpsc::channel(QUEUE);
    let back_offs = Arc::default();
    let images = Images { runtime, clock, logins, sandboxes, pulled, metrics, orders, back_offs };
    (images, PullOrders(taken))
}

impl Images {
    /// Tries the pod's own logins, then each of the node's, until the registry accepts one.
    async fn pull_with_logins(
        &self,
        image: &ImageSpec,
        request: &ImageRequest,
    ) -> Result<Pulled, String> {
        let node =
            self.logins.for_image(&image.image, &request.pod.spec.service_account_name).await;
        let mut logins: Vec<(Option<RegistryLogin>, LoginOwner)> = Vec::new();
        for own in &request.own_logins {
            logins.push((Some(own.login.clone()), own.owner.clone()));
        }
        logins.extend(node.logins.into_iter().map(|login| (Some(login), LoginOwner::Node)));
        if logins.is_empty() {
            logins.push((None, LoginOwner::Node));
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
        match node.troubles.as_slice() {
            [] => Err(why),
            troubles => Err(format!("{why} ({})", troubles.join("; "))),
        }
    }

    async fn pull(
        &self,
        image: &ImageSpec,
        request: &ImageRequest,
        login: Option<RegistryLogin>,
        owner: LoginOwner,
    ) -> Result<Pulled, String> {
        let (answer, answered) = oneshot::channel();
        let key = PullKey {
            image: image.image.clone(),
            handler: image.runtime_handler.clone(),
            login,
            is_for_all: owner == LoginOwner::Node,
            namespace: request.pod.metadata.namespace.to_string(),
        };
        let (named, annotations) = (request.image.clone(), image.annotations.clone());
        let sandbox = self.sandboxes.of_pod(&request.pod, request.sandbox_attempt).await;
        let order = PullOrder { key, named, owner, annotations, sandbox, answer };
        let gone = || "the agent is ending".to_owned();
        self.orders.send(order).await.map_err(|_| gone())?;
        answered.await.map_err(|_| "the pull was interrupted".to_owned())?
    }
}
