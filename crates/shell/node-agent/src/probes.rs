//! Probes of all pods: one scheduler task with a timer wheel, no waiting task per probe.
//!
//! Rules: a probe's first attempt comes when its initial delay since the container's start is over,
//! later ones every period, never two of the same probe at once. Probes of containers that an
//! earlier agent started begin at different points of their first period, so that not all of the
//! node's are due at once. Each attempt ends within its timeout. The planner decides what a result
//! means (thresholds, streaks). A result that a busy worker does not receive is lost; the next one
//! follows.

mod attempt;
mod counts;

use crate::keyed_tasks::{KeyedTasks, Panicked};
use crate::worker_events::{WorkerEvent, WorkerEventSender};
use attempt::Probing;
use counts::{ProbeCount, ProbeCounts};
use pod_lifecycle::{ProbeKind, ProbeResult, RequiredProbe};
use pod_model::pod::Pod;
use pod_model::pod::handler::Probe;
use ports::probing::NetworkProber;
use ports::{ApiTime, MetricFamily, PodRuntime};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// One attempt of one probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProbeUpdate {
    pub(crate) container: String,
    pub(crate) container_id: String,
    pub(crate) kind: ProbeKind,
    pub(crate) result: ProbeResult,
}

/// Identifies a probe: pod, container id, kind.
type ProbeKey = (String, String, ProbeKind);

struct Scheduled {
    probing: Arc<Probing>,
    /// The pod's address as in `probing`.
    pod_ip: Option<String>,
    period: Duration,
    worker_events: WorkerEventSender,
    count: Arc<ProbeCount>,
    due: Instant,
}

#[derive(Default)]
struct Wheel {
    probes: BTreeMap<ProbeKey, Scheduled>,
    /// In the order in which they are due. A probe that is being tried is not here.
    due_queue: BTreeSet<(Instant, ProbeKey)>,
    counts: ProbeCounts,
}

/// Cheap to clone; all clones share one wheel.
#[derive(Clone)]
pub(crate) struct Probes {
    runtime: Arc<dyn PodRuntime>,
    prober: Arc<dyn NetworkProber>,
    wheel: Arc<Mutex<Wheel>>,
    changed: Arc<Notify>,
    agent_start: AgentStart,
}

/// The start of this agent, by both clocks.
#[derive(Clone, Copy)]
struct AgentStart {
    at: ApiTime,
    instant: Instant,
}

impl AgentStart {
    /// Whether a probe that is due now is one of many because the agent has just started.
    /// upstream: pkg/kubelet/prober/worker.go
    fn is_crowded(&self, required: &RequiredProbe, period: Duration) -> bool {
        required.can_wait && required.started_at < self.at && self.instant.elapsed() < period
    }
}

/// A pod's probes, from its worker.
pub(crate) struct DesiredProbes<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) requirements: &'a [RequiredProbe],
    pub(crate) pod_ip: Option<&'a str>,
    pub(crate) now: ApiTime,
    pub(crate) worker_events: &'a WorkerEventSender,
    pub(crate) is_ending: bool,
}

/// The probe of this kind in the container's specification.
pub(crate) fn specification<'a>(
    pod: &'a Pod,
    container: &str,
    kind: ProbeKind,
) -> Option<(&'a pod_model::pod::Container, &'a Probe)> {
    let mut all = pod.spec.all_containers().map(|(_, _, each)| each);
    let found = all.find(|each| *each.name == *container)?;
    let probe = match kind {
        ProbeKind::Liveness => found.liveness_probe.as_deref(),
        ProbeKind::Readiness => found.readiness_probe.as_deref(),
        ProbeKind::Startup => found.startup_probe.as_deref(),
    };
    probe.map(|probe| (found, probe))
}

impl Probes {
    pub(crate) fn new(
        runtime: Arc<dyn PodRuntime>,
        prober: Arc<dyn NetworkProber>,
        now: ApiTime,
    ) -> Self {
        let agent_start = AgentStart { at: now, instant: Instant::now() };
        Self { runtime, prober, wheel: Arc::default(), changed: Arc::default(), agent_start }
    }

    fn wheel(&self) -> MutexGuard<'_, Wheel> {
        self.wheel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the probes of a pod; known ones go on, with the pod's current address.
    pub(crate) fn set(&self, desired: &DesiredProbes<'_>) {
        let uid = desired.pod.metadata.uid.to_string();
        let mut wanted: BTreeMap<ProbeKey, &RequiredProbe> = BTreeMap::new();
        for required in desired.requirements {
            wanted.insert((uid.clone(), required.container_id.clone(), required.kind), required);
        }
        let mut wheel = self.wheel();
        wheel.keep(&uid, |key| wanted.contains_key(key));
        if desired.is_ending {
            wheel.counts.keep(&uid, |kind| kind == ProbeKind::Readiness);
        }
        let mut changed = false;
        for (key, required) in wanted {
            if let Some(known) = wheel.probes.get_mut(&key) {
                known.update_target(desired, required);
                continue;
            }
            if let Some(scheduled) =
                schedule(desired, required, &mut wheel.counts, self.agent_start)
            {
                wheel.due_queue.insert((scheduled.due, key.clone()));
                wheel.probes.insert(key, scheduled);
                changed = true;
            }
        }
        drop(wheel);
        if changed {
            self.changed.notify_one();
        }
    }

    /// Removes the pod's probes.
    pub(crate) fn clear(&self, uid: &str) {
        let mut wheel = self.wheel();
        wheel.keep(uid, |_| false);
        wheel.counts.keep(uid, |_| false);
    }

    /// Results of all probes so far.
    pub(crate) fn families(&self) -> Vec<MetricFamily> {
        self.wheel().counts.families()
    }

