//! What two runs of the script have in common and where they differ.
//!
//! Rule: in each phase, each node has the same changes, each as often; if one change always
//! precedes another in the reference's run, it never follows it in ours; nodes of a zone that stop
//! their heartbeats one after the other are detected and tainted in the same order; a missing
//! heartbeat is detected no later. Events are compared by their text, not by count or time. A
//! difference is one line of text without times, so that known ones can be listed; one that is not
//! in the list fails the comparison, and so does one in the list that no longer occurs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use super::recorder::RecordedChange;
use super::script::PhaseRecord;

/// How much later than the reference a detection may be: the usual difference between two runs.
const TOLERANCE: Duration = Duration::from_millis(500);
/// An order that the reference's run shows less often is not required of ours.
const MIN_OBSERVATIONS: usize = 5;

type ChangeCounts = BTreeMap<String, usize>;

/// All differences, each a line.
pub fn differences(ours: &[PhaseRecord], theirs: &[PhaseRecord]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (our, their) in ours.iter().zip(theirs) {
        let (mine, reference) = (by_node(&our.entries), by_node(&their.entries));
        let nodes: BTreeSet<&String> = mine.keys().chain(reference.keys()).collect();
        for node in nodes {
            let empty = ChangeCounts::new();
            let mine = mine.get(node).unwrap_or(&empty);
            let reference = reference.get(node).unwrap_or(&empty);
            let changes: BTreeSet<&String> = mine.keys().chain(reference.keys()).collect();
            for what in changes {
                let counts = (mine.get(what).copied(), reference.get(what).copied());
                let difference = match counts {
                    (Some(ours), Some(theirs)) if ours == theirs => continue,
                    (Some(_), None) => "only here".to_owned(),
                    (None, Some(_)) => "only in the reference".to_owned(),
                    (ours, theirs) => format!(
                        "{} here, {} in the reference",
                        ours.unwrap_or(0),
                        theirs.unwrap_or(0)
                    ),
                };
                found.insert(format!("{} | {what} | {difference}", our.name));
            }
        }
        if let (Some(ours), Some(theirs)) = (our.noticed, their.noticed)
            && ours > theirs + TOLERANCE
        {
            found.insert(format!(
                "{} | missing heartbeats are detected later than in the reference",
                our.name
            ));
        }
    }
    found.extend(order_differences(ours, theirs));
    found.extend(turns(ours, theirs).1);
    found
}

/// The changes whose order between nodes is compared: detection, and the unreachable taint.
const ORDERED_CHANGES: [&str; 2] =
    ["+condition Ready=Unknown", "+taint node.kubernetes.io/unreachable=:NoExecute"];

/// The number of node pairs that were compared, and the pairs that are in another order here. A
/// pair is two nodes of one zone whose heartbeats stopped at times that the reference can
/// distinguish: it checks all nodes once per monitor period, in no order, and queues those that it
/// finds.
pub fn turns(ours: &[PhaseRecord], theirs: &[PhaseRecord]) -> (usize, BTreeSet<String>) {
    let (mut pairs, mut found) = (0, BTreeSet::new());
    for (our, their) in ours.iter().zip(theirs) {
        for (first, second) in pairs_silenced_in_sequence(&their.silenced) {
            for change in ORDERED_CHANGES {
                let position = |record: &PhaseRecord, node: &str| {
                    let matches = |entry: &RecordedChange| {
                        entry.node == node && entry.what.starts_with(change)
                    };
                    record.entries.iter().position(matches)
                };
                let is_first = |record| Some(position(record, first)? < position(record, second)?);
                // `differences` reports a missing change by its count.
                if let (Some(here), Some(there)) = (is_first(our), is_first(their)) {
                    pairs += 1;
                    if here != there {
                        found.insert(format!(
                            "{} | {change} | {first} and {second} in another order",
                            our.name
                        ));
                    }
                }
            }
        }
    }
    (pairs, found)
}

