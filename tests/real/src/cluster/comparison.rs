//! What two agents report of the same pods: normalised, and compared field by field.
//!
//! Rule: only what differs between any two runs is left out: times, identifiers, addresses, numbers
//! in texts. Everything else must be equal, or be explained by the caller.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// Fields whose values are of one run.
const OF_ONE_RUN: &[&str] = &[
    "startTime",
    "startedAt",
    "finishedAt",
    "lastTransitionTime",
    "lastProbeTime",
    "containerID",
    "podIP",
    "podIPs",
];

/// What an agent reported of a pod.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ComparedPod {
    /// The status, normalised.
    pub status: Value,
    /// `Type Reason message`, normalised.
    pub events: BTreeSet<String>,
}

impl ComparedPod {
    /// Normalises a status and events as the API server has them.
    pub fn new(status: &Value, events: impl IntoIterator<Item = String>) -> Self {
        let events = events.into_iter().map(|line| without_numbers(&line)).collect();
        Self { status: normalised(status), events }
    }
}

fn normalised(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| !OF_ONE_RUN.contains(&name.as_str()));
            let texts = kept.map(|(name, value)| match value {
                Value::String(text) if name == "message" => {
                    (name.clone(), Value::String(without_numbers(text)))
                }
                value => (name.clone(), normalised(value)),
            });
            Value::Object(texts.collect())
        }
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(normalised).collect();
            // Conditions are a map by type; their order means nothing.
            if items.iter().all(|item| item["type"].is_string()) {
                items.sort_by_key(|item| item["type"].as_str().map(str::to_owned));
            }
            Value::Array(items)
        }
        value => value.clone(),
    }
}

/// Words of hexadecimal digits become `ID`, other runs of digits `N`.
fn without_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_word = |letter: char| letter.is_ascii_alphanumeric();
        let end = rest.find(|letter: char| !is_word(letter)).unwrap_or(rest.len());
        if end == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (word, after) = rest.split_at(end);
        let is_hexadecimal = word.chars().all(|letter| letter.is_ascii_hexdigit());
        if is_hexadecimal
            && word.len() >= 4
            && word.contains(|letter: char| letter.is_ascii_digit())
        {
            out.push_str("ID");
        } else {
            let mut was_digit = false;
            for letter in word.chars() {
                if !letter.is_ascii_digit() {
                    out.push(letter);
                } else if !was_digit {
                    out.push('N');
                }
                was_digit = letter.is_ascii_digit();
            }
        }
        rest = after;
    }
    out
}

/// The differences, a line each: `pod/path: reference …, ours …` or `pod event ours only: …`.
pub fn differences(
    reference: &BTreeMap<String, ComparedPod>,
    ours: &BTreeMap<String, ComparedPod>,
) -> Vec<String> {
    let names: BTreeSet<&String> = reference.keys().chain(ours.keys()).collect();
    let nothing = ComparedPod::default();
    let mut found = Vec::new();
    for name in names {
        let theirs = reference.get(name).unwrap_or(&nothing);
        let own = ours.get(name).unwrap_or(&nothing);
        differ(name, &theirs.status, &own.status, &mut found);
        for event in theirs.events.difference(&own.events) {
            found.push(format!("{name} event of the reference only: {event}"));
        }
        for event in own.events.difference(&theirs.events) {
            found.push(format!("{name} event of ours only: {event}"));
        }
    }
    found
}

fn differ(path: &str, reference: &Value, ours: &Value, found: &mut Vec<String>) {
    match (reference, ours) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for key in keys {
                let of = |map: &Map<String, Value>| map.get(key).cloned().unwrap_or(Value::Null);
                differ(&format!("{path}/{key}"), &of(one), &of(other), found);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (left, right)) in one.iter().zip(other).enumerate() {
                let name = left["type"].as_str().or_else(|| left["name"].as_str());
                let place = name.map_or_else(|| index.to_string(), str::to_owned);
                differ(&format!("{path}/{place}"), left, right, found);
            }
        }
        (one, other) if one == other => {}
        (one, other) => found.push(format!("{path}: reference {one}, ours {other}")),
    }
}

#[cfg(test)]
mod tests;
