//! One volume whose files come from the API: its objects, its tokens, and when it is to be written
//! again.
//!
//! Rules: written when an object, the pod or a token has changed since the last time. A token is
//! renewed in time; while that fails the old one is used as long as it is valid. Until the API
//! server has answered for each object, the volume waits, for a few seconds without an error.
//!
//! upstream: pkg/kubelet/token/token_manager.go

use super::plan::PayloadPlan;
use crate::back_off::ExponentialBackOff;
use crate::contents::HeldContent;
use crate::pods::PodContext;
use container_setup::downward_files;
use pod_model::pod::Pod;
use pod_model::pod::volume::DownwardApiFile;
use ports::pod_host::HostVolume;
use ports::{ApiTime, ContentName, IssuedToken, TokenDemand};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::warn;
use volume_plan::payload::{self, ObjectStates, PayloadInputs};
use volume_plan::sources::{self, TokenKey};
use volume_plan::tokens::{is_expired, is_renewal_due, renewal_time};

/// How long an object may be unanswered before that is an error.
const SYNC_TIMEOUT: Duration = Duration::from_secs(3);
const TOKEN_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a token is renewed at most.
const SHORTEST_TOKEN_USE: Duration = Duration::from_secs(60);
const FIRST_TOKEN_RETRY: Duration = Duration::from_secs(5);
const LONGEST_TOKEN_RETRY: Duration = Duration::from_secs(120);

pub(super) struct PayloadVolumeState {
    plan: PayloadPlan,
    objects: Vec<HeldContent>,
    uses_pod: bool,
    tokens: BTreeMap<TokenKey, TokenState>,
    /// When the objects were first waited for.
    began: Instant,
    /// The revisions of the objects that were written; None before the first time.
    written: Option<Vec<u64>>,
    /// The pod or a token has changed since.
    is_outdated: bool,
}

struct TokenState {
    token: Option<IssuedToken>,
    error: String,
    /// Not before this.
    retry_at: Option<Instant>,
    back_off: ExponentialBackOff,
}

pub(super) enum PayloadOutcome {
    /// To be set up with the driver.
    Write(HostVolume, WrittenRevisions),
    /// The API server has not answered yet; this long is left.
    Pending(Duration),
    Failed(String),
}

/// To be given back once the volume is written.
pub(super) struct WrittenRevisions(Vec<u64>);

impl PayloadVolumeState {
    pub(super) fn new(
        context: &PodContext,
        pod: &Pod,
        plan: PayloadPlan,
        wakes: &Arc<Notify>,
    ) -> Self {
        let found = sources::of(&plan.source);
        let objects = found.objects.into_iter().map(|(kind, name)| {
            let namespace = pod.metadata.namespace.to_string();
            context.contents.follow(ContentName { kind, namespace, name }, wakes)
        });
        let token = |key| {
            let back_off = ExponentialBackOff::new(FIRST_TOKEN_RETRY, LONGEST_TOKEN_RETRY);
            (key, TokenState { token: None, error: String::new(), retry_at: None, back_off })
        };
        Self {
            objects: objects.collect(),
            tokens: found.tokens.into_iter().map(token).collect(),
            uses_pod: found.uses_pod,
            began: Instant::now(),
            written: None,
            is_outdated: false,
            plan,
        }
    }

    pub(super) fn on_pod_changed(&mut self) {
        self.is_outdated |= self.uses_pod;
    }

    /// Whether there is something to write, or a token to renew.
    pub(super) fn is_due(&self, context: &PodContext, pod: &Pod) -> bool {
        let Some(written) = &self.written else { return true };
        let changed = self.objects.iter().map(HeldContent::revision).ne(written.iter().copied());
        let now = context.clock.now();
        let uid = &pod.metadata.uid;
        changed || self.is_outdated || self.tokens.values().any(|token| token.is_due(uid, now))
    }

    /// The time until a token is to be renewed.
    pub(super) fn until_due(&self, context: &PodContext, pod: &Pod) -> Option<Duration> {
        let uid = &pod.metadata.uid;
        self.tokens.values().filter_map(|token| token.until_due(uid, context)).min()
    }

