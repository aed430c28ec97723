//! Leader election over one Lease object, as client-go plays it.
//!
//! A record that has not changed for its own duration, by our clock since *we* saw it change, may
//! be taken over; clocks are never compared. Who leads renews, and may act until its last renewal
//! was *sent* plus the renew deadline, which is shorter than the lease, so nobody else can lead
//! before it has stopped. A lease does not fence a process that stalls between asking and acting:
//! writes carry versions for that. The shell reads and writes; this says what, when, and whether
//! we may act. upstream: client-go tools/leaderelection

use std::time::Duration;

use crate::time::{Moment, Stamp};

/// The record that a Lease's spec carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Who leads; empty for nobody.
    pub holder: String,
    /// For how long others wait after its last change.
    pub duration_seconds: i32,
    /// When the holder began.
    pub acquired: Stamp,
    /// When the holder last renewed.
    pub renewed: Stamp,
    /// How often the holder changed.
    pub transitions: i32,
}

/// The flags' three times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderTimes {
    lease: Duration,
    renew: Duration,
    retry: Duration,
}

/// Times that cannot work together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaderTimesError {
    /// Others could take over while the leader still tries.
    #[error("lease duration {lease:?} must be greater than renew deadline {renew:?}")]
    LeaseTooShort { lease: Duration, renew: Duration },
    /// The leader could give up before it tried twice.
    #[error("renew deadline {renew:?} must be greater than 1.2 times the retry period {retry:?}")]
    RenewTooShort { renew: Duration, retry: Duration },
    /// A lease counts in whole seconds.
    #[error("lease duration {lease:?} must be at least one second")]
    NoLease { lease: Duration },
    /// Without a pause there is no period.
    #[error("the retry period must be greater than zero")]
    NoRetry,
}

impl Default for LeaderTimes {
    fn default() -> Self {
        let secs = Duration::from_secs;
        Self { lease: secs(15), renew: secs(10), retry: secs(2) }
    }
}

