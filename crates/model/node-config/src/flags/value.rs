//! The value of one flag while the command line is parsed: each use of the flag is combined with
//! the earlier ones, and the result is written as JSON or into a field.
//!
//! The rule it keeps: repeated flags combine exactly as in the reference kubelet (see `FlagKind`). It
//! handles one flag at a time and knows nothing of the others.
//!
//! upstream: component-base/cli/flag, pkg/util/flag/flags.go, pkg/util/taints, spf13/pflag

use std::collections::{BTreeMap, BTreeSet};

use pod_model::ip::parse_ip;
use pod_model::names::{check_label_value, check_qualified_name, check_taint_effect};
use pod_model::{GoDuration, Quantity};
use serde_json::{Value, json};

use super::go_syntax::{parse_bool, parse_float, parse_integer, parse_level, parse_record};
use super::kind::{FlagKind, NodeField};
use super::settings::FlagSettings;
use crate::kubelet_configuration::{MemoryReservation, ModuleVerbosity, Taint};

/// The value of a flag so far.
#[derive(Debug, Clone, PartialEq)]
pub enum FlagValue {
    /// Given without effect: the earlier value stays.
    Untouched,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Duration(GoDuration),
    Text(String),
    List(Vec<String>),
    Pairs(BTreeMap<String, String>),
    Switches(BTreeMap<String, bool>),
    Headers(BTreeMap<String, Vec<String>>),
    Taints(Vec<Taint>),
    Reservations(Vec<MemoryReservation>),
    Quantity(Quantity),
    Modules(Vec<ModuleVerbosity>),
}

/// Parses one use of a flag on top of its earlier uses. The error names what was expected.
pub fn add_value(
    kind: FlagKind,
    earlier: Option<FlagValue>,
    text: &str,
) -> Result<FlagValue, String> {
    match kind {
        FlagKind::Bool | FlagKind::Version => parse_bool(text).map(FlagValue::Bool),
        FlagKind::Int32 => {
            parse_integer(text, i32::MIN.into(), i32::MAX.into()).map(FlagValue::Integer)
        }
        FlagKind::Int64 | FlagKind::Int => {
            parse_integer(text, i64::MIN, i64::MAX).map(FlagValue::Integer)
        }
        FlagKind::Float => parse_float(text).map(FlagValue::Float),
        FlagKind::Level => parse_level(text).map(|level| FlagValue::Integer(level.into())),
        FlagKind::Duration => {
            GoDuration::parse(text).map(FlagValue::Duration).map_err(|error| error.to_string())
        }
        FlagKind::Quantity => {
            Quantity::parse(text).map(FlagValue::Quantity).map_err(|error| error.to_string())
        }
        FlagKind::Text => Ok(FlagValue::Text(text.to_owned())),
        FlagKind::Taints => parse_taints(text).map(FlagValue::Taints),
        FlagKind::TextList => append_list(earlier, text),
        FlagKind::Pairs => add_pairs(earlier, text.split(','), '='),
        FlagKind::OnePair if text.is_empty() => Err("expected key=value".to_owned()),
        FlagKind::OnePair => add_pairs(earlier, std::iter::once(text), '='),
        FlagKind::ThresholdPairs => add_pairs(earlier, text.split(','), '<'),
        FlagKind::LabelPairs => Ok(add_labels(earlier, text)),
        FlagKind::Switches => add_switches(earlier, text),
        FlagKind::Headers => add_headers(earlier, text),
        FlagKind::Address => address(earlier, text),
        FlagKind::MemoryReservations => append_reservations(earlier, text),
        FlagKind::ModuleLevels => append_modules(earlier, text),
    }
}

impl FlagValue {
    /// The JSON that stands for this value in `KubeletConfiguration`.
    pub(super) fn into_json(self) -> Option<Value> {
        Some(match self {
            Self::Untouched => return None,
            Self::Bool(value) => json!(value),
            Self::Integer(value) => json!(value),
            Self::Float(value) => json!(value),
            Self::Duration(value) => json!(value.to_string()),
            Self::Text(value) => json!(value),
            Self::List(value) => json!(value),
            Self::Pairs(value) => json!(value),
            Self::Switches(value) => json!(value),
            Self::Headers(value) => json!(value),
            Self::Quantity(value) => json!(value.to_string()),
            Self::Taints(taints) => taints.iter().map(taint_json).collect(),
            Self::Reservations(reservations) => reservations.iter().map(reservation_json).collect(),
            Self::Modules(modules) => modules
                .iter()
                .map(|module| {
                    json!({"filePattern": module.file_pattern, "verbosity": module.verbosity})
                })
                .collect(),
        })
    }

