//! The task of one pod's volumes: sets them up, then keeps their content up to date.
//!
//! Rules: a volume that was ready stays so, whatever happens to the source of its content; the last
//! content that was complete stays. Everything is tried again with growing delays, and at once when
//! a source has changed. A pod whose volumes never change needs no task once they are there.

use super::overdue;
use super::payload::{PayloadOutcome, PayloadVolumeState};
use super::plan::{VolumePlan, all};
use super::{ReadyVolumes, VolumeState, VolumeUpdate, WantedVolumes};
use crate::back_off::ExponentialBackOff;
use crate::pods::PodContext;
use crate::worker_events::{WorkerEvent, WorkerEventSender};
use container_setup::inputs::ReadyVolume;
use pod_lifecycle::{EventType, PodEvent};
use pod_model::pod::Pod;
use ports::pod_host::{HostVolume, VolumeOwnership};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(122);
/// A step that takes longer is reported.
const SLOW_STEP: Duration = Duration::from_secs(5);
/// The driver's own deadlines are shorter.
const SET_UP_TIMEOUT: Duration = Duration::from_secs(600);
/// Timers do not run while a machine sleeps; tokens are looked at this often at least.
const LONGEST_SLEEP: Duration = Duration::from_secs(300);

/// One volume of the pod.
struct PodVolume {
    name: String,
    kind: PodVolumeKind,
    /// Once it is there.
    ready: Option<ReadyVolume>,
}

enum PodVolumeKind {
    Fixed(VolumePlan),
    Payload(Box<PayloadVolumeState>),
}

enum SetUpOutcome {
    Done,
    Pending(Duration),
    Failed(String),
}

struct VolumeTask {
    context: Arc<PodContext>,
    pod: Arc<Pod>,
    volumes: Vec<PodVolume>,
    wakes: Arc<Notify>,
    back_off: ExponentialBackOff,
    is_ready: bool,
    version: u64,
    worker_events: WorkerEventSender,
    /// Names of the volumes that are not there yet.
    missing: watch::Sender<Vec<String>>,
}

/// Sets up every volume of the pod, however long it takes, reports the result, and keeps the
/// content of the volumes up to date.
pub(crate) async fn maintain(
    context: Arc<PodContext>,
    wanted: WantedVolumes,
    worker_events: WorkerEventSender,
) {
    let WantedVolumes { version, mut pods, ready } = wanted;
    let pod = pods.borrow_and_update().clone();
    let wakes = Arc::new(Notify::new());
    let volumes = pod_volumes(&context, &pod, ready, &wakes);
    let back_off = ExponentialBackOff::new(FIRST_RETRY, LONGEST_RETRY);
    let missing = watch::Sender::new(missing_names(&volumes));
    let overdue = overdue::report(missing.subscribe(), version, worker_events.clone());
    let is_ready = false;
    let mut task = VolumeTask {
        context,
        pod,
        volumes,
        wakes,
        back_off,
        is_ready,
        version,
        worker_events,
        missing,
    };
    let work = async {
        while let Some(pause) = task.pass().await {
            task.wait(&mut pods, pause).await;
        }
    };
    tokio::select! {
        () = work => {}
        () = overdue => {}
    }
}

fn missing_names(volumes: &[PodVolume]) -> Vec<String> {
    let missing = volumes.iter().filter(|volume| volume.ready.is_none());
    missing.map(|volume| volume.name.clone()).collect()
}

fn pod_volumes(
    context: &PodContext,
    pod: &Pod,
    mut ready: ReadyVolumes,
    wakes: &Arc<Notify>,
) -> Vec<PodVolume> {
    let plans = all(pod, &context.settings.setup).into_iter();
    let volumes = plans.map(|(name, plan)| PodVolume {
        ready: ready.remove(&name),
        kind: match plan {
            VolumePlan::Payload(plan) => {
                PodVolumeKind::Payload(Box::new(PayloadVolumeState::new(context, pod, plan, wakes)))
            }
            fixed => PodVolumeKind::Fixed(fixed),
        },
        name,
    });
    volumes.collect()
}

