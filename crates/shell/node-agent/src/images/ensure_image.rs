//! Ensures one container's image: policy, presence, pull, back-off; with the kubelet's events.
//!
//! Rule: runs until the image is present; until then it reports every state and retries by itself.
//! Back-off is 10 s doubling to 300 s per pod and image, and reset after 600 s.
//!
//! upstream: pkg/kubelet/images/image_manager.go

use super::{ImagePuller, PodLogin, Pulled};
use crate::clock::later;
use crate::metrics::names;
use crate::volumes::RequiredVolumeImage;
use crate::worker_events::{WorkerEvent, WorkerEventSender};
use node_policy::image_access::CredentialOwner;
use pod_lifecycle::{EventType, ImageState, PodEvent};
use pod_manifest::with_default_tag;
use pod_model::GoDuration;
use pod_model::pod::Pod;
use pod_model::pod::container::PullPolicy;
use ports::runtime_objects::{ImageRecord, ImageSpec};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

#[cfg(test)]
mod tests;

const FIRST_BACK_OFF: Duration = Duration::from_secs(10);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(300);
const BACK_OFF_RESET: Duration = Duration::from_secs(600);
/// How long an error is shown as such before it is shown as a back-off.
const FAILURE_SHOWN: Duration = Duration::from_secs(2);
/// For errors that are not the registry's: an absent image with policy Never, an image status that
/// failed.
const RECHECK_DELAY: Duration = Duration::from_secs(10);

/// The one reason for which the planner does not emit `Error: <reason>` itself.
const INSPECT_ERROR: &str = "ImageInspectError";

/// A container that needs its image.
#[derive(Debug, Clone)]
pub(crate) struct ImageRequest {
    pub(crate) pod: Arc<Pod>,
    /// Attempt number of the container's sandbox.
    pub(crate) sandbox_attempt: u32,
    pub(crate) container: String,
    /// Such as `spec.containers{web}`; None for an image that is a volume.
    pub(crate) field_path: Option<String>,
    pub(crate) image: String,
    pub(crate) policy: PullPolicy,
    pub(crate) handler: String,
    /// Images that the container mounts.
    pub(crate) volume_images: Vec<RequiredVolumeImage>,
    pub(crate) attempt: u32,
}

/// The state of an image, sent to the pod worker.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ImageUpdate {
    pub(crate) container: String,
    pub(crate) attempt: u32,
    pub(crate) state: Option<ImageState>,
    /// The runtime's record of an image that was present, so that the start need not read it again.
    /// None if it was pulled.
    pub(crate) found: Option<Arc<ImageRecord>>,
    pub(crate) events: Vec<PodEvent>,
}

/// Consecutive failed pulls of one pod and image.
#[derive(Debug, Clone)]
pub(super) struct PullBackOff {
    pause: Duration,
    last: Instant,
    message: String,
}

/// Why the image is not available.
struct ImageError {
    reason: &'static str,
    message: String,
    event: Option<PodEvent>,
    retry_in: Duration,
    backs_off: bool,
}

/// Runs until the image is available, and before it those that the container mounts: it waits for
/// them as for its own.
pub(crate) async fn ensure_image(
    images: ImagePuller,
    request: ImageRequest,
    worker_events: WorkerEventSender,
) {
    for mounted in &request.volume_images {
        let request = ImageRequest {
            image: mounted.image.clone(),
            policy: mounted.policy.clone(),
            field_path: None,
            volume_images: Vec::new(),
            ..request.clone()
        };
        ensure_one(&images, &request, &worker_events).await;
    }
    ensure_one(&images, &request, &worker_events).await;
}

async fn ensure_one(
    images: &ImagePuller,
    request: &ImageRequest,
    worker_events: &WorkerEventSender,
) {
    let reporter = ImageReporter { request, worker_events };
    loop {
        let Err(failure) = attempt(images, &reporter).await else { return };
        let retry_at = later(images.clock.now(), failure.retry_in);
        let mut events: Vec<PodEvent> = failure.event.into_iter().collect();
        if failure.reason == INSPECT_ERROR {
            events.push(reporter.warning("Failed", format!("Error: {INSPECT_ERROR}")));
        }
        let state = ImageState::Failed {
            reason: failure.reason.to_owned(),
            message: failure.message.clone(),
            retry_at: Some(retry_at),
        };
        reporter.report(Some(state), events).await;
        if failure.backs_off {
            let shown_for = FAILURE_SHOWN.min(failure.retry_in);
            tokio::time::sleep(shown_for).await;
            let back_off = format!("Back-off pulling image {:?}", request.image);
            let state = ImageState::Failed {
                reason: "ImagePullBackOff".to_owned(),
                message: format!("{back_off}: {}: {}", failure.reason, failure.message),
                retry_at: Some(retry_at),
            };
            let event = reporter.event(EventType::Normal, "BackOff", back_off);
            reporter.report(Some(state), vec![event]).await;
            tokio::time::sleep(failure.retry_in.saturating_sub(shown_for)).await;
        } else {
            tokio::time::sleep(failure.retry_in).await;
        }
    }
}

