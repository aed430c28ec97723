//! Zones: how many of their nodes are ready, the state that follows, and the eviction rate.
//!
//! Nodes of a fully not-ready zone are evicted at the normal rate, those of a mostly not-ready one
//! slowly or not at all; if every zone is fully not ready ("blackout"), the fault is taken to be on
//! our side and no node is evicted. Rates change only when a zone's state changes, as upstream, so
//! whether a zone is large is checked only then, regardless of nodes that join or leave later.
//! Counts are incremental, so an evaluation costs one pass over the zones, not over the nodes.
//! upstream: node_lifecycle_controller.go, component-helpers topology

use std::collections::BTreeMap;
use std::time::Duration;

/// Region and zone of a node; empty for a node without such labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneKey(Box<str>);

const ZONE_LABELS: [&str; 2] =
    ["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"];
const REGION_LABELS: [&str; 2] =
    ["failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"];
const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-disruption";

impl ZoneKey {
    /// The zone from these labels. If old and stable labels are both set, the old ones win.
    pub fn from_labels(labels: &BTreeMap<String, String>) -> Self {
        let first = |names: [&str; 2]| {
            names.into_iter().find_map(|name| labels.get(name)).map_or("", String::as_str)
        };
        let (region, zone) = (first(REGION_LABELS), first(ZONE_LABELS));
        if region.is_empty() && zone.is_empty() {
            return Self::default();
        }
        // The separator cannot occur in a label, so different pairs have different keys.
        Self(format!("{region}:\0:{zone}").into())
    }

    /// The name in metrics.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether these labels exclude a node from its zone's count.
pub fn is_excluded(labels: &BTreeMap<String, String>) -> bool {
    labels.contains_key(EXCLUDE_LABEL)
}

/// A zone's handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneId(pub u32);

/// Health of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ZoneState {
    /// Not evaluated yet.
    Initial,
    /// Most of its nodes are ready.
    Normal,
    /// Too many are not.
    Partial,
    /// None is.
    Full,
}

/// An eviction rate: never, or one node per interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionRate(Option<Duration>);

impl EvictionRate {
    /// Never.
    pub const NEVER: Self = Self(None);

    /// This many per second; zero and less mean never.
    pub fn per_second(nodes: f64) -> Self {
        if nodes > 0.0 { Self(Duration::try_from_secs_f64(1.0 / nodes).ok()) } else { Self::NEVER }
    }

    /// The time between two nodes; none if never.
    pub fn interval(self) -> Option<Duration> {
        self.0
    }
}

/// The zone settings, from the flags.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ZoneSettings {
    /// Rate in a healthy or fully not-ready zone.
    pub rate: EvictionRate,
    /// Rate in a large zone that is mostly not ready.
    pub secondary_rate: EvictionRate,
    /// A zone is large above this number of nodes.
    pub large_above: usize,
    /// A zone is mostly not ready from this share of nodes.
    pub unhealthy_share: f32,
}

impl Default for ZoneSettings {
    fn default() -> Self {
        Self {
            rate: EvictionRate::per_second(0.1),
            secondary_rate: EvictionRate::per_second(0.01),
            large_above: 50,
            unhealthy_share: 0.55,
        }
    }
}

impl ZoneSettings {
    /// The state of a zone with so many nodes ready and not ready.
    pub fn state(&self, ready: usize, not_ready: usize) -> ZoneState {
        if ready == 0 && not_ready > 0 {
            return ZoneState::Full;
        }
        // Single precision on purpose: the flag is an f32, and the boundary must be upstream's.
        #[allow(clippy::cast_precision_loss)]
        let share = not_ready as f32 / (not_ready + ready) as f32;
        if not_ready > 2 && share >= self.unhealthy_share {
            ZoneState::Partial
        } else {
            ZoneState::Normal
        }
    }

    /// The rate in a zone of this size and state, outside a blackout.
    pub fn rate_in(&self, state: ZoneState, size: usize) -> EvictionRate {
        match state {
            ZoneState::Initial | ZoneState::Normal | ZoneState::Full => self.rate,
            ZoneState::Partial if size > self.large_above => self.secondary_rate,
            ZoneState::Partial => EvictionRate::NEVER,
        }
    }
}

/// One zone's count.
#[derive(Clone, Debug)]
pub struct Zone {
    key: ZoneKey,
    state: ZoneState,
    ready: usize,
    not_ready: usize,
}

impl Zone {
    /// Its key.
    pub fn key(&self) -> &ZoneKey {
        &self.key
    }

    /// Its state at the last evaluation.
    pub fn state(&self) -> ZoneState {
        self.state
    }

    /// Nodes counted as ready.
    pub fn ready(&self) -> usize {
        self.ready
    }

    /// Nodes counted as not ready.
    pub fn not_ready(&self) -> usize {
        self.not_ready
    }

    /// Nodes counted at all.
    pub fn size(&self) -> usize {
        self.ready + self.not_ready
    }
}

/// More zones than any cluster has; beyond this number empty zones are swept now and then.
const MAX_UNSWEPT_ZONES: usize = 256;

