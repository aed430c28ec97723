//! On-disk records of pulls: that one has begun, and with whose login it succeeded.
//!
//! Rules: a pull begins only after its intent is on disk, so that an image which arrives while the
//! agent is down is not taken for a preloaded one. A pull of an earlier agent that has brought
//! nothing within the longest time of a pull is over: an image that is imported later is for every
//! pod. A record that cannot be read grants nothing. Records of images that are gone are removed at
//! the start and after many new ones. The runtime is never called with the records locked: pulls
//! begin and end however slowly it answers. `node-policy` decides which pod may use an image.
//!
//! upstream: pkg/kubelet/images/pullmanager/image_pull_manager.go

use crate::clock::AgentClock;
use node_policy::image_access::{
    self, AccessRequest, CredentialOwner, ImageAccess, PullCredentials, PulledRecord, Verification,
    with_credentials,
};
use ports::runtime_objects::ImageRecord;
use ports::{PodRuntime, PullRecordKind, PullRecords};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tracing::{error, info, warn};

/// New records after which those of removed images are looked for.
const SWEEP_AFTER: usize = 64;
/// Retry delay if the result of an earlier agent's pulls could not be determined.
const RECHECK_DELAY: Duration = Duration::from_secs(60);
/// A runtime may continue a pull whose client is gone. An image that it has not brought by then,
/// counted from the first check, will not come.
const UNFINISHED_PULL_TTL: Duration = Duration::from_secs(600);

/// Cheap to clone. Without a policy (the feature gate is off) nothing is checked or written.
#[derive(Clone)]
pub(crate) struct PulledImageStore(Option<Arc<Inner>>);

struct Inner {
    policy: Verification,
    files: Arc<dyn PullRecords>,
    runtime: Arc<dyn PodRuntime>,
    clock: AgentClock,
    /// Held over changes of the records on disk.
    state: Mutex<PullState>,
    unfinished_pulls: watch::Sender<UnfinishedPulls>,
}

/// What is known of the pulls of earlier agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum UnfinishedPulls {
    /// Not requested yet.
    NotRequested,
    Requested,
    /// Could not be determined so far.
    Unresolved,
    /// Known, except for pulls that may still bring their images.
    Known,
    Settled,
}

#[derive(Default)]
struct PullState {
    /// Pulls in flight, by the image's name.
    pulls: HashMap<String, usize>,
    new_records: usize,
}

impl PulledImageStore {
    pub(crate) fn new(
        policy: Option<Verification>,
        files: Arc<dyn PullRecords>,
        runtime: Arc<dyn PodRuntime>,
        clock: AgentClock,
    ) -> Self {
        let inner = |policy| Inner {
            policy,
            files,
            runtime,
            clock,
            state: Mutex::default(),
            unfinished_pulls: watch::Sender::new(UnfinishedPulls::NotRequested),
        };
        Self(policy.map(|policy| Arc::new(inner(policy))))
    }

    /// Whether access is checked at all.
    pub(super) fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Whether a pod with logins of these owners may use a present image.
    pub(super) async fn may_use(
        &self,
        image: &str,
        found: &ImageRecord,
        own: &[CredentialOwner],
    ) -> bool {
        match &self.0 {
            None => true,
            Some(inner) => inner.may_use(image, found, own).await.unwrap_or_else(|why| {
                error!(
                    image,
                    image_ref = found.id,
                    err = why,
                    "Unable to access cache records about image pulls"
                );
                false
            }),
        }
    }

    /// Checks what earlier agents left, from the first request until it succeeds; then waits for
    /// ever.
    pub(super) async fn resolve_unfinished(&self) {
        let Some(inner) = &self.0 else { return std::future::pending().await };
        let mut unfinished_pulls = inner.unfinished_pulls.subscribe();
        // Cannot fail: `self` holds the sender.
        drop(unfinished_pulls.wait_for(|known| *known > UnfinishedPulls::NotRequested).await);
        let mut first_look = None;
        while *unfinished_pulls.borrow() != UnfinishedPulls::Settled {
            let began = *first_look.get_or_insert_with(Instant::now);
            let known = inner.resolve_unfinished(began.elapsed() >= UNFINISHED_PULL_TTL).await;
            inner.unfinished_pulls.send_replace(known);
            match known {
                UnfinishedPulls::Settled => {}
                UnfinishedPulls::Known => tokio::time::sleep(RECHECK_DELAY).await,
                _ => {
                    // What could not be checked counts as not missing.
                    first_look = None;
                    tokio::time::sleep(RECHECK_DELAY).await;
                }
            }
        }
        std::future::pending::<()>().await;
    }