/// One attempt. Ok: the image is available and the worker has been notified.
async fn attempt(images: &ImagePuller, reporter: &ImageReporter<'_>) -> Result<(), ImageError> {
    let request = reporter.request;
    let named = &request.image;
    let Some(image) = with_default_tag(named) else {
        images.count_request(request, None, None);
        let message = format!(
            "Failed to apply default image tag {named:?}: couldn't parse image name {named:?}: invalid reference format"
        );
        let event = Some(reporter.warning("InspectFailed", message.clone()));
        let retry_in = LONGEST_BACK_OFF;
        return Err(ImageError {
            reason: "InvalidImageName",
            message,
            event,
            retry_in,
            backs_off: false,
        });
    };
    let annotations = request.pod.metadata.annotations.iter();
    let spec = ImageSpec {
        image,
        user_specified_image: named.clone(),
        runtime_handler: request.handler.clone(),
        annotations: annotations.map(|(key, value)| (key.to_owned(), value.to_string())).collect(),
    };
    let own = images.pod_logins.for_image(&request.pod, &spec.image).await;
    if !own.missing.is_empty() {
        let text = format!(
            "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
            own.missing.join(", ")
        );
        let reason = "FailedToRetrieveImagePullSecret".to_owned();
        let kind = EventType::Warning;
        let event = PodEvent { kind, reason, message: text, field_path: None };
        reporter.report(None, vec![event]).await;
    }
    let looks = request.policy != PullPolicy::Always;
    let found = if looks { present(images, &spec, reporter).await } else { Ok(None) };
    let found = found.inspect_err(|_| images.count_request(request, None, None))?;
    let is_present = looks.then_some(found.is_some());
    if let Some(record) = found
        && may_use(images, request, &record, &own.logins).await
    {
        images.count_request(request, is_present, Some(false));
        let access = if images.pulled.is_kept() { " and can be accessed by the pod" } else { "" };
        let text = format!("Container image {named:?} already present on machine{access}");
        let event = reporter.event(EventType::Normal, "Pulled", text);
        reporter.report_found(record, event).await;
        return Ok(());
    }
    // An image that this pod may not use is treated as absent.
    if request.policy == PullPolicy::Never {
        images.count_request(request, is_present, (is_present == Some(true)).then_some(true));
        let message = format!("Container image {named:?} is not present with pull policy of Never");
        let event = Some(reporter.warning("ErrImageNeverPull", message.clone()));
        let retry_in = RECHECK_DELAY;
        return Err(ImageError {
            reason: "ErrImageNeverPull",
            message,
            event,
            retry_in,
            backs_off: false,
        });
    }
    images.count_request(request, is_present, Some(true));
    pull(images, &spec, reporter, &own.logins).await
}

/// Whether this pod may use a present image without checking its login at the registry.
async fn may_use(
    images: &ImagePuller,
    request: &ImageRequest,
    found: &ImageRecord,
    own: &[PodLogin],
) -> bool {
    let owners: Vec<CredentialOwner> = own.iter().map(|own| own.owner.clone()).collect();
    images.pulled.may_use(&request.image, found, &owners).await
}

/// The runtime's record of the image, if it has the image.
async fn present(
    images: &ImagePuller,
    spec: &ImageSpec,
    reporter: &ImageReporter<'_>,
) -> Result<Option<ImageRecord>, ImageError> {
    match images.runtime.image(spec).await {
        Ok(found) => Ok(found.filter(|record| !record.id.is_empty())),
        Err(error) => {
            let message = format!("Failed to inspect image {:?}: {error}", "");
            let event = Some(reporter.warning("InspectFailed", message.clone()));
            let (reason, retry_in) = (INSPECT_ERROR, RECHECK_DELAY);
            Err(ImageError { reason, message, event, retry_in, backs_off: false })
        }
    }
}

async fn pull(
    images: &ImagePuller,
    spec: &ImageSpec,
    reporter: &ImageReporter<'_>,
    own: &[PodLogin],
) -> Result<(), ImageError> {
    let request = reporter.request;
    let named = &request.image;
    if let Some(failure) = images.in_back_off(request) {
        return Err(failure);
    }
    let pulling = reporter.event(EventType::Normal, "Pulling", format!("Pulling image {named:?}"));
    reporter.report(Some(ImageState::Pulling), vec![pulling]).await;
    let began = Instant::now();
    match images.pull_with_logins(spec, request, own).await {
        Ok(Pulled { image_ref, size, took }) => {
            let label = names::image_size(size);
            images.metrics.took(&names::IMAGE_PULL_DURATION, &[label], began.elapsed());
            let text = format!(
                "Successfully pulled image {named:?} in {} ({} including waiting). Image size: {size} bytes.",
                format_go_duration(took),
                format_go_duration(began.elapsed())
            );
            let event = reporter.event(EventType::Normal, "Pulled", text);
            reporter.report(Some(ImageState::Present { image_ref }), vec![event]).await;
            Ok(())
        }
        Err(why) => {
            let (reason, message) = classify_pull_error(named, &why);
            let text = format!("Failed to pull image {named:?}: {why}");
            let event = Some(reporter.warning("Failed", text));
            let retry_in = images.failed(request, format!("{reason}: {message}"));
            Err(ImageError { reason, message, event, retry_in, backs_off: true })
        }
    }
}

