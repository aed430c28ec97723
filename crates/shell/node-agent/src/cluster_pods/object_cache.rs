//! All objects of a small kind, kept current by a feed: services, runtime classes.
//!
//! Rule: level-triggered as every feed; a reader takes what is known now, and learns whether the
//! first list has come.

use ports::FeedEvent;
use ports::ObjectFeed;
use ports::cluster_objects::ApiObject;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;
use tracing::{error, warn};

/// Namespace and name.
type ObjectName = (String, String);

/// The objects as they are known.
#[derive(Debug, Clone)]
pub(crate) struct CachedObjects<T> {
    objects: Arc<BTreeMap<ObjectName, T>>,
    pub(crate) is_listed: bool,
}

impl<T> CachedObjects<T> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.objects.values()
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&T> {
        self.objects.get(&(namespace.to_owned(), name.to_owned()))
    }
}

/// Cheap to clone; all clones are one cache.
#[derive(Debug, Clone)]
pub(crate) struct ObjectCache<T> {
    known: Arc<watch::Sender<CachedObjects<T>>>,
}

impl<T: ApiObject + Clone + Sync> ObjectCache<T> {
    pub(crate) fn new() -> Self {
        let empty = CachedObjects { objects: Arc::default(), is_listed: false };
        Self { known: Arc::new(watch::Sender::new(empty)) }
    }

    pub(crate) fn snapshot(&self) -> CachedObjects<T> {
        self.known.borrow().clone()
    }

    /// Follows the feed for ever.
    pub(super) async fn follow(self, mut feed: Box<dyn ObjectFeed<T>>) {
        let mut listed: Option<BTreeMap<ObjectName, T>> = None;
        let mut is_interrupted = false;
        loop {
            match feed.next().await {
                FeedEvent::ListBegun => listed = Some(BTreeMap::new()),
                FeedEvent::Listed(objects) => {
                    let named = objects.into_iter().map(|object| (name_of(&object), object));
                    listed.get_or_insert_default().extend(named);
                }
                FeedEvent::ListEnded => {
                    let objects = Arc::new(listed.take().unwrap_or_default());
                    self.known.send_replace(CachedObjects { objects, is_listed: true });
                }
                FeedEvent::Applied(object) => self.change(|objects| {
                    objects.insert(name_of(&object), object);
                }),
                FeedEvent::Deleted(object) => self.change(|objects| {
                    objects.remove(&name_of(&object));
                }),
                FeedEvent::Unreadable { object, cause, .. } => {
                    error!(object, err = cause, "An object of the API server cannot be read");
                }
                FeedEvent::Interrupted(error) => {
                    if !std::mem::replace(&mut is_interrupted, true) {
                        let kind = T::RESOURCE.plural;
                        warn!(kind, err = %error, "Changes of objects are not received now");
                    }
                }
                FeedEvent::Resumed => is_interrupted = false,
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<ObjectName, T>)) {
        self.known.send_modify(|known| change(Arc::make_mut(&mut known.objects)));
    }
}

fn name_of<T: ApiObject>(object: &T) -> ObjectName {
    let identity = object.identity();
    (identity.namespace.to_owned(), identity.name.to_owned())
}
