//! Feature gates: which exist, at which stage, and which of them a configuration turns on or off.
//!
//! The rule it keeps: gates are a plain value that is passed on, never a global; a request is
//! accepted or rejected as by the v1.36 kubelet. It does not know where a request came from, and it
//! enables nothing itself.
//!
//! upstream: component-base/featuregate/feature_gate.go, pkg/features/kube_features.go

use std::collections::BTreeMap;
use std::fmt;

use crate::diagnostic::Diagnostic;

mod table;
#[cfg(test)]
mod tests;

pub use table::Gate;

/// The stage of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GateStage {
    Alpha,
    Beta,
    Stable,
    Deprecated,
}

impl fmt::Display for GateStage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Stable => "GA",
            Self::Deprecated => "DEPRECATED",
        })
    }
}

/// The specification of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateSpec {
    pub gate: Gate,
    pub name: &'static str,
    pub stage: GateStage,
    /// On unless it is turned off explicitly.
    pub default: bool,
    /// Only the default may be set.
    pub locked: bool,
    /// Gates that must be on when this one is.
    pub dependencies: &'static [Gate],
}

/// Generates the `Gate` variants and their specifications from the rows of the table, in one order.
macro_rules! gate_table {
    (@default On) => { (true, false) };
    (@default Off) => { (false, false) };
    (@default LockedOn) => { (true, true) };
    (@default LockedOff) => { (false, true) };
    ($($name:ident: $stage:ident, $default:ident, [$($need:ident),*];)*) => {
        /// A feature gate of the v1.36 kubelet, under the name that users write.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Gate { $($name),* }

        pub(super) static GATES: &[GateSpec] = &[$(GateSpec {
            gate: Gate::$name,
            name: stringify!($name),
            stage: GateStage::$stage,
            default: gate_table!(@default $default).0,
            locked: gate_table!(@default $default).1,
            dependencies: &[$(Gate::$need),*],
        }),*];
    };
}
use gate_table;

impl Gate {
    pub fn spec(self) -> &'static GateSpec {
        // The table has one row per variant, in the variants' order (a test checks this).
        &table::GATES[self as usize]
    }

    pub fn name(self) -> &'static str {
        self.spec().name
    }

    pub fn stage(self) -> GateStage {
        self.spec().stage
    }

    /// The gate with this name; case matters.
    pub fn find(name: &str) -> Option<Self> {
        let place = table::GATES.binary_search_by(|spec| spec.name.cmp(name)).ok()?;
        Some(table::GATES[place].gate)
    }

    /// Every gate, in the order of names.
    pub fn all() -> impl Iterator<Item = Self> {
        table::GATES.iter().map(|spec| spec.gate)
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// One bit per gate; four words hold all of them (a test checks this).
const WORDS: usize = 4;

/// Which gates are on: a small `Copy` value.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FeatureGates {
    on: [u64; WORDS],
    /// Set by name, whatever the value; not by `AllAlpha` or `AllBeta`.
    named: [u64; WORDS],
}

/// The state of one gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateState {
    pub gate: Gate,
    pub enabled: bool,
    /// Set by the gate's own name.
    pub named: bool,
}

impl Default for FeatureGates {
    fn default() -> Self {
        let mut gates = Self { on: [0; WORDS], named: [0; WORDS] };
        for spec in table::GATES {
            assign(&mut gates.on, spec.gate, spec.default);
        }
        gates
    }
}

impl FeatureGates {
    /// Applies requests to the defaults. When there is an error among the findings, the value must
    /// not be used: a rejected request is left out of it.
    ///
    /// A gate's own name takes precedence over `AllAlpha` and `AllBeta`, whatever their order.
    /// Dependencies are only checked when nothing else is wrong, since a rejected request would
    /// show up a second time there.
    pub fn from_map(requested: &BTreeMap<String, bool>) -> (Self, Vec<Diagnostic>) {
        let mut gates = Self::default();
        let mut diagnostics = Vec::new();
        for (group, stage) in [(Gate::AllAlpha, GateStage::Alpha), (Gate::AllBeta, GateStage::Beta)]
        {
            if let Some(value) = requested.get(group.name()) {
                gates.set_stage(stage, *value);
            }
        }
        for (name, value) in requested {
            match check_request(name, *value) {
                Ok((gate, warning)) => {
                    assign(&mut gates.on, gate, *value);
                    assign(&mut gates.named, gate, true);
                    diagnostics.extend(warning);
                }
                Err(diagnostic) => diagnostics.push(diagnostic),
            }
        }
        if !diagnostics.iter().any(Diagnostic::is_error) {
            diagnostics.extend(gates.unmet_dependencies());
        }
        (gates, diagnostics)
    }

    pub fn enabled(&self, gate: Gate) -> bool {
        holds(&self.on, gate)
    }

    /// Every gate with its state, in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = GateState> + '_ {
        Gate::all().map(|gate| GateState {
            gate,
            enabled: self.enabled(gate),
            named: holds(&self.named, gate),
        })
    }

    fn set_stage(&mut self, stage: GateStage, value: bool) {
        for spec in table::GATES {
            let group = matches!(spec.gate, Gate::AllAlpha | Gate::AllBeta);
            if spec.stage == stage && !group {
                assign(&mut self.on, spec.gate, value);
            }
        }
    }

    fn unmet_dependencies(&self) -> Vec<Diagnostic> {
        let mut diagnostics = Vec::new();
        for spec in table::GATES.iter().filter(|spec| self.enabled(spec.gate)) {
            let missing: Vec<&str> = spec
                .dependencies
                .iter()
                .filter(|need| !self.enabled(**need))
                .map(|need| need.name())
                .collect();
            if !missing.is_empty() {
                let message = format!(
                    "is on, and needs gates that are off: {}; turn those on or this one off",
                    missing.join(", ")
                );
                diagnostics.push(Diagnostic::error(field(spec.name), message).with_value(true));
            }
        }
        diagnostics
    }
}

impl fmt::Debug for FeatureGates {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changed = self.iter().filter(|state| state.enabled != state.gate.spec().default);
        out.debug_map().entries(changed.map(|state| (state.gate, state.enabled))).finish()
    }
}

/// Whether one request is accepted, with a warning about it if there is one.
fn check_request(name: &str, value: bool) -> Result<(Gate, Option<Diagnostic>), Diagnostic> {
    let Some(gate) = Gate::find(name) else {
        let message = "unknown feature gate; expected one that Kubernetes v1.36 has";
        return Err(Diagnostic::error(field(name), message).with_value(value));
    };
    let spec = gate.spec();
    if spec.locked && value != spec.default {
        let message = format!("this gate is locked; expected {} or no entry", spec.default);
        return Err(Diagnostic::error(field(name), message).with_value(value));
    }
    let warning = match spec.stage {
        GateStage::Stable => {
            Some("the feature is stable; a later release no longer knows its gate")
        }
        GateStage::Deprecated => Some("the gate is deprecated; a later release no longer knows it"),
        GateStage::Alpha | GateStage::Beta => None,
    };
    Ok((gate, warning.map(|message| Diagnostic::warning(field(name), message).with_value(value))))
}

fn field(name: &str) -> String {
    format!("featureGates.{name}")
}

fn assign(bits: &mut [u64; WORDS], gate: Gate, value: bool) {
    let (word, bit) = (gate as usize / 64, gate as usize % 64);
    if value {
        bits[word] |= 1 << bit;
    } else {
        bits[word] &= !(1 << bit);
    }
}

fn holds(bits: &[u64; WORDS], gate: Gate) -> bool {
    bits[gate as usize / 64] & (1 << (gate as usize % 64)) != 0
}