    /// Call before a pull; each must be followed by one of the other two.
    pub(super) async fn begin(&self, image: &str) -> Result<(), String> {
        let Some(inner) = &self.0 else { return Ok(()) };
        inner.request_unfinished_pulls();
        let mut state = inner.state.lock().await;
        let intent = image_access::intent_text(image);
        let saved = inner.files.save(PullRecordKind::Intent, image, intent).await;
        saved.map_err(|error| {
            format!("Failed to record image pull intent for container image {image:?}: {error}")
        })?;
        *state.pulls.entry(image.to_owned()).or_default() += 1;
        Ok(())
    }

    pub(super) async fn succeeded(&self, image: &str, image_ref: &str, owner: CredentialOwner) {
        let Some(inner) = &self.0 else { return };
        let mut state = inner.state.lock().await;
        let credentials = Some(PullCredentials::from(owner));
        match inner.save_record(image_ref, image, credentials).await {
            Ok(is_new) => {
                state.new_records += usize::from(is_new);
                inner.finish_pull(&mut state, image).await;
            }
            // The intent stays, which still shows that the image was not preloaded.
            Err(why) => error!(image, image_ref, err = why, "Failed to write image pulled record"),
        }
        if state.new_records >= SWEEP_AFTER {
            state.new_records = 0;
            drop(state);
            inner.remove_stale_records().await;
        }
    }

    pub(super) async fn failed(&self, image: &str) {
        let Some(inner) = &self.0 else { return };
        let mut state = inner.state.lock().await;
        inner.finish_pull(&mut state, image).await;
    }
}

impl Inner {
    async fn may_use(
        &self,
        image: &str,
        found: &ImageRecord,
        own: &[CredentialOwner],
    ) -> Result<bool, String> {
        self.request_unfinished_pulls();
        let image_ref = found.id.as_str();
        // Not granted before: an image that an earlier agent pulled is not a preloaded one. If the
        // first check fails, callers do not wait for the next.
        let mut unfinished_pulls = self.unfinished_pulls.subscribe();
        drop(unfinished_pulls.wait_for(|known| *known > UnfinishedPulls::Requested).await);
        let record = self.record(image_ref).await?;
        let is_being_pulled = record.is_none()
            && image_access::matches_pull(image, found.repo_digests.iter().map(String::as_str))
            && self.has_begun(image).await?;
        let record = record.as_ref();
        let request = AccessRequest { image, record, is_being_pulled, owners: own };
        match image_access::check_access(&self.policy, &request) {
            ImageAccess::Granted => Ok(true),
            ImageAccess::Pull => Ok(false),
            ImageAccess::GrantedAndRecorded(secret) => {
                let _state = self.state.lock().await;
                let credentials = Some(PullCredentials::from(CredentialOwner::Secret(secret)));
                if let Err(why) = self.save_record(image_ref, image, credentials).await {
                    error!(image, image_ref, err = why, "Failed to write image pulled record");
                }
                Ok(true)
            }
        }
    }

    async fn record(&self, image_ref: &str) -> Result<Option<PulledRecord>, String> {
        let content = self.files.read(PullRecordKind::Pulled, image_ref).await;
        let Some(content) = content.map_err(|error| error.to_string())? else { return Ok(None) };
        let record = image_access::read_record(&content)
            .map_err(|why| format!("the record of {image_ref}: {why}"))?;
        Ok(Some(record).filter(|record| record.image_ref == image_ref))
    }

    async fn has_begun(&self, image: &str) -> Result<bool, String> {
        let content = self.files.read(PullRecordKind::Intent, image).await;
        let Some(content) = content.map_err(|error| error.to_string())? else { return Ok(false) };
        let intended = image_access::read_intent(&content)
            .map_err(|why| format!("the intent to pull {image}: {why}"))?;
        Ok(intended == image)
    }

    /// Whether it is a record of a new image. Call with the state locked.
    async fn save_record(
        &self,
        image_ref: &str,
        image: &str,
        credentials: Option<PullCredentials>,
    ) -> Result<bool, String> {
        let before = self.record(image_ref).await.unwrap_or_else(|why| {
            warn!(image_ref, err = why, "Replacing an unreadable record of a pull");
            None
        });
        let now = self.clock.now();
        let Some(record) = with_credentials(before.as_ref(), image_ref, image, credentials, now)
        else {
            return Ok(false);
        };
        let text = image_access::record_text(&record);
        let saved = self.files.save(PullRecordKind::Pulled, image_ref, text).await;
        saved.map_err(|error| error.to_string())?;
        Ok(before.is_none())
    }