/// Reason and message of a failed pull, from the runtime's error.
fn classify_pull_error(image: &str, why: &str) -> (&'static str, String) {
    // CRI's error names stand at the beginning of the runtime's message.
    let known = [
        ("RegistryUnavailable", "because the registry is unavailable"),
        ("SignatureValidationFailed", "because the signature validation failed"),
    ];
    for (reason, text) in known {
        if let Some(rest) = why.strip_prefix(reason) {
            return (reason, format!("image pull failed for {image} {text}{rest}"));
        }
    }
    ("ErrImagePull", why.to_owned())
}

/// In the format in which Go prints a duration truncated to milliseconds.
fn format_go_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    GoDuration::from_millis(i64::try_from(millis).unwrap_or(i64::MAX)).to_string()
}

impl ImagePuller {
    /// Counts the outcome of a container's image request; None for what is not known.
    fn count_request(&self, request: &ImageRequest, present: Option<bool>, pull: Option<bool>) {
        let word = |known: Option<bool>| match known {
            Some(true) => "true",
            Some(false) => "false",
            None => "unknown",
        };
        let policy = match request.policy {
            PullPolicy::Always => "always",
            PullPolicy::IfNotPresent => "ifnotpresent",
            PullPolicy::Never => "never",
            _ => "",
        };
        let labels = [word(present), policy, word(pull)];
        self.metrics.count(&names::ENSURE_IMAGE_REQUESTS, &labels);
    }

    /// The remaining back-off after a failed pull, also for a container that was restarted since.
    fn in_back_off(&self, request: &ImageRequest) -> Option<ImageError> {
        let mut all = self.back_offs.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, failures| failures.last.elapsed() < BACK_OFF_RESET);
        let key = (request.pod.metadata.uid.to_string(), request.image.clone());
        let failures = all.get(&key)?;
        let left = failures.pause.checked_sub(failures.last.elapsed())?;
        (!left.is_zero()).then(|| ImageError {
            reason: "ImagePullBackOff",
            message: format!("Back-off pulling image {:?}: {}", request.image, failures.message),
            event: None,
            retry_in: left,
            backs_off: false,
        })
    }

    /// Records a failed pull; returns how long to wait before the next.
    fn failed(&self, request: &ImageRequest, message: String) -> Duration {
        let mut all = self.back_offs.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (request.pod.metadata.uid.to_string(), request.image.clone());
        let pause = match all.get(&key) {
            Some(before) if before.last.elapsed() < BACK_OFF_RESET => {
                before.pause.saturating_mul(2).min(LONGEST_BACK_OFF)
            }
            _ => FIRST_BACK_OFF,
        };
        all.insert(key, PullBackOff { pause, last: Instant::now(), message });
        pause
    }
}

struct ImageReporter<'a> {
    request: &'a ImageRequest,
    worker_events: &'a WorkerEventSender,
}

impl ImageReporter<'_> {
    fn event(&self, kind: EventType, reason: &str, message: String) -> PodEvent {
        let reason = reason.to_owned();
        PodEvent { kind, reason, message, field_path: self.request.field_path.clone() }
    }

    fn warning(&self, reason: &str, message: String) -> PodEvent {
        self.event(EventType::Warning, reason, message)
    }

    async fn report(&self, state: Option<ImageState>, events: Vec<PodEvent>) {
        self.send(state, None, events).await;
    }

    async fn report_found(&self, record: ImageRecord, event: PodEvent) {
        let state = ImageState::Present { image_ref: record.id.clone() };
        self.send(Some(state), Some(Arc::new(record)), vec![event]).await;
    }

    async fn send(
        &self,
        state: Option<ImageState>,
        found: Option<Arc<ImageRecord>>,
        events: Vec<PodEvent>,
    ) {
        // Of an image that is a volume only errors count: the container waits for its own image.
        let is_volume = self.request.field_path.is_none();
        let state =
            state.filter(|state| !(is_volume && matches!(state, ImageState::Present { .. })));
        let found = found.filter(|_| !is_volume);
        let update = ImageUpdate {
            container: self.request.container.clone(),
            attempt: self.request.attempt,
            state,
            found,
            events,
        };
        // An error means that the worker is gone, which ends this task anyway.
        let _ = self.worker_events.send(Box::new(WorkerEvent::Image(update))).await;
    }
}