    /// Writes the value into the field that its flag sets.
    pub(super) fn write_into(self, field: NodeField, settings: &mut FlagSettings) {
        match (field, self) {
            (NodeField::Bool(field), Self::Bool(value)) => *field(settings) = value,
            (NodeField::Int32(field), Self::Integer(value)) => {
                if let Ok(value) = i32::try_from(value) {
                    *field(settings) = value;
                }
            }
            (NodeField::Int(field), Self::Integer(value)) => *field(settings) = value,
            (NodeField::Duration(field), Self::Duration(value)) => *field(settings) = value,
            (NodeField::Text(field), Self::Text(value)) => *field(settings) = value,
            (NodeField::Labels(field), Self::Pairs(value)) => *field(settings) = value,
            // `FlagSpec::kind` gives each field the kind that yields its value.
            _ => {}
        }
    }
}

fn taint_json(taint: &Taint) -> Value {
    let mut object = json!({"key": taint.key, "effect": taint.effect});
    if !taint.value.is_empty() {
        object["value"] = json!(taint.value);
    }
    object
}

fn reservation_json(reservation: &MemoryReservation) -> Value {
    let limits: BTreeMap<&str, String> = reservation
        .limits
        .iter()
        .map(|(kind, amount)| (kind.as_str(), amount.to_string()))
        .collect();
    json!({"numaNode": reservation.numa_node, "limits": limits})
}

fn append_list(earlier: Option<FlagValue>, text: &str) -> Result<FlagValue, String> {
    let mut items = match earlier {
        Some(FlagValue::List(items)) => items,
        _ => Vec::new(),
    };
    items.extend(parse_record(text)?);
    Ok(FlagValue::List(items))
}

/// Adds `key<separator>value`; empty parts between commas are ignored.
fn add_pairs<'a>(
    earlier: Option<FlagValue>,
    parts: impl Iterator<Item = &'a str>,
    separator: char,
) -> Result<FlagValue, String> {
    let mut pairs = match earlier {
        Some(FlagValue::Pairs(pairs)) => pairs,
        _ => BTreeMap::new(),
    };
    for part in parts.filter(|part| !part.is_empty()) {
        let Some((key, value)) = part.split_once(separator) else {
            // The part is not quoted here: it may be a header with its token.
            return Err(format!("expected key{separator}value, and a part has no '{separator}'"));
        };
        pairs.insert(key.trim().to_owned(), value.trim().to_owned());
    }
    Ok(FlagValue::Pairs(pairs))
}

fn add_labels(earlier: Option<FlagValue>, text: &str) -> FlagValue {
    let mut labels = match earlier {
        Some(FlagValue::Pairs(labels)) => labels,
        _ => BTreeMap::new(),
    };
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        labels.insert(key.trim().to_owned(), value.trim().to_owned());
    }
    FlagValue::Pairs(labels)
}

fn add_switches(earlier: Option<FlagValue>, text: &str) -> Result<FlagValue, String> {
    let mut switches = match earlier {
        Some(FlagValue::Switches(switches)) => switches,
        _ => BTreeMap::new(),
    };
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let Some((key, value)) = part.split_once('=') else {
            return Err(format!("expected name=true or name=false, and {part:?} has no '='"));
        };
        let value = parse_bool(value.trim()).map_err(|expected| format!("{part:?}: {expected}"))?;
        switches.insert(key.trim().to_owned(), value);
    }
    Ok(FlagValue::Switches(switches))
}

/// Adds `name:value`. The message never quotes a part: values here carry tokens.
fn add_headers(earlier: Option<FlagValue>, text: &str) -> Result<FlagValue, String> {
    let mut headers = match earlier {
        Some(FlagValue::Headers(headers)) => headers,
        _ => BTreeMap::new(),
    };
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let Some((name, value)) = part.split_once(':') else {
            return Err("expected name:value,name:value, and one part has no ':'".to_owned());
        };
        headers.entry(name.trim().to_owned()).or_default().push(value.trim().to_owned());
    }
    Ok(FlagValue::Headers(headers))
}

/// The reference exits at a value after an empty one; here it is an error.
const AFTER_EMPTY_VALUE: &str = "expected no further use of this flag after an empty one";

fn address(earlier: Option<FlagValue>, text: &str) -> Result<FlagValue, String> {
    match (earlier, text) {
        (Some(earlier), "") => Ok(earlier),
        (None, "") => Ok(FlagValue::Untouched),
        (Some(FlagValue::Untouched), _) => Err(AFTER_EMPTY_VALUE.to_owned()),
        _ => match parse_ip(text) {
            Ok(_) => Ok(FlagValue::Text(text.to_owned())),
            Err(error) => Err(error.to_string()),
        },
    }
}