    /// The last pull of a name removes the intent.
    async fn finish_pull(&self, state: &mut PullState, image: &str) {
        let left = state.pulls.get(image).copied().unwrap_or(0).saturating_sub(1);
        if left > 0 {
            state.pulls.insert(image.to_owned(), left);
            return;
        }
        state.pulls.remove(image);
        if let Err(error) = self.files.remove(PullRecordKind::Intent, image).await {
            warn!(image, err = %error, "Cannot remove the record of a pull that has ended");
        }
    }

    fn request_unfinished_pulls(&self) {
        self.unfinished_pulls.send_if_modified(|known| {
            let is_first = *known == UnfinishedPulls::NotRequested;
            if is_first {
                *known = UnfinishedPulls::Requested;
            }
            is_first
        });
    }

    /// Pulls that an earlier agent began: a present image that such a pull has brought was pulled
    /// with an unknown login. If that cannot be determined the intents stay and are checked again;
    /// so do those of absent images, until it `is_too_late` for them.
    async fn resolve_unfinished(&self, is_too_late: bool) -> UnfinishedPulls {
        let intents = match self.files.all(PullRecordKind::Intent).await {
            Ok(loaded) => loaded,
            Err(error) => {
                error!(err = %error, "Cannot read which pulls had begun");
                return UnfinishedPulls::Unresolved;
            }
        };
        for why in &intents.unreadable {
            warn!(err = why, "Cannot read that a pull had begun");
        }
        let begun = intents.records.iter().filter_map(|(file, content)| {
            let read = image_access::read_intent(content);
            read.map_err(|error| {
                warn!(file, err = error.to_string(), "Cannot read that a pull had begun");
            })
            .ok()
        });
        let begun: Vec<String> = begun.collect();
        let mut is_settled = true;
        if !begun.is_empty() {
            let images = match self.runtime.images().await {
                Ok(images) => images,
                Err(error) => {
                    warn!(err = %error, "Cannot determine the result of pulls of an earlier agent");
                    return UnfinishedPulls::Unresolved;
                }
            };
            let state = self.state.lock().await;
            for image in &begun {
                // A pull of this agent, running or ended, has its own end.
                let is_left = matches!(self.has_begun(image).await, Ok(true));
                if is_left && !state.pulls.contains_key(image) {
                    is_settled &= self.resolve_one(image, &images, is_too_late).await;
                }
            }
        }
        self.remove_stale_records().await;
        if is_settled { UnfinishedPulls::Settled } else { UnfinishedPulls::Known }
    }

    /// Whether the pull is over; call with the state locked.
    async fn resolve_one(&self, image: &str, images: &[ImageRecord], is_too_late: bool) -> bool {
        let names = |record: &ImageRecord| -> bool {
            let names = record.repo_tags.iter().chain(&record.repo_digests);
            image_access::has_pull_completed(image, names.map(String::as_str))
        };
        let arrived: Vec<&ImageRecord> = images.iter().filter(|record| names(record)).collect();
        if arrived.is_empty() && !is_too_late {
            return false;
        }
        for record in arrived {
            let image_ref = record.id.as_str();
            if !image_access::matches_pull(image, record.repo_digests.iter().map(String::as_str)) {
                info!(
                    image,
                    image_ref, "An image was imported under the name of a pull that ended"
                );
                continue;
            }
            if let Err(why) = self.save_record(image_ref, image, None).await {
                error!(image, image_ref, err = why, "Failed to write image pulled record");
                return true;
            }
        }
        if let Err(error) = self.files.remove(PullRecordKind::Intent, image).await {
            warn!(image, err = %error, "Cannot remove the record of a pull that has ended");
        }
        true
    }

    async fn remove_stale_records(&self) {
        let asked_at = self.clock.now();
        let Ok(loaded) = self.files.all(PullRecordKind::Pulled).await else { return };
        let read = |(_, content): &(String, Vec<u8>)| image_access::read_record(content).ok();
        let records: Vec<PulledRecord> = loaded.records.iter().filter_map(read).collect();
        if records.is_empty() {
            return;
        }
        let Ok(images) = self.runtime.images().await else { return };
        let here: Vec<&str> = images.iter().map(|image| image.id.as_str()).collect();
        let gone = image_access::records_of_removed_images(&records, &here, asked_at);
        let _state = self.state.lock().await;
        for image_ref in gone {
            // It may have been pulled again since the runtime was listed.
            let Ok(Some(record)) = self.record(&image_ref).await else { continue };
            if image_access::records_of_removed_images(&[record], &here, asked_at).is_empty() {
                continue;
            }
            if let Err(error) = self.files.remove(PullRecordKind::Pulled, &image_ref).await {
                warn!(image_ref, err = %error, "Cannot remove the record of an image that is gone");
            }
        }
    }
}