impl VolumeTask {
    /// Sets up and updates what is due. Returns how long to wait for the next pass; None if there
    /// is nothing left to do, ever.
    async fn pass(&mut self) -> Option<Duration> {
        let mut failures: Vec<(String, String)> = Vec::new();
        let mut pause = LONGEST_SLEEP;
        for at in 0..self.volumes.len() {
            let outcome = self.set_up(at).await;
            if !self.is_ready {
                self.missing.send_replace(missing_names(&self.volumes));
            }
            let Some(volume) = self.volumes.get(at) else { continue };
            match outcome {
                SetUpOutcome::Done => {}
                SetUpOutcome::Pending(left) => pause = pause.min(left),
                SetUpOutcome::Failed(why) => failures.push((volume.name.clone(), why)),
            }
            if let Some(left) = volume.until_due(&self.context, &self.pod) {
                pause = pause.min(left);
            }
        }
        if !self.is_ready && self.volumes.iter().all(|volume| volume.ready.is_some()) {
            self.is_ready = true;
            self.send(VolumeState::Ready(self.ready_volumes())).await;
        }
        if failures.is_empty() {
            self.back_off.reset();
            let is_alive =
                self.volumes.iter().any(|it| matches!(it.kind, PodVolumeKind::Payload(_)));
            return (is_alive || !self.is_ready).then_some(pause);
        }
        self.report(&failures).await;
        Some(pause.min(self.back_off.pause()))
    }

    /// Sets up one volume; the pod's status says which it is if that takes long.
    async fn set_up(&mut self, at: usize) -> SetUpOutcome {
        let waiting = if self.is_ready { Vec::new() } else { self.waiting_for(at) };
        let Some(volume) = self.volumes.get_mut(at) else { return SetUpOutcome::Done };
        let mut work = std::pin::pin!(volume.set_up(&self.context, &self.pod));
        if waiting.is_empty() {
            return work.await;
        }
        if let Ok(outcome) = tokio::time::timeout(SLOW_STEP, &mut work).await {
            return outcome;
        }
        let state = VolumeState::Waiting(waiting);
        send(&self.worker_events, self.version, state).await;
        work.await
    }

    /// The volumes that are missing while this one is set up.
    fn waiting_for(&self, at: usize) -> Vec<String> {
        let volumes = self.volumes.iter().enumerate();
        let missing = volumes.filter(|(_, volume)| volume.ready.is_none());
        let texts = missing.map(|(each, volume)| match &volume.kind {
            _ if each != at => volume.name.clone(),
            PodVolumeKind::Payload(_) => {
                format!("{} (its files or tokens are still being fetched or written)", volume.name)
            }
            PodVolumeKind::Fixed(_) => {
                format!("{} (the file system does not answer so far)", volume.name)
            }
        });
        texts.collect()
    }

    fn ready_volumes(&self) -> ReadyVolumes {
        let volumes = self.volumes.iter();
        volumes.filter_map(|volume| Some((volume.name.clone(), volume.ready.clone()?))).collect()
    }

    async fn report(&self, failures: &[(String, String)]) {
        let Some((name, why)) = failures.first() else { return };
        let event = PodEvent {
            kind: EventType::Warning,
            reason: "FailedMount".to_owned(),
            message: format!("MountVolume.SetUp failed for volume {name:?} : {why}"),
            field_path: None,
        };
        let texts: Vec<&str> = failures.iter().map(|(_, why)| why.as_str()).collect();
        self.send(if self.is_ready {
            VolumeState::Event(event)
        } else {
            VolumeState::Failed { message: texts.join("; "), event }
        })
        .await;
    }

    async fn send(&self, state: VolumeState) {
        send(&self.worker_events, self.version, state).await;
    }

    /// Until the next pass is due, a source has changed, or the pod has.
    async fn wait(&mut self, pods: &mut watch::Receiver<Arc<Pod>>, pause: Duration) {
        tokio::select! {
            () = self.wakes.notified() => {}
            () = tokio::time::sleep(pause) => {}
            Ok(()) = pods.changed() => {
                self.pod = pods.borrow_and_update().clone();
                for volume in &mut self.volumes {
                    if let PodVolumeKind::Payload(state) = &mut volume.kind {
                        state.on_pod_changed();
                    }
                }
            }
        }
    }
}