/// What an evaluation changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneChanges {
    /// Every zone became fully not ready: no node may be tainted, and existing taints are removed.
    pub blackout_began: bool,
    /// A node is ready again: all silence so far is reset.
    pub blackout_ended: bool,
    /// New rates.
    pub rates: Vec<(ZoneId, EvictionRate)>,
}

/// All zones. A zone keeps its handle while it has nodes; an empty one is evaluated as Initial, and
/// is swept when there are many.
#[derive(Clone, Debug)]
pub struct Zones {
    settings: ZoneSettings,
    zones: Vec<Zone>,
    handles: BTreeMap<ZoneKey, ZoneId>,
    /// Handles of zones that were swept.
    free: Vec<ZoneId>,
    blackout: bool,
    changed: bool,
}

impl Zones {
    /// No zones yet.
    pub fn new(settings: ZoneSettings) -> Self {
        Self {
            settings,
            zones: Vec::new(),
            handles: BTreeMap::new(),
            free: Vec::new(),
            blackout: false,
            changed: false,
        }
    }

    /// The handle of a zone; a new one starts as Initial, at the normal rate.
    pub fn handle(&mut self, key: &ZoneKey) -> ZoneId {
        if let Some(id) = self.handles.get(key) {
            return *id;
        }
        let zone = Zone { key: key.clone(), state: ZoneState::Initial, ready: 0, not_ready: 0 };
        let next = u32::try_from(self.zones.len()).unwrap_or(u32::MAX);
        let id = self.free.pop().unwrap_or(ZoneId(next));
        match self.zones.get_mut(index(id)) {
            Some(place) => *place = zone,
            None => self.zones.push(zone),
        }
        self.handles.insert(key.clone(), id);
        id
    }

    /// Whether this zone would be new and there are so many that empty ones should be swept first.
    pub fn is_crowded(&self, key: &ZoneKey) -> bool {
        let count = self.zones.len();
        let full = count >= MAX_UNSWEPT_ZONES && count.is_power_of_two() && self.free.is_empty();
        full && !self.handles.contains_key(key)
    }

    /// Removes zones without counted nodes, except those to keep; their handles are reused.
    pub fn sweep(&mut self, keep: impl Fn(ZoneId) -> bool) -> Vec<ZoneId> {
        let zones = &self.zones;
        let empty = |id: ZoneId| zones.get(index(id)).is_none_or(|zone| zone.size() == 0);
        let mut swept = Vec::new();
        self.handles.retain(|_, id| {
            let goes = empty(*id) && !keep(*id);
            if goes {
                swept.push(*id);
            }
            !goes
        });
        self.free.extend(&swept);
        swept
    }

    /// Counts one node differently from before; `None` means not counted.
    pub fn recount(&mut self, zone: ZoneId, before: Option<bool>, after: Option<bool>) {
        if before == after {
            return;
        }
        let Some(zone) = self.zones.get_mut(index(zone)) else { return };
        match before {
            Some(true) => zone.ready = zone.ready.saturating_sub(1),
            Some(false) => zone.not_ready = zone.not_ready.saturating_sub(1),
            None => {}
        }
        match after {
            Some(true) => zone.ready += 1,
            Some(false) => zone.not_ready += 1,
            None => {}
        }
        self.changed = true;
    }

    /// Whether a count changed since the last evaluation.
    pub fn needs_evaluation(&self) -> bool {
        self.changed
    }

    /// Evaluates all zones if any count changed.
    pub fn evaluate(&mut self) -> ZoneChanges {
        let mut changes = ZoneChanges::default();
        if !std::mem::take(&mut self.changed) {
            return changes;
        }
        let settings = self.settings;
        let mut counted = self.zones.iter().filter(|zone| zone.size() > 0).peekable();
        let dark = counted.peek().is_some()
            && counted.all(|zone| settings.state(zone.ready, zone.not_ready) == ZoneState::Full);
        changes.blackout_began = dark && !self.blackout;
        changes.blackout_ended = !dark && self.blackout;
        let turned = dark != self.blackout;
        self.blackout = dark;
        for (number, zone) in (0..).zip(&mut self.zones) {
            let state = match zone.size() {
                0 => ZoneState::Initial,
                _ => settings.state(zone.ready, zone.not_ready),
            };
            if state != zone.state || turned {
                zone.state = state;
                let rate =
                    if dark { EvictionRate::NEVER } else { settings.rate_in(state, zone.size()) };
                changes.rates.push((ZoneId(number), rate));
            }
        }
        changes
    }

    /// Whether every zone is fully not ready.
    pub fn in_blackout(&self) -> bool {
        self.blackout
    }

    /// One zone.
    pub fn get(&self, zone: ZoneId) -> Option<&Zone> {
        self.zones.get(index(zone))
    }

    /// All zones, for metrics.
    pub fn iter(&self) -> impl Iterator<Item = (ZoneId, &Zone)> {
        (0..).map(ZoneId).zip(&self.zones)
    }

    /// The settings.
    pub fn settings(&self) -> &ZoneSettings {
        &self.settings
    }
}

fn index(zone: ZoneId) -> usize {
    usize::try_from(zone.0).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