/// Taints to put on the node. A trailing `-` asks to remove one, which is of no use on a new node:
/// it is checked and dropped.
fn parse_taints(text: &str) -> Result<Vec<Taint>, String> {
    let mut taints = Vec::new();
    let mut seen = BTreeSet::new();
    if text.is_empty() {
        return Ok(taints);
    }
    for part in text.split(',') {
        if let Some(removal) = part.strip_suffix('-') {
            parse_taint(removal)?;
            continue;
        }
        let taint = parse_taint(part)?;
        if taint.effect.is_empty() {
            return Err(format!("expected key=value:effect, and {part:?} has no effect"));
        }
        if !seen.insert((taint.key.clone(), taint.effect.clone())) {
            return Err(format!("expected each key once for one effect, and {part:?} repeats one"));
        }
        taints.push(taint);
    }
    Ok(taints)
}

fn parse_taint(text: &str) -> Result<Taint, String> {
    let named = |error: pod_model::names::NameError| format!("taint {text:?}: {error}");
    let parts: Vec<&str> = text.split(':').collect();
    let (key_value, effect) = match parts[..] {
        // Without an effect nothing is split off: an '=' in here makes an invalid key.
        [key] => (vec![key], ""),
        [key_value, effect] => {
            check_taint_effect(effect).map_err(named)?;
            (key_value.split('=').collect(), effect)
        }
        _ => return Err(format!("taint {text:?}: expected key=value:effect with one ':'")),
    };
    let (key, value) = match key_value[..] {
        [key] => (key, ""),
        [key, value] => (key, value),
        _ => return Err(format!("taint {text:?}: expected key=value:effect with one '='")),
    };
    check_label_value(value).map_err(named)?;
    check_qualified_name(key).map_err(named)?;
    let [key, value, effect] = [key, value, effect].map(str::to_owned);
    Ok(Taint { key, value, effect, time_added: None })
}

fn append_reservations(earlier: Option<FlagValue>, text: &str) -> Result<FlagValue, String> {
    let mut reservations = match (earlier, text) {
        (Some(earlier), "") => return Ok(earlier),
        (None, "") => return Ok(FlagValue::Untouched),
        (Some(FlagValue::Untouched), _) => return Err(AFTER_EMPTY_VALUE.to_owned()),
        (Some(FlagValue::Reservations(reservations)), _) => reservations,
        _ => Vec::new(),
    };
    for part in text.split(';') {
        reservations.push(parse_reservation(part)?);
    }
    Ok(FlagValue::Reservations(reservations))
}

fn parse_reservation(text: &str) -> Result<MemoryReservation, String> {
    let expected = || format!("{text:?}: expected numa-node:type=size[,type=size]");
    let (node, amounts) = text.split_once(':').ok_or_else(expected)?;
    if amounts.contains(':') {
        return Err(expected());
    }
    let digits = node.strip_prefix(['+', '-']).unwrap_or(node);
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let numa_node = match node.parse::<i32>() {
        Ok(number) if plain => number,
        _ => return Err(format!("{text:?}: expected a NUMA node's number before ':'")),
    };
    let mut limits = BTreeMap::new();
    for amount in amounts.split(',') {
        let mut sides = amount.split('=');
        let (Some(kind), Some(size), None) = (sides.next(), sides.next(), sides.next()) else {
            return Err(expected());
        };
        if kind != "memory" && !kind.starts_with("hugepages-") {
            return Err(format!("{kind:?}: expected memory or hugepages-SIZE"));
        }
        let size = Quantity::parse(size).map_err(|error| error.to_string())?;
        limits.insert(kind.to_owned(), size);
    }
    Ok(MemoryReservation { numa_node, limits })
}

fn append_modules(earlier: Option<FlagValue>, text: &str) -> Result<FlagValue, String> {
    let mut modules = match earlier {
        Some(FlagValue::Modules(modules)) => modules,
        _ => Vec::new(),
    };
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let mut sides = part.split('=');
        let (Some(pattern), Some(level), None) = (sides.next(), sides.next(), sides.next()) else {
            return Err(format!("{part:?}: expected pattern=level"));
        };
        if pattern.is_empty() || level.is_empty() {
            return Err(format!("{part:?}: expected pattern=level"));
        }
        let verbosity = parse_level(level).map_err(|expected| format!("{part:?}: {expected}"))?;
        modules.push(ModuleVerbosity { file_pattern: pattern.to_owned(), verbosity });
    }
    Ok(FlagValue::Modules(modules))
}