pub(super) async fn send(worker_events: &WorkerEventSender, version: u64, state: VolumeState) {
    let update = VolumeUpdate { version, state };
    // An error means that the worker is gone, which ends the task anyway.
    let _ = worker_events.send(Box::new(WorkerEvent::Volumes(update))).await;
}

impl PodVolume {
    async fn set_up(&mut self, context: &PodContext, pod: &Pod) -> SetUpOutcome {
        match &mut self.kind {
            PodVolumeKind::Fixed(_) if self.ready.is_some() => SetUpOutcome::Done,
            PodVolumeKind::Fixed(VolumePlan::Unsupported(why)) => SetUpOutcome::Failed(why.clone()),
            PodVolumeKind::Fixed(VolumePlan::Image(image)) => {
                self.ready = Some(ReadyVolume {
                    image: Some((**image).clone()),
                    read_only: true,
                    selinux_relabel: true,
                    ..ReadyVolume::default()
                });
                SetUpOutcome::Done
            }
            PodVolumeKind::Fixed(VolumePlan::Host(made, ownership)) => {
                match call_driver(context, pod, made, ownership).await {
                    Ok(path) => {
                        self.ready = Some(ReadyVolume {
                            path,
                            selinux_relabel: !matches!(made, HostVolume::HostPath { .. }),
                            ..ReadyVolume::default()
                        });
                        SetUpOutcome::Done
                    }
                    Err(why) => SetUpOutcome::Failed(why),
                }
            }
            // `pod_volumes` makes none of these.
            PodVolumeKind::Fixed(VolumePlan::Payload(_)) => SetUpOutcome::Done,
            PodVolumeKind::Payload(state) => {
                if !state.is_due(context, pod) {
                    return SetUpOutcome::Done;
                }
                match write_payload(context, pod, &self.name, state).await {
                    Ok(Ok(path)) => {
                        self.ready = Some(ReadyVolume {
                            path,
                            read_only: true,
                            selinux_relabel: true,
                            ..ReadyVolume::default()
                        });
                        SetUpOutcome::Done
                    }
                    Ok(Err(left)) => SetUpOutcome::Pending(left),
                    Err(why) => SetUpOutcome::Failed(why),
                }
            }
        }
    }

    fn until_due(&self, context: &PodContext, pod: &Pod) -> Option<Duration> {
        match &self.kind {
            PodVolumeKind::Payload(state) => state.until_due(context, pod),
            PodVolumeKind::Fixed(_) => None,
        }
    }
}

/// The path of the volume, or how long it may still wait for its objects.
async fn write_payload(
    context: &PodContext,
    pod: &Pod,
    name: &str,
    state: &mut PayloadVolumeState,
) -> Result<Result<String, Duration>, String> {
    let prepared = state.prepare(context, pod, name).await;
    let (volume, revisions) = match prepared {
        PayloadOutcome::Pending(left) => return Ok(Err(left)),
        PayloadOutcome::Failed(why) => {
            state.on_failed();
            return Err(why);
        }
        PayloadOutcome::Write(volume, revisions) => (volume, revisions),
    };
    let ownership = state.plan().ownership.clone();
    match call_driver(context, pod, &volume, &ownership).await {
        Ok(path) => {
            state.on_written(revisions);
            Ok(Ok(path))
        }
        Err(why) => {
            state.on_failed();
            Err(why)
        }
    }
}

async fn call_driver(
    context: &PodContext,
    pod: &Pod,
    volume: &HostVolume,
    ownership: &VolumeOwnership,
) -> Result<String, String> {
    let call = context.ports.volumes.set_up(&pod.metadata.uid, volume, ownership);
    match tokio::time::timeout(SET_UP_TIMEOUT, call).await {
        Ok(Ok(path)) => Ok(path.display().to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("it was not ready within {SET_UP_TIMEOUT:?}")),
    }
}
