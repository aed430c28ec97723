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

use crate::branch::{Branch, Panicked};
use crate::news::{News, NewsSender};
use attempt::Probing;
use counts::{ProbeCount, ProbeCounts};
use pod_lifecycle::{ProbeKind, ProbeResult, ProbeWant};
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
pub(crate) struct ProbeNews {
    pub(crate) container: String,
    pub(crate) container_id: String,
    pub(crate) kind: ProbeKind,
    pub(crate) result: ProbeResult,
}

/// Identifies a probe: pod, container id, kind.
type Key = (String, String, ProbeKind);

struct Scheduled {
    probing: Arc<Probing>,
    /// The pod's address as in `probing`.
    pod_ip: Option<String>,
    period: Duration,
    news: NewsSender,
    count: Arc<ProbeCount>,
    due: Instant,
}

#[derive(Default)]
struct Wheel {
    probes: BTreeMap<Key, Scheduled>,
    /// In the order in which they are due. A probe that is being tried is not here.
    turns: BTreeSet<(Instant, Key)>,
    counts: ProbeCounts,
}

/// Cheap to clone; all clones share one wheel.
#[derive(Clone)]
pub(crate) struct Probes {
    runtime: Arc<dyn PodRuntime>,
    prober: Arc<dyn NetworkProber>,
    wheel: Arc<Mutex<Wheel>>,
    changed: Arc<Notify>,
    beginning: Beginning,
}

/// The start of this agent, by both clocks.
#[derive(Clone, Copy)]
struct Beginning {
    at: ApiTime,
    moment: Instant,
}

impl Beginning {
    /// Whether a probe that is due now is one of many because the agent has just started.
    /// upstream: pkg/kubelet/prober/worker.go
    fn is_crowded(&self, want: &ProbeWant, period: Duration) -> bool {
        want.can_wait && want.started_at < self.at && self.moment.elapsed() < period
    }
}

/// A pod's probes, from its worker.
pub(crate) struct ProbeOrder<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) wants: &'a [ProbeWant],
    pub(crate) pod_ip: Option<&'a str>,
    pub(crate) now: ApiTime,
    pub(crate) news: &'a NewsSender,
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
        let beginning = Beginning { at: now, moment: Instant::now() };
        Self { runtime, prober, wheel: Arc::default(), changed: Arc::default(), beginning }
    }

    fn wheel(&self) -> MutexGuard<'_, Wheel> {
        self.wheel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the probes of a pod; known ones go on, with the pod's current address.
    pub(crate) fn set(&self, order: &ProbeOrder<'_>) {
        let uid = order.pod.metadata.uid.to_string();
        let mut wanted: BTreeMap<Key, &ProbeWant> = BTreeMap::new();
        for want in order.wants {
            wanted.insert((uid.clone(), want.container_id.clone(), want.kind), want);
        }
        let mut wheel = self.wheel();
        wheel.keep(&uid, |key| wanted.contains_key(key));
        if order.is_ending {
            wheel.counts.keep(&uid, |kind| kind == ProbeKind::Readiness);
        }
        let mut changed = false;
        for (key, want) in wanted {
            if let Some(known) = wheel.probes.get_mut(&key) {
                known.follow(order, want);
                continue;
            }
            if let Some(scheduled) = schedule(order, want, &mut wheel.counts, self.beginning) {
                wheel.turns.insert((scheduled.due, key.clone()));
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
    fn set_upright(&self) {
        let mut wheel = self.wheel();
        let Wheel { probes, turns, .. } = &mut *wheel;
        *turns = probes.iter().map(|(key, scheduled)| (scheduled.due, key.clone())).collect();
    }

    fn next_due(&self) -> Option<Instant> {
        self.wheel().turns.first().map(|(due, _)| *due)
    }

    /// Takes out the probes that are due now.
    fn take_due(&self) -> Vec<(Key, Arc<Probing>)> {
        let now = Instant::now();
        let mut wheel = self.wheel();
        let mut due = Vec::new();
        while wheel.turns.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = wheel.turns.pop_first() else { break };
            if let Some(scheduled) = wheel.probes.get(&key) {
                due.push((key, scheduled.probing.clone()));
            }
        }
        due
    }

    fn tried(&self, key: Key, (result, took): (ProbeResult, Duration)) {
        let now = Instant::now();
        let mut wheel = self.wheel();
        let Some(scheduled) = wheel.probes.get_mut(&key) else { return };
        // On a fixed schedule: a slow attempt delays only its own probe.
        while scheduled.due <= now {
            scheduled.due += scheduled.period;
        }
        let due = scheduled.due;
        scheduled.count.add(&result, took);
        let news = ProbeNews {
            container: scheduled.probing.container_name().to_owned(),
            container_id: key.1.clone(),
            kind: key.2,
            result,
        };
        // A full channel means a busy worker; the next result will do as well.
        let _ = scheduled.news.try_send(Box::new(News::Probe(news)));
        wheel.turns.insert((due, key));
    }
}

impl Wheel {
    fn keep(&mut self, uid: &str, wanted: impl Fn(&Key) -> bool) {
        let stays = |key: &Key| key.0 != uid || wanted(key);
        self.probes.retain(|key, _| stays(key));
        self.turns.retain(|(_, key)| stays(key));
    }
}

impl Scheduled {
    /// A machine may get its address after its agent started, and a restarted worker has another
    /// channel.
    fn follow(&mut self, order: &ProbeOrder<'_>, want: &ProbeWant) {
        if !self.news.same_channel(order.news) {
            self.news = order.news.clone();
        }
        if self.pod_ip.as_deref() != order.pod_ip
            && let Some((probing, _)) = probing(order, want)
        {
            self.probing = Arc::new(probing);
            self.pod_ip = order.pod_ip.map(str::to_owned);
        }
    }
}

fn seconds(number: i32) -> Duration {
    Duration::from_secs(u64::try_from(number.max(0)).unwrap_or(0))
}

/// The attempt, and the probe that specifies it.
fn probing<'a>(order: &ProbeOrder<'a>, want: &ProbeWant) -> Option<(Probing, &'a Probe)> {
    let (container, probe) = specification(order.pod, &want.container, want.kind)?;
    let limit = seconds(probe.timeout_seconds.max(1));
    let probing = Probing::new(container, probe, order.pod_ip, (&want.container_id, limit));
    Some((probing, probe))
}

