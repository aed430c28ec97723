//! How far our view of the leases is proven.
//!
//! Rule: a change that the watch tells proves that what came before it was told too; a list, or
//! what follows an interruption, proves nothing by itself. When the watch has been silent for so
//! long that the view would grow too old to count, some leases are read past it: an answer that
//! agrees proves the view through the moment of the question, unless the watch was under way to be
//! opened then. One that disagrees shows that there is more to hear, and proves nothing; but where
//! the leases of all nodes were read there is nothing else. How soon, and how many, follows from what
//! depends on it. A watch that keeps missing what reads find is deaf, and is opened anew. No
//! clock and no task here: the engine says what happened and when.

use std::time::Duration;

use node_health::Moment;

/// After an interruption what was missed comes first; for so long a change proves nothing.
const CATCHING_UP: Duration = Duration::from_secs(1);
/// A watch that spoke lately will prove more by itself within this time.
const SOON: Duration = Duration::from_millis(300);
/// Questions are at least so far apart.
const BETWEEN: Duration = Duration::from_millis(250);
/// And at most so far, when they fail.
const LONGEST: Duration = Duration::from_secs(4);
/// A watch that was silent while so many questions in a row found news is deaf.
const DEAF: u32 = 3;

/// How many leases are read at once when something depends on it.
const SAMPLE: usize = 8;
/// And when the watch is cut, or missed something: of no more nodes than this all are read, so that
/// they are seen though nothing else tells of them.
const THOROUGH: usize = 32;

/// What depends on our view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Somebody's time is over: a proof through now.
    Proof,
    /// We came back only now: a view without pauses.
    Steady,
    /// Nothing: it only must not grow too old.
    Calm,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    /// A view older than this counts for nothing.
    largest_gap: Duration,
    listing: bool,
    interrupted: bool,
    nodes_interrupted: bool,
    proves_from: Moment,
    proven: Option<Moment>,
    heard: Option<Moment>,
    heard_since_asked: bool,
    asking: bool,
    /// The question that is on its way covers all nodes.
    asking_all: bool,
    asked: Option<Moment>,
    /// The last answer came and proved nothing.
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

    /// The moment through which all is seen, if any.
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

    /// The watch of nodes is cut, or heard again.
    pub(crate) fn nodes_heard(&mut self, heard: bool) {
        self.nodes_interrupted = !heard;
    }

    /// The watch told a change of a lease. Whether that proves the view through now.
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

    /// Whether the watch spoke lately, so that nobody needs to be asked.
    pub(crate) fn is_lively(&self, now: Moment) -> bool {
        let lately = |heard: Moment| now.since(heard) <= self.soon();
        self.speaks() && self.heard.is_some_and(lately)
    }

    /// Whether the watch is open.
    fn speaks(&self) -> bool {
        !self.listing && !self.interrupted
    }

    /// A pause that may be nothing.
    fn soon(&self) -> Duration {
        self.largest_gap * 3 / 10
    }

    /// How long the watch may be silent before it is looked into. A few quiet nodes are asked about
    /// once between two of their renewals and not all the time; what is left of the gap is for an
    /// answer that takes long. A watch that has just missed something gets no such credit.
    fn quiet(&self, need: Need) -> Duration {
        match need {
            Need::Calm if self.missed == 0 && self.failures == 0 => self.largest_gap * 6 / 10,
            _ => self.soon(),
        }
    }

    /// How many leases to read: one shows that the way is open, and it is another each time.
    pub(crate) fn sample(&self, need: Need) -> usize {
        let calm = need == Need::Calm && self.proven.is_some();
        match self.missed == 0 && self.speaks() {
            false => THOROUGH,
            true if calm => 1,
            true => SAMPLE,
        }
    }

    /// When to ask next.
    pub(crate) fn ask_at(&self, need: Need) -> Option<Moment> {
        if self.asking {
            return None;
        }
        let pause = BETWEEN.saturating_mul(1 << self.failures.min(8)).min(LONGEST);
        // The watch gets time to tell what it has not yet, or to open.
        let pause = if self.in_vain { pause.max(self.soon()) } else { pause };
        let earliest = self.asked.map(|asked| asked.after(pause));
        let regular = self.proven.map(|proven| proven.after(self.quiet(need)));
        let soon = self.heard.filter(|_| self.speaks()).map(|heard| heard.after(SOON));
        let wish = if need == Need::Proof { soon } else { regular };
        Some(wish.max(earliest).unwrap_or(Moment::from_nanos(i64::MIN)))
    }

    /// A question leaves; `all`: about every node.
    pub(crate) fn ask(&mut self, now: Moment, all: bool) {
        self.asking = true;
        self.asking_all = all;
        self.asked = Some(now);
        self.heard_since_asked = false;
    }

    /// The answer came; `news`: it told something that the watch had not. Whether the watch is deaf
    /// and has to be opened anew.
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
