//! Leader election over one Lease object, compatible with client-go.
//!
//! A record that has not changed for its own lease duration, measured on our clock since *we* saw
//! it change, may be taken over; clocks are never compared. The leader renews and may act until its
//! last renewal was *sent* plus the renew deadline. That is shorter than the lease, so it stops
//! before another can lead. A lease does not fence a process that stalls between check and request:
//! writes carry resource versions for that. The shell does the requests; this module decides which,
//! when, and whether we may act. upstream: client-go tools/leaderelection

use std::time::Duration;

use crate::time::{ControllerTime, RemoteTime};

/// The election record in a Lease's spec.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderElectionRecord {
    /// The leader's identity; empty if there is none.
    pub holder: String,
    /// How long candidates wait after its last change.
    pub duration_seconds: i32,
    /// When the holder acquired it.
    pub acquired: RemoteTime,
    /// When the holder last renewed it.
    pub renewed: RemoteTime,
    /// How often the holder changed.
    pub transitions: i32,
}

/// The three times of the `--leader-elect-*` flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderElectionTimes {
    lease: Duration,
    renew: Duration,
    retry: Duration,
}

/// Invalid combinations of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaderElectionTimesError {
    /// Others could take over while the leader still retries.
    #[error("lease duration {lease:?} must be greater than renew deadline {renew:?}")]
    LeaseTooShort { lease: Duration, renew: Duration },
    /// The leader could stop before its second attempt.
    #[error("renew deadline {renew:?} must be greater than 1.2 times the retry period {retry:?}")]
    RenewTooShort { renew: Duration, retry: Duration },
    /// A lease counts in whole seconds.
    #[error("lease duration {lease:?} must be at least one second")]
    NoLease { lease: Duration },
    /// The retry period is zero.
    #[error("the retry period must be greater than zero")]
    NoRetry,
}

impl Default for LeaderElectionTimes {
    fn default() -> Self {
        let secs = Duration::from_secs;
        Self { lease: secs(15), renew: secs(10), retry: secs(2) }
    }
}

impl LeaderElectionTimes {
    /// Checks what client-go checks.
    pub fn new(
        lease: Duration,
        renew: Duration,
        retry: Duration,
    ) -> Result<Self, LeaderElectionTimesError> {
        if lease < Duration::from_secs(1) {
            return Err(LeaderElectionTimesError::NoLease { lease });
        }
        if retry.is_zero() {
            return Err(LeaderElectionTimesError::NoRetry);
        }
        // The record has whole seconds, and candidates wait as long as it says.
        if Duration::from_secs(lease.as_secs()) <= renew {
            return Err(LeaderElectionTimesError::LeaseTooShort { lease, renew });
        }
        if renew <= jittered(retry, Jitter::MOST) {
            return Err(LeaderElectionTimesError::RenewTooShort { renew, retry });
        }
        Ok(Self { lease, renew, retry })
    }
}

/// A random share, drawn by the shell: thousandths from 0 to 999.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jitter(u16);

impl Jitter {
    const MOST: Self = Self(1_000);

    /// From any number.
    pub const fn new(random: u16) -> Self {
        Self(random % 1_000)
    }
}

/// Stretches a period by up to 1.2 times its length.
fn jittered(period: Duration, jitter: Jitter) -> Duration {
    period.saturating_add(period.saturating_mul(12 * u32::from(jitter.0)) / 10_000)
}

/// The next request for the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseStep {
    /// None before this time.
    Wait(ControllerTime),
    /// Read the lease, past all caches.
    Read,
    /// Create the lease with this record.
    Create(LeaderElectionRecord),
    /// Update the lease as it was last read or written, with this record.
    Update(LeaderElectionRecord),
}

/// Result of that request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseResult {
    /// The record that is there.
    Found(LeaderElectionRecord),
    /// There is no lease.
    NotFound,
    /// Our record is there now.
    Written(LeaderElectionRecord),
    /// Refused, conflicting, or no answer.
    Failed,
}

