//! Images for pods: who waits for which pull, how many pulls run, what is tried again when.
//!
//! Rules: one pull per image, handler and login however many containers wait for it, and nobody
//! rides on a pull with another's login; as many pulls side by side as configured, in the order in
//! which they were asked for, not more per second than configured (a pull waits for its turn where
//! the reference fails with "pull QPS exceeded"). A pull that has begun goes on when whoever asked
//! is gone. What a container should do about its image is in `obtain`.

mod logins;
mod obtain;
mod queue;
mod rate;

pub(crate) use logins::NodeLogins;
pub(crate) use obtain::{ImageNews, ImageRequest, obtain};
pub(crate) use queue::run_pulls;

use crate::clock::Clock;
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
}

struct PullOrder {
    key: PullKey,
    annotations: Labels,
    sandbox: Option<SandboxConfig>,
    answer: oneshot::Sender<Result<Pulled, String>>,
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
) -> (Images, PullOrders) {
    let (orders, taken) = mpsc::channel(QUEUE);
    let images = Images { runtime, clock, logins, orders, back_offs: Arc::default() };
    (images, PullOrders(taken))
}

impl Images {
    /// With the pod's own login, or with each that the node has until one is let in.
    async fn pull_with_logins(
        &self,
        image: &ImageSpec,
        own: Option<RegistryLogin>,
    ) -> Result<Pulled, String> {
        let logins = match own {
            Some(own) => vec![own],
            None => self.logins.for_image(&image.image).await,
        };
        if logins.is_empty() {
            return self.pull(image, None).await;
        }
        let mut failures: Vec<String> = Vec::new();
        for login in logins {
            match self.pull(image, Some(login)).await {
                Ok(pulled) => return Ok(pulled),
                Err(why) if failures.contains(&why) => {}
                Err(why) => failures.push(why),
            }
        }
        Err(failures.join("; "))
    }

    async fn pull(
        &self,
        image: &ImageSpec,
        login: Option<RegistryLogin>,
    ) -> Result<Pulled, String> {
        let (answer, answered) = oneshot::channel();
        let key =
            PullKey { image: image.image.clone(), handler: image.runtime_handler.clone(), login };
        let annotations = image.annotations.clone();
        let order = PullOrder { key, annotations, sandbox: None, answer };
        let gone = || "the agent is ending".to_owned();
        self.orders.send(order).await.map_err(|_| gone())?;
        answered.await.map_err(|_| "the pull was interrupted".to_owned())?
    }
}