impl LeaderTimes {
    /// Checks what client-go checks.
    pub fn new(
        lease: Duration,
        renew: Duration,
        retry: Duration,
    ) -> Result<Self, LeaderTimesError> {
        if lease < Duration::from_secs(1) {
            return Err(LeaderTimesError::NoLease { lease });
        }
        if retry.is_zero() {
            return Err(LeaderTimesError::NoRetry);
        }
        // A record says whole seconds; what others wait is what it says.
        if Duration::from_secs(lease.as_secs()) <= renew {
            return Err(LeaderTimesError::LeaseTooShort { lease, renew });
        }
        if renew <= jittered(retry, Jitter::MOST) {
            return Err(LeaderTimesError::RenewTooShort { renew, retry });
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

/// What the shell is to do about the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing before this moment.
    Wait(Moment),
    /// Read the lease, past all caches.
    Read,
    /// Create the lease with this record.
    Create(Record),
    /// Update the lease as it was last read or written, with this record.
    Update(Record),
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The record that is there.
    Found(Record),
    /// There is no lease.
    NotFound,
    /// Our record is there now.
    Written(Record),
    /// Refused, conflicting, or no answer.
    Failed,
}

/// Something worth telling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// We lead.
    Began,
    /// We no longer do.
    Ended,
    /// Somebody else does.
    NewLeader(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    At(Moment),
    Read,
    Write { create: bool },
}

/// One candidate.
#[derive(Clone, Debug)]
pub struct Candidate {
    identity: String,
    times: LeaderTimes,
    observed: Record,
    observed_at: Moment,
    may_act_until: Option<Moment>,
    next: Next,
    reported: String,
    /// The record that we lead by is one that we made where there was none, and never let go.
    founded: bool,
}

impl Candidate {
    /// A candidate with an identity that no other has.
    pub fn new(identity: impl Into<String>, times: LeaderTimes, now: Moment) -> Self {
        Self {
            identity: identity.into(),
            times,
            observed: Record::default(),
            observed_at: now,
            may_act_until: None,
            next: Next::At(now),
            reported: String::new(),
            founded: false,
        }
    }

    /// Whether nobody led before us, not even we ourselves: there was no record. One that its holder
    /// freed says no such thing: what it had sent may still be on its way.
    pub fn is_first(&self) -> bool {
        self.founded
    }

    /// Whether we may act at this moment.
    pub fn may_act(&self, now: Moment) -> bool {
        self.may_act_until.is_some_and(|until| now < until)
    }

    /// Until when we may act.
    pub fn may_act_until(&self) -> Option<Moment> {
        self.may_act_until
    }

    /// Who leads, as far as we know; empty for nobody.
    pub fn leader(&self) -> &str {
        &self.observed.holder
    }

    fn holds(&self) -> bool {
        self.observed.holder == self.identity
    }

    /// Whether the record that we know still binds us, by our clock.
    fn binds(&self, now: Moment) -> bool {
        let seconds = u64::try_from(self.observed.duration_seconds).unwrap_or(0);
        now < self.observed_at.after(Duration::from_secs(seconds))
    }

    /// What to do now.
    pub fn step(&self, now: Moment) -> Step {
        match self.next {
            Next::At(moment) if now < moment => Step::Wait(moment),
            // A leader that is sure of its record writes without reading.
            Next::At(_) if self.holds() && self.binds(now) => Step::Update(self.renewal(now)),
            Next::At(_) | Next::Read => Step::Read,
            Next::Write { create: true } => Step::Create(self.claim(now)),
            Next::Write { create: false } if self.holds() => Step::Update(self.renewal(now)),
            Next::Write { create: false } => Step::Update(self.claim(now)),
        }
    }

    /// When `step` has something to do, or leading ends.
    pub fn next_wake(&self) -> Option<Moment> {
        let next = match self.next {
            Next::At(moment) => Some(moment),
            Next::Read | Next::Write { .. } => None,
        };
        [next, self.may_act_until].into_iter().flatten().min()
    }

    fn renewal(&self, now: Moment) -> Record {
        Record {
            holder: self.identity.clone(),
            duration_seconds: self.duration_seconds(),
            renewed: now.stamp(),
            ..self.observed.clone()
        }
    }

    fn claim(&self, now: Moment) -> Record {
        let known = self.observed != Record::default();
        let transitions = self.observed.transitions.saturating_add(i32::from(known));
        Record {
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

    /// What came of the last step. `sent`: when the request left; `now`: when the answer came.
    pub fn answered(
        &mut self,
        sent: Moment,
        now: Moment,
        answer: Answer,
        jitter: Jitter,
    ) -> Vec<Change> {
        let was_writing = matches!(self.step(sent), Step::Create(_) | Step::Update(_));
        let was_optimistic = was_writing && matches!(self.next, Next::At(_));
        let was_creating = self.next == Next::Write { create: true };
        match answer {
            Answer::Written(record) => {
                self.founded |= was_creating;
                self.observe(record, now);
                self.may_act_until = Some(sent.after(self.times.renew));
                self.next = Next::At(now.after(self.times.retry));
            }
            Answer::Found(record) => {
                if record != self.observed {
                    self.observe(record, now);
                }
                let held_by_other = !self.observed.holder.is_empty() && !self.holds();
                self.next = if held_by_other && self.binds(now) {
                    self.pause(now, jitter)
                } else {
                    Next::Write { create: false }
                };
            }
            Answer::NotFound => {
                self.observed = Record::default();
                self.next = Next::Write { create: true };
            }
            // The record may have changed under a leader that did not look: look at once.
            Answer::Failed if was_optimistic => self.next = Next::Read,
            Answer::Failed => self.next = self.pause(now, jitter),
        }
        self.changes(now)
    }

    fn pause(&self, now: Moment, jitter: Jitter) -> Next {
        // Who leads retries evenly, who does not spreads out.
        let leading = self.may_act_until.is_some();
        let wait = if leading { self.times.retry } else { jittered(self.times.retry, jitter) };
        Next::At(now.after(wait))
    }

    fn observe(&mut self, record: Record, now: Moment) {
        self.observed = record;
        self.observed_at = now;
    }

    /// Notices that leading began or ended; call it at every wake, too.
    pub fn changes(&mut self, now: Moment) -> Vec<Change> {
        let mut changes = Vec::new();
        let led = self.reported == self.identity;
        let over = !self.holds() || !self.may_act(now);
        if over {
            self.may_act_until = None;
            self.founded = false;
        }
        let leads = self.may_act_until.is_some();
        if led && !leads {
            self.reported.clear();
            changes.push(Change::Ended);
        }
        if !led && leads {
            self.reported.clone_from(&self.identity);
            changes.push(Change::Began);
        }
        if !leads && !self.holds() && self.observed.holder != self.reported {
            self.reported.clone_from(&self.observed.holder);
            if !self.reported.is_empty() {
                changes.push(Change::NewLeader(self.reported.clone()));
            }
        }
        changes
    }

    /// On the way out: the record that frees the lease, to be written over what was last read.
    /// Nothing if we do not hold it. We may not act from here on.
    pub fn release(&mut self, now: Moment) -> Option<Record> {
        self.may_act_until = None;
        let record = self.holds().then(|| Record {
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
