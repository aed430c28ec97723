//! Images for pods: who waits for which pull, how many pulls run, what is tried again when.
//!
//! Rules: one pull per image, handler, login and namespace however many containers wait for it, and
//! nobody rides on a pull with another's login, nor on an image that another's login has brought, nor
//! on a pull for another namespace, for which a runtime may have another policy; as many pulls side by
//! side as configured, in the order in which they were asked for, not more per second than configured
//! (a pull waits for its turn where the reference fails with "pull QPS exceeded"). A pull that has
//! begun goes on when whoever asked is gone; one that waits does not begin. What a container should do
//! about its image is in `obtain`.

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

/// How many requests may wait for the owner task to take them; more wait at the door.
const QUEUE: usize = 64;

/// What the configuration says about pulls.
#[derive(Debug, Clone, PartialEq)]
pub struct PullLimits {
    /// None: no limit.
    pub side_by_side: Option<usize>,
    /// Pulls per second and how many at once after a pause; zero for no limit.
    pub per_second: u32,
    pub burst: u32,
}

/// Which pull; equal ones are one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct PullKey {
    image: String,
    handler: String,
    login: Option<RegistryLogin>,
    /// The node's own login, or none: what it brings is everybody's. A pod's own login is another
    /// pull even where it is the same.
    is_for_all: bool,
    /// Of the pod: a runtime may judge a pull by it.
    namespace: String,
}

struct PullOrder {
    key: PullKey,
    /// As the first who asked names the image.
    named: String,
    owner: LoginOwner,
    annotations: Labels,
    /// Boxed for the places that the channel keeps for orders.
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
    /// Of the pull itself, without waiting for its turn.
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
    /// Back-off of each pod and image, as the reference keys it.
    back_offs: Arc<Mutex<HashMap<(String, String), obtain::Failures>>>,
}

/// The side of the images that the owner task holds.
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
    /// With the pod's own logins, then with each that the node has, until one is let in.
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
        // As the reference strings several errors together.
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
