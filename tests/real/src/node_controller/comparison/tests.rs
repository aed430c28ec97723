//! What the comparison treats as equal, and what as a difference.

use super::*;
use tokio::time::Instant;

fn record(changes: &[(&str, &str)]) -> PhaseRecord {
    let entries = changes.iter().zip(1..).map(|((node, what), version)| RecordedChange {
        version,
        at: Instant::now(),
        node: (*node).to_owned(),
        what: (*what).to_owned(),
    });
    let entries = entries.collect();
    PhaseRecord { name: "p", entries, noticed: None, ordered: true, silenced: Vec::new() }
}

#[test]
fn nodes_that_stop_heartbeats_in_sequence_are_tainted_in_that_order() {
    const UNREACHABLE_TAINT: &str = "+taint node.kubernetes.io/unreachable=:NoExecute";
    // The first two fall silent together; the last one is of another zone.
    const SILENCED: [&[&str]; 3] = [&["b1", "b2"], &["b3"], &["a1"]];
    let tainted = |nodes: [&str; 4]| {
        let changes = nodes.map(|node| (node, UNREACHABLE_TAINT));
        [PhaseRecord { silenced: SILENCED.to_vec(), ..record(&changes) }]
    };
    let theirs = tainted(["b1", "b2", "b3", "a1"]);
    assert_eq!(turns(&tainted(["a1", "b2", "b1", "b3"]), &theirs), (2, BTreeSet::new()));
    let (pairs, found) = turns(&tainted(["b1", "b3", "b2", "a1"]), &theirs);
    let expected = format!("p | {UNREACHABLE_TAINT} | b2 and b3 in another order");
    assert_eq!((pairs, found.into_iter().collect::<Vec<_>>()), (2, vec![expected.clone()]));
    assert!(differences(&tainted(["b1", "b3", "b2", "a1"]), &theirs).contains(&expected));
}

#[test]
fn missing_and_additional_changes_are_found_and_events_count_once() {
    let ours = [record(&[("n", "a"), ("n", "event x"), ("n", "event x"), ("n", "c")])];
    let theirs = [record(&[("n", "a"), ("n", "a"), ("n", "b"), ("n", "event x")])];
    let found: Vec<String> = differences(&ours, &theirs).into_iter().collect();
    assert_eq!(
        found,
        [
            "p | a | 1 here, 2 in the reference",
            "p | b | only in the reference",
            "p | c | only here"
        ]
    );
    assert!(differences(&ours, &ours).is_empty());
}

#[test]
fn an_order_that_always_holds_must_hold_here() {
    let nodes = ["1", "2", "3", "4", "5"];
    let straight: Vec<(&str, &str)> = nodes.iter().flat_map(|n| [(*n, "a"), (*n, "b")]).collect();
    let reversed: Vec<(&str, &str)> = nodes.iter().flat_map(|n| [(*n, "b"), (*n, "a")]).collect();
    let found = differences(&[record(&reversed)], &[record(&straight)]);
    assert_eq!(
        found.into_iter().collect::<Vec<_>>(),
        ["order | a | before | b | in the reference"]
    );
    // If the reference has both orders, neither is required.
    let both: Vec<(&str, &str)> =
        straight.iter().chain(&[("6", "b"), ("6", "a")]).copied().collect();
    let mixed: Vec<(&str, &str)> =
        reversed.iter().chain(&[("6", "a"), ("6", "b")]).copied().collect();
    assert!(differences(&[record(&mixed)], &[record(&both)]).is_empty());
}

#[test]
fn missed_heartbeats_must_be_detected_in_time() {
    let mut ours = record(&[]);
    let mut theirs = record(&[]);
    (ours.noticed, theirs.noticed) = (Some(Duration::from_secs(9)), Some(Duration::from_secs(7)));
    assert_eq!(differences(&[ours.clone()], &[theirs.clone()]).len(), 1);
    assert!(differences(&[theirs], &[ours]).is_empty());
}

#[test]
fn the_list_fails_when_stale_and_without_reasons() {
    let known = known("# stamp\na | b # because\nc | d\n~ f # a race\n~ g # another\n");
    let found = BTreeSet::from(["a | b", "e", "f"].map(str::to_owned));
    let verdict = verdict(&found, &known);
    assert!(verdict.contains("not in the list: e\n"), "{verdict}");
    assert!(verdict.contains("not there any more: c | d\n"), "{verdict}");
    assert!(verdict.contains("without a reason: c | d\n"), "{verdict}");
    assert_eq!(verdict.lines().count(), 3, "{verdict}");
}