/// Changes of leadership to log or record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeadershipChange {
    /// We became the leader.
    Began,
    /// We are no longer the leader.
    Ended,
    /// Another candidate leads.
    NewLeader(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextLeaseStep {
    At(ControllerTime),
    Read,
    Write { create: bool },
}

/// One candidate.
#[derive(Clone, Debug)]
pub struct Candidate {
    identity: String,
    times: LeaderElectionTimes,
    observed: LeaderElectionRecord,
    observed_at: ControllerTime,
    may_act_until: Option<ControllerTime>,
    next: NextLeaseStep,
    reported: String,
    /// We created the record that we lead by, where there was none, and have not released it since.
    created_lease: bool,
}

impl Candidate {
    /// `identity` must be unique among the candidates.
    pub fn new(
        identity: impl Into<String>,
        times: LeaderElectionTimes,
        now: ControllerTime,
    ) -> Self {
        Self {
            identity: identity.into(),
            times,
            observed: LeaderElectionRecord::default(),
            observed_at: now,
            may_act_until: None,
            next: NextLeaseStep::At(now),
            reported: String::new(),
            created_lease: false,
        }
    }

    /// Whether there was no leader before us, not even ourselves: no record existed. A released
    /// record does not count: its holder's requests may still be in flight.
    pub fn is_first(&self) -> bool {
        self.created_lease
    }

    /// Whether we may act now.
    pub fn may_act(&self, now: ControllerTime) -> bool {
        self.may_act_until.is_some_and(|until| now < until)
    }

    /// Until when we may act.
    pub fn may_act_until(&self) -> Option<ControllerTime> {
        self.may_act_until
    }

    /// The leader's identity as far as we know; empty if there is none.
    pub fn leader(&self) -> &str {
        &self.observed.holder
    }

    fn holds(&self) -> bool {
        self.observed.holder == self.identity
    }

    /// Whether the record that we know is still valid, by our clock.
    fn is_record_valid(&self, now: ControllerTime) -> bool {
        let seconds = u64::try_from(self.observed.duration_seconds).unwrap_or(0);
        now < self.observed_at.after(Duration::from_secs(seconds))
    }

    /// What to do now.
    pub fn step(&self, now: ControllerTime) -> LeaseStep {
        match self.next {
            NextLeaseStep::At(instant) if now < instant => LeaseStep::Wait(instant),
            // A leader with a valid record updates without reading first.
            NextLeaseStep::At(_) if self.holds() && self.is_record_valid(now) => {
                LeaseStep::Update(self.renewal(now))
            }
            NextLeaseStep::At(_) | NextLeaseStep::Read => LeaseStep::Read,
            NextLeaseStep::Write { create: true } => LeaseStep::Create(self.claim(now)),
            NextLeaseStep::Write { create: false } if self.holds() => {
                LeaseStep::Update(self.renewal(now))
            }
            NextLeaseStep::Write { create: false } => LeaseStep::Update(self.claim(now)),
        }
    }

    /// When `step` next returns a request, or leadership ends.
    pub fn next_wake(&self) -> Option<ControllerTime> {
        let next = match self.next {
            NextLeaseStep::At(instant) => Some(instant),
            NextLeaseStep::Read | NextLeaseStep::Write { .. } => None,
        };
        [next, self.may_act_until].into_iter().flatten().min()
    }

    fn renewal(&self, now: ControllerTime) -> LeaderElectionRecord {
        LeaderElectionRecord {
            holder: self.identity.clone(),
            duration_seconds: self.duration_seconds(),
            renewed: now.stamp(),
            ..self.observed.clone()
        }
    }

    fn claim(&self, now: ControllerTime) -> LeaderElectionRecord {
        let known = self.observed != LeaderElectionRecord::default();
        let transitions = self.observed.transitions.saturating_add(i32::from(known));
        LeaderElectionRecord {
            holder: self.identity.clone(),
            duration_seconds: self.duration_seconds(),
            acquired: now.stamp(),
            renewed: now.stamp(),
            transitions,
        }
    }

    fn duration_seconds(&self) -> i32 {
        i32::try_from(self.times.lease.as_secs()).unwrap_or(i32::MAX)
    }

    /// Records the result of the last step. `sent`: when the request left; `now`: when the response
    /// came.
    pub fn on_result(
        &mut self,
        sent: ControllerTime,
        now: ControllerTime,
        lease_result: LeaseResult,
        jitter: Jitter,
    ) -> Vec<LeadershipChange> {
        let was_writing = matches!(self.step(sent), LeaseStep::Create(_) | LeaseStep::Update(_));
        let was_optimistic = was_writing && matches!(self.next, NextLeaseStep::At(_));
        let was_creating = self.next == NextLeaseStep::Write { create: true };
        match lease_result {
            LeaseResult::Written(record) => {
                self.created_lease |= was_creating;
                self.observe(record, now);
                self.may_act_until = Some(sent.after(self.times.renew));
                self.next = NextLeaseStep::At(now.after(self.times.retry));
            }
            LeaseResult::Found(record) => {
                if record != self.observed {
                    self.observe(record, now);
                }
                let held_by_other = !self.observed.holder.is_empty() && !self.holds();
                self.next = if held_by_other && self.is_record_valid(now) {
                    self.pause(now, jitter)
                } else {
                    NextLeaseStep::Write { create: false }
                };
            }
            LeaseResult::NotFound => {
                self.observed = LeaderElectionRecord::default();
                self.next = NextLeaseStep::Write { create: true };
            }
            // The record may have changed without the leader reading it: read at once.
            LeaseResult::Failed if was_optimistic => self.next = NextLeaseStep::Read,
            LeaseResult::Failed => self.next = self.pause(now, jitter),
        }
        self.changes(now)
    }

    fn pause(&self, now: ControllerTime, jitter: Jitter) -> NextLeaseStep {
        // The leader retries at a fixed period; candidates add jitter.
        let leading = self.may_act_until.is_some();
        let wait = if leading { self.times.retry } else { jittered(self.times.retry, jitter) };
        NextLeaseStep::At(now.after(wait))
    }

    fn observe(&mut self, record: LeaderElectionRecord, now: ControllerTime) {
        self.observed = record;
        self.observed_at = now;
    }

    /// Detects that leadership began or ended; call it at every wake-up too.
    pub fn changes(&mut self, now: ControllerTime) -> Vec<LeadershipChange> {
        let mut changes = Vec::new();
        let led = self.reported == self.identity;
        let over = !self.holds() || !self.may_act(now);
        if over {
            self.may_act_until = None;
            self.created_lease = false;
        }
        let leads = self.may_act_until.is_some();
        if led && !leads {
            self.reported.clear();
            changes.push(LeadershipChange::Ended);
        }
        if !led && leads {
            self.reported.clone_from(&self.identity);
            changes.push(LeadershipChange::Began);
        }
        if !leads && !self.holds() && self.observed.holder != self.reported {
            self.reported.clone_from(&self.observed.holder);
            if !self.reported.is_empty() {
                changes.push(LeadershipChange::NewLeader(self.reported.clone()));
            }
        }
        changes
    }

    /// On shutdown: the record that releases the lease, to be written over the last one read. None
    /// if we do not hold it. We may not act from here on.
    pub fn release(&mut self, now: ControllerTime) -> Option<LeaderElectionRecord> {
        self.may_act_until = None;
        let record = self.holds().then(|| LeaderElectionRecord {
            holder: String::new(),
            duration_seconds: 1,
            acquired: now.stamp(),
            renewed: now.stamp(),
            transitions: self.observed.transitions,
        })?;
        self.observe(record.clone(), now);
        Some(record)
    }
}

#[cfg(test)]
mod tests;
