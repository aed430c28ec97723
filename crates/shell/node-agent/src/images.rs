//! Images for pods: who waits for which pull, how many pulls run, what is tried again when.
//!
//! Rules: one pull per image, handler and login however many containers wait for it, and nobody
//! rides on a pull with another's login, nor on an image that another's login has brought; as many pulls side by side as configured, in the order in
//! which they were asked for, not more per second than configured (a pull waits for its turn where
//! the reference fails with "pull QPS exceeded"). A pull that has begun goes on when whoever asked
//! is gone. What a container should do about its image is in `obtain`.

mod logins;
mod obtain;
mod providers;
mod pulled;
mod queue;
mod rate;

pub(crate) use logins::NodeLogins;
pub(crate) use obtain::{ImageNews, ImageRequest, obtain};
pub(crate) use pulled::PulledImages;
pub(crate) use queue::run_pulls;

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
}

struct PullOrder {
    key: PullKey,
    /// As the first who asked names the image.
    named: String,
    owner: LoginOwner,
    annotations: Labels,
    sandbox: Option<SandboxConfig>,
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
    logins: NodeLogins,
    (pulled, metrics): (PulledImages, Metrics),
) -> (Images, PullOrders) {
    let (orders, taken) = mpsc::channel(QUEUE);
    let images =
        Images { runtime, clock, logins, pulled, metrics, orders, back_offs: Arc::default() };
    (images, PullOrders(taken))
}

impl Images {
    /// With the pod's own logins, then with each that the node has, until one is let in.
    async fn pull_with_logins(
        &self,
        image: &ImageSpec,
        request: &ImageRequest,
    ) -> Result<Pulled, String> {
        let node = self.logins.for_image(&image.image, &request.service_account).await;
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
            match self.pull(image, &request.image, login, owner).await {
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
        named: &str,
        login: Option<RegistryLogin>,
        owner: LoginOwner,
    ) -> Result<Pulled, String> {
        let (answer, answered) = oneshot::channel();
        let key = PullKey {
            image: image.image.clone(),
            handler: image.runtime_handler.clone(),
            login,
            is_for_all: owner == LoginOwner::Node,
        };
        let (named, annotations) = (named.to_owned(), image.annotations.clone());
        let order = PullOrder { key, named, owner, annotations, sandbox: None, answer };
        let gone = || "the agent is ending".to_owned();
        self.orders.send(order).await.map_err(|_| gone())?;
        answered.await.map_err(|_| "the pull was interrupted".to_owned())?
    }
}