    /// Renews the tokens that are due and makes the files.
    pub(super) async fn prepare(
        &mut self,
        context: &PodContext,
        pod: &Pod,
        name: &str,
    ) -> PayloadOutcome {
        let mut states = ObjectStates::new();
        let mut revisions = Vec::new();
        for object in &self.objects {
            let (revision, state) = object.state();
            revisions.push(revision);
            match state {
                Some(state) => {
                    let of = object.name();
                    states.insert((of.kind, of.name.clone()), state);
                }
                None => {
                    let left = SYNC_TIMEOUT.saturating_sub(self.began.elapsed());
                    if !left.is_zero() {
                        return PayloadOutcome::Pending(left);
                    }
                }
            }
        }
        let mut tokens = BTreeMap::new();
        for (key, state) in &mut self.tokens {
            if state.is_due(&pod.metadata.uid, context.clock.now()) {
                state.renew(context, pod, key).await;
            }
            tokens.insert(key.clone(), state.current(context.clock.now()));
        }
        let setup = &context.settings.setup;
        let downward = |item: &DownwardApiFile| {
            downward_files::value(item, pod, setup).map_err(|error| error.to_string())
        };
        let inputs = PayloadInputs {
            pod,
            source: &self.plan.source,
            objects: &states,
            tokens: &tokens,
            downward: &downward,
        };
        match payload::files(&inputs) {
            Ok(files) => {
                let volume = HostVolume::Payload {
                    name: name.to_owned(),
                    kind: self.plan.kind,
                    size: self.plan.size,
                    files: Arc::new(files),
                    mount_points: self.plan.mount_points.clone(),
                };
                PayloadOutcome::Write(volume, WrittenRevisions(revisions))
            }
            Err(error) => PayloadOutcome::Failed(error.to_string()),
        }
    }

    pub(super) fn plan(&self) -> &PayloadPlan {
        &self.plan
    }

    pub(super) fn on_written(&mut self, WrittenRevisions(revisions): WrittenRevisions) {
        self.written = Some(revisions);
        self.is_outdated = false;
    }

    /// What was written has failed: to be tried again.
    pub(super) fn on_failed(&mut self) {
        self.is_outdated = true;
    }
}

impl TokenState {
    fn is_due(&self, uid: &str, now: ApiTime) -> bool {
        let may_retry = self.retry_at.is_none_or(|at| at <= Instant::now());
        may_retry && self.token.as_ref().is_none_or(|token| is_renewal_due(token, uid, now))
    }

    fn until_due(&self, uid: &str, context: &PodContext) -> Option<Duration> {
        let renewal = context.clock.until(renewal_time(self.token.as_ref()?, uid));
        let retry = self.retry_at.map(|at| at.saturating_duration_since(Instant::now()));
        Some(renewal.max(retry.unwrap_or_default()))
    }

    async fn renew(&mut self, context: &PodContext, pod: &Pod, key: &TokenKey) {
        let demand = TokenDemand {
            namespace: pod.metadata.namespace.to_string(),
            service_account: pod.spec.service_account_name.to_string(),
            audience: key.audience.clone(),
            expiration_seconds: key.expiration_seconds,
            pod_name: pod.metadata.name.to_string(),
            pod_uid: pod.metadata.uid.to_string(),
        };
        let request = context.contents.port().token(&demand);
        let issued = match tokio::time::timeout(TOKEN_TIMEOUT, request).await {
            Ok(Ok(token)) => Ok(token),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {TOKEN_TIMEOUT:?}")),
        };
        match issued {
            Ok(token) => {
                self.token = Some(token);
                self.back_off.reset();
                // A token that is due at once (the clocks differ) must not be requested all the
                // time.
                self.retry_at = Some(Instant::now() + SHORTEST_TOKEN_USE);
            }
            Err(why) => {
                if self.token.is_some() {
                    // Without a token the volume itself is tried again.
                    self.retry_at = Some(Instant::now() + self.back_off.pause());
                }
                warn!(
                    pod_uid = &*demand.pod_uid,
                    service_account = demand.service_account,
                    err = why,
                    "Cannot get a token for a pod"
                );
                self.error = why;
            }
        }
    }

    fn current(&self, now: ApiTime) -> Result<String, String> {
        match &self.token {
            Some(token) if !is_expired(token, now) => Ok(token.token.clone()),
            Some(_) => Err(format!("token expired and refresh failed: {}", self.error)),
            None => Err(self.error.clone()),
        }
    }
}