fn schedule(
    order: &ProbeOrder<'_>,
    want: &ProbeWant,
    counts: &mut ProbeCounts,
    beginning: Beginning,
) -> Option<Scheduled> {
    let (probing, probe) = probing(order, want)?;
    let period = seconds(probe.period_seconds.max(1));
    let ran = order.now.nanos().saturating_sub(want.started_at.nanos());
    let ran = Duration::from_nanos(u64::try_from(ran).unwrap_or(0));
    let mut wait = seconds(probe.initial_delay_seconds).saturating_sub(ran);
    if wait.is_zero() && beginning.is_crowded(want, period) {
        wait = spread(want, period);
    }
    Some(Scheduled {
        probing: Arc::new(probing),
        pod_ip: order.pod_ip.map(str::to_owned),
        period,
        news: order.news.clone(),
        count: counts.of(order.pod, &want.container, want.kind),
        due: Instant::now() + wait,
    })
}

/// A part of the period that differs between probes and is constant for each.
fn spread(want: &ProbeWant, period: Duration) -> Duration {
    let kind = match want.kind {
        ProbeKind::Startup => "startup",
        ProbeKind::Liveness => "liveness",
        ProbeKind::Readiness => "readiness",
    };
    // FNV-1a: ids that differ only in their last character are far from each other too.
    let bytes = kind.bytes().chain(want.container_id.bytes());
    let sum = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let millis = u64::try_from(period.as_millis()).unwrap_or(u64::MAX).max(1);
    Duration::from_millis(sum % millis)
}

/// Runs due probes for ever.
pub(crate) async fn turn_wheel(probes: Probes) {
    let mut tries: Branch<Key, (ProbeResult, Duration)> = Branch::default();
    probes.set_upright();
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
                probes.tried(key, outcome.unwrap_or_else(panicked));
            }
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            () = probes.changed.notified() => {}
        }
    }
}

#[cfg(test)]
mod tests;
