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

use node_health::ControllerTime;

/// After an interruption the missed events come first; for this long an event proves nothing.
const CATCHING_UP: Duration = Duration::from_secs(1);
/// A watch that delivered something lately will prove more by itself within this time.
const LIVELY_FOR: Duration = Duration::from_millis(300);
/// Shortest time between two reads.
const MIN_PROBE_INTERVAL: Duration = Duration::from_millis(250);
/// Longest back-off between failing reads.
const MAX_PROBE_INTERVAL: Duration = Duration::from_secs(4);
/// A watch is stuck if this many reads in a row found changes and it delivered nothing.
const MAX_MISSED_PROBES: u32 = 3;

/// How many leases are read at once when a decision depends on it.
const PROBE_SAMPLE: usize = 8;
/// How many while the watch is interrupted or missed something: with no more nodes than this all
/// leases are read, so that changes are seen without the watch.
const MAX_FULL_PROBE: usize = 32;

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
pub(crate) struct LeaseFreshness {
    /// A view older than this is useless.
    largest_gap: Duration,
    listing: bool,
    is_interrupted: bool,
    nodes_interrupted: bool,
    proves_from: ControllerTime,
    proven: Option<ControllerTime>,
    last_change_at: Option<ControllerTime>,
    changed_since_probe: bool,
    is_probing: bool,
    /// The read in flight covers all nodes.
    is_probing_all: bool,
    last_probe_at: Option<ControllerTime>,
    /// The last read succeeded and proved nothing.
    last_probe_proved_nothing: bool,
    failures: u32,
    missed: u32,
}

impl LeaseFreshness {
    pub(crate) fn new(largest_gap: Duration) -> Self {
        Self {
            largest_gap,
            listing: true,
            is_interrupted: false,
            nodes_interrupted: false,
            proves_from: ControllerTime::from_nanos(i64::MIN),
            proven: None,
            last_change_at: None,
            changed_since_probe: false,
            is_probing: false,
            is_probing_all: false,
            last_probe_at: None,
            last_probe_proved_nothing: false,
            failures: 0,
            missed: 0,
        }
    }

    /// The time up to which the view is proven, if any.
    pub(crate) fn proven(&self) -> Option<ControllerTime> {
        self.proven
    }

    pub(crate) fn on_list_started(&mut self) {
        self.listing = true;
    }

    pub(crate) fn on_list_finished(&mut self, now: ControllerTime) {
        self.listing = false;
        self.is_interrupted = false;
        self.proves_from = now.after(CATCHING_UP);
    }

    pub(crate) fn on_interrupted(&mut self) {
        self.is_interrupted = true;
    }

    pub(crate) fn on_resumed(&mut self, now: ControllerTime) {
        self.is_interrupted = false;
        self.proves_from = now.after(CATCHING_UP);
    }

    /// Records whether the watch of nodes is open.
    pub(crate) fn set_nodes_watch_open(&mut self, is_open: bool) {
        self.nodes_interrupted = !is_open;
    }

    /// Records a lease event. Returns whether it proves the view up to now.
    pub(crate) fn on_change(&mut self, now: ControllerTime) -> bool {
        self.last_change_at = Some(now);
        self.changed_since_probe = true;
        self.missed = 0;
        let proves = !self.listing
            && !self.is_interrupted
            && !self.nodes_interrupted
            && now >= self.proves_from;
        if proves {
            self.proven = self.proven.max(Some(now));
        }
        proves
    }

    /// Whether the watch delivered something lately, so that no read is needed.
    pub(crate) fn is_lively(&self, now: ControllerTime) -> bool {
        let lately = |change_at: ControllerTime| now.since(change_at) <= self.soon();
        self.is_watch_open() && self.last_change_at.is_some_and(lately)
    }

    /// Whether the watch is open.
    fn is_watch_open(&self) -> bool {
        !self.listing && !self.is_interrupted
    }

    /// A pause that is still normal.
    fn soon(&self) -> Duration {
        self.largest_gap * 3 / 10
    }

    /// How long the watch may be silent before leases are read. A few quiet nodes are read about
    /// once between two of their renewals; the rest of the gap is left for slow responses. After
    /// the watch has missed something this is shorter.
    fn max_silence(&self, need: Need) -> Duration {
        match need {
            Need::Calm if self.missed == 0 && self.failures == 0 => self.largest_gap * 6 / 10,
            _ => self.soon(),
        }
    }

    /// How many leases to read: one shows that the connection works; each read takes different
    /// nodes.
    pub(crate) fn sample(&self, need: Need) -> usize {
        let calm = need == Need::Calm && self.proven.is_some();
        match self.missed == 0 && self.is_watch_open() {
            false => MAX_FULL_PROBE,
            true if calm => 1,
            true => PROBE_SAMPLE,
        }
    }

    /// When to read next.
    pub(crate) fn next_probe_at(&self, need: Need) -> Option<ControllerTime> {
        if self.is_probing {
            return None;
        }
        let pause =
            MIN_PROBE_INTERVAL.saturating_mul(1 << self.failures.min(8)).min(MAX_PROBE_INTERVAL);
        // The watch gets time to catch up, or to open.
        let pause = if self.last_probe_proved_nothing { pause.max(self.soon()) } else { pause };
        let earliest = self.last_probe_at.map(|last_probe_at| last_probe_at.after(pause));
        let regular = self.proven.map(|proven| proven.after(self.max_silence(need)));
        let soon = self
            .last_change_at
            .filter(|_| self.is_watch_open())
            .map(|change_at| change_at.after(LIVELY_FOR));
        let expected = if need == Need::Proof { soon } else { regular };
        Some(expected.max(earliest).unwrap_or(ControllerTime::from_nanos(i64::MIN)))
    }

    /// Records that a read was sent; `all`: of every node's lease.
    pub(crate) fn start_probe(&mut self, now: ControllerTime, all: bool) {
        self.is_probing = true;
        self.is_probing_all = all;
        self.last_probe_at = Some(now);
        self.changed_since_probe = false;
    }

    /// Records a read's result; `found_changes`: it showed something that the watch had not
    /// delivered. Returns whether the watch is stuck and has to be reopened.
    pub(crate) fn on_probe_answer(
        &mut self,
        sent: ControllerTime,
        succeeded: bool,
        found_changes: bool,
    ) -> bool {
        self.is_probing = false;
        self.last_probe_proved_nothing = false;
        if !succeeded {
            self.failures = self.failures.saturating_add(1);
            return false;
        }
        self.failures = 0;
        let proves = !self.nodes_interrupted
            && (self.is_probing_all || (self.is_watch_open() && !found_changes));
        if proves {
            self.proven = self.proven.max(Some(sent));
        }
        self.last_probe_proved_nothing = !proves;
        if found_changes && !self.changed_since_probe {
            self.missed += 1;
        }
        let is_stuck = self.missed >= MAX_MISSED_PROBES && !self.listing;
        if is_stuck {
            self.missed = 0;
            self.listing = true;
        }
        is_stuck
    }
}

#[cfg(test)]
mod tests;
