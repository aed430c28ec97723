//! Freshness of the view of the leases.
//!
//! Rule: a lease event proves that everything before it was delivered too; a list, or what follows
//! an interruption, proves nothing by itself. When the watch has delivered nothing for so long that
//! the view would get too old, some leases are read directly: if they agree with the view, they
//! prove it up to the time of the request, unless the watch was being reopened then. A difference
//! shows that events are missing and proves nothing, unless the leases of all nodes were read. How
//! soon and how many are read depends on what needs the proof. A watch that keeps missing what
//! reads find is stuck, and is reopened. No clock and no task here: the engine passes events and
//! times.

use std::time::Duration;

use node_health::Moment;

/// After an interruption the missed events come first; for this long an event proves nothing.
const CATCHING_UP: Duration = Duration::from_secs(1);
/// A watch that delivered something lately will prove more by itself within this time.
const SOON: Duration = Duration::from_millis(300);
/// Shortest time between two reads.
const BETWEEN: Duration = Duration::from_millis(250);
/// Longest back-off between failing reads.
const LONGEST: Duration = Duration::from_secs(4);
/// A watch is stuck if this many reads in a row found changes and it delivered nothing.
const DEAF: u32 = 3;

/// How many leases are read at once when a decision depends on it.
const SAMPLE: usize = 8;
/// How many while the watch is interrupted or missed something: with no more nodes than this all
/// leases are read, so that changes are seen without the watch.
const THOROUGH: usize = 32;

/// What depends on the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// A deadline has passed: needs a proof up to now.
    Proof,
    /// The controller has just resumed: needs a view without pauses.
    Steady,
    /// Nothing: the view only must not get too old.
    Calm,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    /// A view older than this is useless.
    largest_gap: Duration,
    listing: bool,
    interrupted: bool,
    nodes_interrupted: bool,
    proves_from: Moment,
    proven: Option<Moment>,
    heard: Option<Moment>,
    heard_since_asked: bool,
    asking: bool,
    /// The read in flight covers all nodes.
    asking_all: bool,
    asked: Option<Moment>,
    /// The last read succeeded and proved nothing.
    in_vain: bool,
    failures: u32,
    missed: u32,
}

impl Sight {
    pub(crate) fn new(largest_gap: Duration) -> Self {
        Self {
            largest_gap,
            listing: true,
            interrupted: false,
            nodes_interrupted: false,
            proves_from: Moment::from_nanos(i64::MIN),
            proven: None,
            heard: None,
            heard_since_asked: false,
            asking: false,
            asking_all: false,
            asked: None,
            in_vain: false,
            failures: 0,
            missed: 0,
        }
    }

    /// The time up to which the view is proven, if any.
    pub(crate) fn proven(&self) -> Option<Moment> {
        self.proven
    }

    pub(crate) fn list_began(&mut self) {
        self.listing = true;
    }

    pub(crate) fn list_ended(&mut self, now: Moment) {
        self.listing = false;
        self.interrupted = false;
        self.proves_from = now.after(CATCHING_UP);
    }

    pub(crate) fn interrupted(&mut self) {
        self.interrupted = true;
    }

    pub(crate) fn resumed(&mut self, now: Moment) {
        self.interrupted = false;
        self.proves_from = now.after(CATCHING_UP);
    }

    /// Records whether the watch of nodes is open.
    pub(crate) fn nodes_heard(&mut self, heard: bool) {
        self.nodes_interrupted = !heard;
    }

    /// Records a lease event. Returns whether it proves the view up to now.
    pub(crate) fn heard(&mut self, now: Moment) -> bool {
        self.heard = Some(now);
        self.heard_since_asked = true;
        self.missed = 0;
        let proves = !self.listing
            && !self.interrupted
            && !self.nodes_interrupted
            && now >= self.proves_from;
        if proves {
            self.proven = self.proven.max(Some(now));
        }
        proves
    }

    /// Whether the watch delivered something lately, so that no read is needed.
    pub(crate) fn is_lively(&self, now: Moment) -> bool {
        let lately = |heard: Moment| now.since(heard) <= self.soon();
        self.speaks() && self.heard.is_some_and(lately)
    }

    /// Whether the watch is open.
    fn speaks(&self) -> bool {
        !self.listing && !self.interrupted
    }

    /// A pause that is still normal.
    fn soon(&self) -> Duration {
        self.largest_gap * 3 / 10
    }

    /// How long the watch may be silent before leases are read. A few quiet nodes are read about
    /// once between two of their renewals; the rest of the gap is left for slow responses. After
    /// the watch has missed something this is shorter.
    fn quiet(&self, need: Need) -> Duration {
        match need {
            Need::Calm if self.missed == 0 && self.failures == 0 => self.largest_gap * 6 / 10,
            _ => self.soon(),
        }
    }

    /// How many leases to read: one shows that the connection works; each read takes different
    /// nodes.
    pub(crate) fn sample(&self, need: Need) -> usize {
        let calm = need == Need::Calm && self.proven.is_some();
        match self.missed == 0 && self.speaks() {
            false => THOROUGH,
            true if calm => 1,
            true => SAMPLE,
        }
    }

    /// When to read next.
    pub(crate) fn ask_at(&self, need: Need) -> Option<Moment> {
        if self.asking {
            return None;
        }
        let pause = BETWEEN.saturating_mul(1 << self.failures.min(8)).min(LONGEST);
        // The watch gets time to catch up, or to open.
        let pause = if self.in_vain { pause.max(self.soon()) } else { pause };
        let earliest = self.asked.map(|asked| asked.after(pause));
        let regular = self.proven.map(|proven| proven.after(self.quiet(need)));
        let soon = self.heard.filter(|_| self.speaks()).map(|heard| heard.after(SOON));
        let wish = if need == Need::Proof { soon } else { regular };
        Some(wish.max(earliest).unwrap_or(Moment::from_nanos(i64::MIN)))
    }

    /// Records that a read was sent; `all`: of every node's lease.
    pub(crate) fn ask(&mut self, now: Moment, all: bool) {
        self.asking = true;
        self.asking_all = all;
        self.asked = Some(now);
        self.heard_since_asked = false;
    }

    /// Records a read's result; `news`: it showed something that the watch had not. Returns whether
    /// the watch is stuck and has to be reopened.
    pub(crate) fn answered(&mut self, sent: Moment, well: bool, news: bool) -> bool {
        self.asking = false;
        self.in_vain = false;
        if !well {
            self.failures = self.failures.saturating_add(1);
            return false;
        }
        self.failures = 0;
        let proves = !self.nodes_interrupted && (self.asking_all || (self.speaks() && !news));
        if proves {
            self.proven = self.proven.max(Some(sent));
        }
        self.in_vain = !proves;
        if news && !self.heard_since_asked {
            self.missed += 1;
        }
        let deaf = self.missed >= DEAF && !self.listing;
        if deaf {
            self.missed = 0;
            self.listing = true;
        }
        deaf
    }
}

#[cfg(test)]
mod tests;