    /// Schedules probes that were in flight when the scheduler task panicked.
    fn reschedule_lost(&self) {
        let mut wheel = self.wheel();
        let Wheel { probes, due_queue, .. } = &mut *wheel;
        *due_queue = probes.iter().map(|(key, scheduled)| (scheduled.due, key.clone())).collect();
    }

    fn next_due(&self) -> Option<Instant> {
        self.wheel().due_queue.first().map(|(due, _)| *due)
    }

    /// Takes out the probes that are due now.
    fn take_due(&self) -> Vec<(ProbeKey, Arc<Probing>)> {
        let now = Instant::now();
        let mut wheel = self.wheel();
        let mut due = Vec::new();
        while wheel.due_queue.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = wheel.due_queue.pop_first() else { break };
            if let Some(scheduled) = wheel.probes.get(&key) {
                due.push((key, scheduled.probing.clone()));
            }
        }
        due
    }

    fn on_result(&self, key: ProbeKey, (result, took): (ProbeResult, Duration)) {
        let now = Instant::now();
        let mut wheel = self.wheel();
        let Some(scheduled) = wheel.probes.get_mut(&key) else { return };
        // On a fixed schedule: a slow attempt delays only its own probe.
        while scheduled.due <= now {
            scheduled.due += scheduled.period;
        }
        let due = scheduled.due;
        scheduled.count.add(&result, took);
        let update = ProbeUpdate {
            container: scheduled.probing.container_name().to_owned(),
            container_id: key.1.clone(),
            kind: key.2,
            result,
        };
        // A full channel means a busy worker; the next result will do as well.
        let _ = scheduled.worker_events.try_send(Box::new(WorkerEvent::Probe(update)));
        wheel.due_queue.insert((due, key));
    }
}

impl Wheel {
    fn keep(&mut self, uid: &str, wanted: impl Fn(&ProbeKey) -> bool) {
        let stays = |key: &ProbeKey| key.0 != uid || wanted(key);
        self.probes.retain(|key, _| stays(key));
        self.due_queue.retain(|(_, key)| stays(key));
    }
}

impl Scheduled {
    /// A machine may get its address after its agent started, and a restarted worker has another
    /// channel.
    fn update_target(&mut self, desired: &DesiredProbes<'_>, required: &RequiredProbe) {
        if !self.worker_events.same_channel(desired.worker_events) {
            self.worker_events = desired.worker_events.clone();
        }
        if self.pod_ip.as_deref() != desired.pod_ip
            && let Some((probing, _)) = probing(desired, required)
        {
            self.probing = Arc::new(probing);
            self.pod_ip = desired.pod_ip.map(str::to_owned);
        }
    }
}

fn seconds(number: i32) -> Duration {
    Duration::from_secs(u64::try_from(number.max(0)).unwrap_or(0))
}

/// The attempt, and the probe that specifies it.
fn probing<'a>(
    desired: &DesiredProbes<'a>,
    required: &RequiredProbe,
) -> Option<(Probing, &'a Probe)> {
    let (container, probe) = specification(desired.pod, &required.container, required.kind)?;
    let limit = seconds(probe.timeout_seconds.max(1));
    let probing = Probing::new(container, probe, desired.pod_ip, &required.container_id, limit);
    Some((probing, probe))
}

fn schedule(
    desired: &DesiredProbes<'_>,
    required: &RequiredProbe,
    counts: &mut ProbeCounts,
    agent_start: AgentStart,
) -> Option<Scheduled> {
    let (probing, probe) = probing(desired, required)?;
    let period = seconds(probe.period_seconds.max(1));
    let ran = desired.now.nanos().saturating_sub(required.started_at.nanos());
    let ran = Duration::from_nanos(u64::try_from(ran).unwrap_or(0));
    let mut wait = seconds(probe.initial_delay_seconds).saturating_sub(ran);
    if wait.is_zero() && agent_start.is_crowded(required, period) {
        wait = spread(required, period);
    }
    Some(Scheduled {
        probing: Arc::new(probing),
        pod_ip: desired.pod_ip.map(str::to_owned),
        period,
        worker_events: desired.worker_events.clone(),
        count: counts.of(desired.pod, &required.container, required.kind),
        due: Instant::now() + wait,
    })
}

/// A part of the period that differs between probes and is constant for each.
fn spread(required: &RequiredProbe, period: Duration) -> Duration {
    let kind = match required.kind {
        ProbeKind::Startup => "startup",
        ProbeKind::Liveness => "liveness",
        ProbeKind::Readiness => "readiness",
    };
    // FNV-1a: ids that differ only in their last character are far from each other too.
    let bytes = kind.bytes().chain(required.container_id.bytes());
    let sum = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let millis = u64::try_from(period.as_millis()).unwrap_or(u64::MAX).max(1);
    Duration::from_millis(sum % millis)
}

/// Runs due probes for ever.
pub(crate) async fn run_probes(probes: Probes) {
    let mut tries: KeyedTasks<ProbeKey, (ProbeResult, Duration)> = KeyedTasks::default();
    probes.reschedule_lost();
    loop {
        for (key, probing) in probes.take_due() {
            let (runtime, prober) = (probes.runtime.clone(), probes.prober.clone());
            let attempt = async move {
                let began = Instant::now();
                let result = probing.attempt(&*runtime, &*prober).await;
                (result, began.elapsed())
            };
            tries.start(key, "probe", attempt);
        }
        let due = probes.next_due();
        tokio::select! {
            (key, outcome) = tries.next() => {
                let panicked = |Panicked(why)| (ProbeResult::Unknown(why), Duration::ZERO);
                probes.on_result(key, outcome.unwrap_or_else(panicked));
            }
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            () = probes.changed.notified() => {}
        }
    }
}

#[cfg(test)]
mod tests;