/// Pairs of nodes of one zone: the first is of an earlier group than the second.
fn pairs_silenced_in_sequence(
    groups: &[&'static [&'static str]],
) -> Vec<(&'static str, &'static str)> {
    let zone = |node: &str| node.chars().next();
    let mut pairs = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        for second in groups.iter().skip(at + 1).copied().flatten() {
            let firsts = group.iter().filter(|first| zone(first) == zone(second));
            pairs.extend(firsts.map(|first| (*first, *second)));
        }
    }
    pairs
}

/// How often each change was made, node by node. Events count once.
fn by_node(entries: &[RecordedChange]) -> BTreeMap<String, ChangeCounts> {
    let mut nodes: BTreeMap<String, ChangeCounts> = BTreeMap::new();
    for entry in entries {
        // A difference in an event about each node is one difference, not fifteen.
        let what = match is_event(&entry.what) {
            true => entry.what.replace(&entry.node, "NODE"),
            false => entry.what.clone(),
        };
        let count = nodes.entry(entry.node.clone()).or_default().entry(what);
        let count = count.or_default();
        *count = if is_event(&entry.what) { 1 } else { *count + 1 };
    }
    nodes
}

fn is_event(what: &str) -> bool {
    what.starts_with("event") || what.contains(" event ")
}

/// By a pair of changes: how often the first of them preceded the second on a node.
type OrderCounts = BTreeMap<(String, String), usize>;

fn count_orders(records: &[PhaseRecord]) -> OrderCounts {
    let mut found = OrderCounts::new();
    for record in records.iter().filter(|record| record.ordered) {
        let mut nodes: BTreeMap<&str, Vec<&RecordedChange>> = BTreeMap::new();
        for entry in record.entries.iter().filter(|entry| !is_event(&entry.what)) {
            nodes.entry(&entry.node).or_default().push(entry);
        }
        for entries in nodes.values() {
            // Only changes that happen once in a phase have an order.
            let once: Vec<&&RecordedChange> = entries
                .iter()
                .filter(|entry| {
                    entries.iter().filter(|other| other.what == entry.what).count() == 1
                })
                .collect();
            for (at, first) in once.iter().enumerate() {
                for second in once.iter().skip(at + 1).filter(|later| later.version > first.version)
                {
                    *found.entry((first.what.clone(), second.what.clone())).or_default() += 1;
                }
            }
        }
    }
    found
}

fn order_differences(ours: &[PhaseRecord], theirs: &[PhaseRecord]) -> BTreeSet<String> {
    let (mine, reference) = (count_orders(ours), count_orders(theirs));
    let mut found = BTreeSet::new();
    for ((first, second), count) in &reference {
        let reversed = (second.clone(), first.clone());
        let is_rule = *count >= MIN_OBSERVATIONS && !reference.contains_key(&reversed);
        if is_rule && mine.contains_key(&reversed) {
            found.insert(format!("order | {first} | before | {second} | in the reference"));
        }
    }
    found
}

/// The list of known differences: one per line, with its reason after ` # `. Lines that begin with
/// `#` are comments; those that begin with `~ ` are decided by a race within the reference, and so
/// may be missing.
pub fn known(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (difference, reason) = line.split_once(" # ").unwrap_or((line, ""));
            (difference.trim().to_owned(), reason.trim().to_owned())
        })
        .collect()
}

/// The errors of the list, given what was found; empty if there are none.
pub fn verdict(found: &BTreeSet<String>, known: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for difference in found {
        if !known.contains_key(difference) && !known.contains_key(&format!("~ {difference}")) {
            let _ = writeln!(text, "not in the list: {difference}");
        }
    }
    for (difference, reason) in known {
        if !found.contains(difference) && !difference.starts_with("~ ") {
            let _ = writeln!(text, "in the list, but not there any more: {difference}");
        }
        if reason.is_empty() {
            let _ = writeln!(text, "in the list without a reason: {difference}");
        }
    }
    text
}

#[cfg(test)]
mod tests;
