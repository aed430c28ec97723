//! Cutting, order, exclusion, overlaps, exhaustion; the allocator never gives a block to two nodes.

use proptest::prelude::*;

use super::*;

fn pool(cluster: &str, mask: u8) -> Pool {
    Pool::new(&parse_cidr(cluster).expect("a network"), mask).expect("a pool")
}

fn ranges(pools: &[(&str, u8)]) -> CidrAllocator {
    with(pools, &[], &[]).0
}

fn with(
    pools: &[(&str, u8)],
    services: &[&str],
    nodes: &[(u32, &[&str])],
) -> (CidrAllocator, Vec<(NodeId, NodeCidrError)>) {
    let pools = pools.iter().map(|(cluster, mask)| pool(cluster, *mask)).collect();
    let services: Vec<_> =
        services.iter().map(|text| parse_cidr(text).expect("a network")).collect();
    let nodes: Vec<(NodeId, Vec<String>)> =
        nodes.iter().map(|(node, texts)| (NodeId(*node), owned(texts))).collect();
    CidrAllocator::new(
        pools,
        &services,
        nodes.iter().map(|(node, texts)| (*node, texts.as_slice())),
    )
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn given(ranges: &mut CidrAllocator, node: u32) -> String {
    match ranges.assign(NodeId(node)) {
        Assignment::Write(texts) => texts.join(" "),
        Assignment::Settled => "settled".to_owned(),
        Assignment::Fenced => "fenced".to_owned(),
        Assignment::Exhausted { cluster } => format!("exhausted {cluster}"),
    }
}

#[test]
fn cluster_ranges_that_can_be_divided() {
    let rows = [
        ("10.0.0.0/8", 24, None),
        ("10.0.0.0/24", 24, None),
        ("10.0.0.0/8", 32, None),
        ("10.0.0.0/7", 32, Some("more than 24 above")),
        ("0.0.0.0/0", 16, None),
        ("10.0.0.0/24", 23, Some("smaller than the range's own 24")),
        ("10.0.0.0/24", 33, Some("more than an address has (32)")),
        ("fd00::/48", 64, None),
        ("fd00::/47", 64, Some("more than 16 above")),
        ("fd00::/128", 128, None),
        ("fd00::/120", 129, Some("more than an address has (128)")),
    ];
    for (cluster, mask, error) in rows {
        let got = Pool::new(&parse_cidr(cluster).expect("a network"), mask);
        match (got, error) {
            (Ok(_), None) => {}
            (Err(got), Some(text)) => {
                assert!(got.to_string().contains(text), "{cluster} {mask}: {got}");
            }
            (got, _) => panic!("{cluster} {mask}: {got:?}"),
        }
    }
}

#[test]
fn blocks_in_order_of_both_families() {
    let rows: [(&str, u8, &[&str]); 8] = [
        (
            "10.1.0.0/22",
            24,
            &["10.1.0.0/24", "10.1.1.0/24", "10.1.2.0/24", "10.1.3.0/24", "exhausted 10.1.0.0/22"],
        ),
        ("127.123.234.0/30", 32, &["127.123.234.0/32", "127.123.234.1/32"]),
        ("10.9.9.9/24", 24, &["10.9.9.0/24", "exhausted 10.9.9.0/24"]),
        ("0.0.0.0/0", 1, &["0.0.0.0/1", "128.0.0.0/1", "exhausted 0.0.0.0/0"]),
        ("fd00:1::/48", 64, &["fd00:1::/64", "fd00:1:0:1::/64", "fd00:1:0:2::/64"]),
        ("2001:db8::/56", 72, &["2001:db8::/72", "2001:db8:0:0:100::/72"]),
        (
            "2001:db8::/63",
            65,
            &[
                "2001:db8::/65",
                "2001:db8:0:0:8000::/65",
                "2001:db8:0:1::/65",
                "2001:db8:0:1:8000::/65",
                "exhausted 2001:db8::/63",
            ],
        ),
        ("fd00::/127", 128, &["fd00::/128", "fd00::1/128", "exhausted fd00::/127"]),
    ];
    for (cluster, mask, expected) in rows {
        let mut ranges = ranges(&[(cluster, mask)]);
        for (node, text) in (0..).zip(expected) {
            let same = match parse_cidr(text) {
                Ok(cidr) => parse_cidr(&given(&mut ranges, node)) == Ok(cidr),
                Err(_) => given(&mut ranges, node) == *text,
            };
            assert!(same, "{cluster} {mask}: node {node} should have {text}");
        }
    }
}

#[test]
fn after_the_last_comes_the_first_free() {
    let mut ranges = ranges(&[("10.1.0.0/22", 24)]);
    for node in 0..4 {
        given(&mut ranges, node);
    }
    ranges.gone(NodeId(1));
    assert_eq!(given(&mut ranges, 5), "10.1.1.0/24", "around");
    ranges.gone(NodeId(0));
    ranges.gone(NodeId(3));
    assert_eq!(given(&mut ranges, 6), "10.1.3.0/24", "on from the last, not from the start");
    assert_eq!(given(&mut ranges, 7), "10.1.0.0/24");
    ranges.gone(NodeId(7));
    ranges.gone(NodeId(2));
    assert_eq!(given(&mut ranges, 8), "10.1.2.0/24", "one that was just given back can wait");
}

#[test]
fn two_families_are_all_or_nothing() {
    let mut ranges = ranges(&[("10.1.0.0/23", 24), ("fd00::/64", 64)]);
    assert_eq!(given(&mut ranges, 1), "10.1.0.0/24 fd00::/64");
    assert_eq!(given(&mut ranges, 2), "exhausted fd00::/64");
    assert_eq!(ranges.pools()[0].taken(), 1, "the other family's block went back");
    ranges.gone(NodeId(1));
    assert_eq!(
        given(&mut ranges, 2),
        "10.1.0.0/24 fd00::/64",
        "next is behind the block that went back"
    );
}

#[test]
fn service_ranges_are_left_out() {
    let rows: [(&str, &str); 6] = [
        ("10.1.0.0/24", "10.1.1.0/24"),
        ("10.1.0.0/23", "10.1.2.0/24"),
        ("10.1.0.128/25", "10.1.1.0/24"),
        ("10.0.0.0/8", "exhausted 10.1.0.0/22"),
        ("10.2.0.0/16", "10.1.0.0/24"),
        ("fd00::/64", "10.1.0.0/24"),
    ];
    for (service, first) in rows {
        let (mut ranges, _) = with(&[("10.1.0.0/22", 24)], &[service], &[]);
        assert_eq!(given(&mut ranges, 1), first, "service range {service}");
    }
    let half = with(&[("10.1.0.0/16", 24)], &["10.1.0.0/17"], &[]);
    assert_eq!(given(&mut { half.0 }, 1), "10.1.128.0/24");
    let (within, _) = with(&[("10.1.0.0/22", 24)], &["10.1.0.0/23", "10.1.1.0/24"], &[]);
    assert_eq!(within.pools()[0].taken(), 2, "each counts once");
}

#[test]
fn a_block_in_a_service_range_stays_excluded_after_its_node_is_deleted() {
    let (mut ranges, _) = with(&[("10.1.0.0/22", 24)], &["10.1.0.0/24"], &[(1, &["10.1.0.0/23"])]);
    ranges.gone(NodeId(1));
    assert_eq!(ranges.pools()[0].taken(), 1);
    for (node, range) in [(2, "10.1.1.0/24"), (3, "10.1.2.0/24"), (4, "10.1.3.0/24")] {
        assert_eq!(given(&mut ranges, node), range);
    }
    assert_eq!(given(&mut ranges, 5), "exhausted 10.1.0.0/22");
}

#[test]
fn existing_ranges_are_recorded_first() {
    let (mut ranges, problems) = with(
        &[("10.1.0.0/22", 24)],
        &[],
        &[(1, &["10.1.0.0/24"]), (2, &["10.1.2.64/26"]), (3, &[])],
    );
    assert_eq!(problems, []);
    assert_eq!(given(&mut ranges, 1), "settled");
    assert_eq!(given(&mut ranges, 3), "10.1.1.0/24");
    assert_eq!(given(&mut ranges, 4), "10.1.3.0/24", "a smaller range holds its whole block");
    let (mut wide, _) = with(&[("10.1.0.0/22", 24)], &[], &[(1, &["10.1.0.0/23"])]);
    assert_eq!(given(&mut wide, 2), "10.1.2.0/24", "a wider range holds all it touches");
    let (mut all, _) = with(&[("10.1.0.0/22", 24)], &[], &[(1, &["10.0.0.0/8"])]);
    assert_eq!(given(&mut all, 2), "exhausted 10.1.0.0/22");
    assert_eq!(all.pools()[0].taken(), 4);
}

#[test]
fn bad_ranges_are_reported_and_block_no_other_node() {
    let (mut ranges, problems) = with(
        &[("10.1.0.0/22", 24)],
        &[],
        &[
            (1, &["garbage"]),
            (2, &["10.9.0.0/24"]),
            (3, &["10.1.1.0/24", "fd00::/64"]),
            (4, &["10.1.1.0/24"]),
            (5, &["fd00::/64"]),
        ],
    );
    let texts: Vec<_> =
        problems.iter().map(|(node, problem)| (node.0, problem.to_string())).collect();
    let expected = [
        (1, "pod range \"garbage\" is no network; expected something like \"10.1.2.0/24\""),
        (2, "pod range 10.9.0.0/24 lies outside the cluster range 10.1.0.0/22"),
        (3, "pod range fd00::/64 is number 2, but there are only 1 cluster ranges"),
        (4, "pod range 10.1.1.0/24 overlaps with a range of another node"),
        (5, "pod range fd00::/64 lies outside the cluster range 10.1.0.0/22"),
    ];
    assert_eq!(texts, expected.map(|(node, text)| (node, text.to_owned())));
    assert_eq!(given(&mut ranges, 1), "settled", "what has a range, even a bad one, gets no other");
    assert_eq!(given(&mut ranges, 9), "10.1.0.0/24");
}

#[test]
fn a_shared_block_is_free_only_when_the_last_holder_goes() {
    let same: &[&str] = &["10.1.0.0/24"];
    let (mut ranges, problems) =
        with(&[("10.1.0.0/23", 24)], &[], &[(1, same), (2, same), (3, same)]);
    assert_eq!(problems.len(), 2);
    assert!(matches!(problems[0].1, NodeCidrError::Overlap { with: NodeId(1), .. }));
    assert_eq!(given(&mut ranges, 9), "10.1.1.0/24");
    ranges.gone(NodeId(1));
    ranges.gone(NodeId(3));
    assert_eq!(given(&mut ranges, 8), "exhausted 10.1.0.0/23");
    ranges.gone(NodeId(2));
    assert_eq!(given(&mut ranges, 8), "10.1.0.0/24");
}

#[test]
fn an_overlap_is_reported_once_and_a_change_is_applied() {
    let same: &[&str] = &["10.1.0.0/24"];
    let (mut ranges, problems) = with(&[("10.1.0.0/22", 24)], &[], &[(1, same), (2, same)]);
    assert_eq!(problems.len(), 1);
    assert_eq!(ranges.seen(NodeId(2), &owned(same)), [], "told already");
    for odd in [&["all of them"][..], &["10.9.0.0/24"], &["10.1.3.0/24", "10.1.2.0/24"]] {
        assert_eq!(ranges.seen(NodeId(7), &owned(odd)).len(), 1, "{odd:?}");
        assert_eq!(ranges.seen(NodeId(7), &owned(odd)), [], "{odd:?}: told already");
        ranges.gone(NodeId(7));
    }
    ranges.gone(NodeId(1));
    assert_eq!(ranges.seen(NodeId(2), &owned(&["10.1.1.0/24"])), []);
    assert_eq!(given(&mut ranges, 3), "10.1.0.0/24", "what it had is free");
    assert_eq!(given(&mut ranges, 4), "10.1.2.0/24", "what it has is not");
}

#[test]
fn an_assignment_follows_the_outcome_of_its_write() {
    let fresh = || {
        let mut ranges = ranges(&[("10.1.0.0/23", 24)]);
        assert_eq!(given(&mut ranges, 1), "10.1.0.0/24");
        ranges
    };
    let mut ranges = fresh();
    assert_eq!(given(&mut ranges, 1), "settled", "a write is on its way");
    assert_eq!(ranges.pending(NodeId(1)), Some(owned(&["10.1.0.0/24"])));
    ranges.written(NodeId(1), AssignmentOutcome::Unknown);
    assert_eq!(given(&mut ranges, 2), "10.1.1.0/24", "its block is not free");
    ranges.written(NodeId(1), AssignmentOutcome::Refused);
    assert_eq!(given(&mut ranges, 3), "10.1.0.0/24", "now it is");

    let mut ranges = fresh();
    ranges.written(NodeId(1), AssignmentOutcome::Written);
    assert_eq!(ranges.pending(NodeId(1)), None);
    ranges.written(NodeId(1), AssignmentOutcome::Refused);
    assert_eq!(ranges.pools()[0].taken(), 1, "a late refusal takes nothing away");

    let mut ranges = fresh();
    assert_eq!(ranges.seen(NodeId(1), &owned(&["10.1.1.0/24"])), [], "somebody else was quicker");
    assert_eq!(given(&mut ranges, 2), "10.1.0.0/24", "ours went back");
    assert_eq!(ranges.seen(NodeId(1), &owned(&["10.1.1.0/24"])), [], "quiet when seen again");
    assert_eq!(ranges.seen(NodeId(1), &[]), [], "an old view without ranges changes nothing");
}

/// An earlier leader assigned a CIDR to node 1; its write to 2 or 3 may still be in flight.
#[test]
fn nothing_is_handed_out_before_the_fence_opens() {
    use fence::{TouchEffect, TouchOutcome};
    let now = ControllerTime::from_secs(7);
    let fenced = || {
        let (mut ranges, _) =
            with(&[("10.1.0.0/16", 24)], &[], &[(1, &["10.1.0.0/24"]), (2, &[]), (3, &[])]);
        ranges.raise_fence(now, [1, 2, 3].map(NodeId));
        assert_eq!(ranges.fence_mut().due(now), [2, 3].map(NodeId), "who has one needs none");
        assert_eq!(given(&mut ranges, 4), "fenced", "whoever asks");
        assert_eq!(given(&mut ranges, 1), "settled");
        ranges
    };
    let mut ranges = fenced();
    assert_eq!(
        ranges.fence_mut().touched(now, NodeId(2), TouchOutcome::Changed),
        TouchEffect::Passed
    );
    assert_eq!(given(&mut ranges, 2), "fenced", "3 may still get any range");
    // The write to node 3 arrived.
    assert_eq!(ranges.seen(NodeId(3), &owned(&["10.1.1.0/24"])), []);
    assert!(ranges.fence_mut().has_opened());
    assert_eq!(given(&mut ranges, 2), "10.1.2.0/24");
    assert_eq!(given(&mut ranges, 4), "10.1.3.0/24");

    let mut ranges = fenced();
    ranges.gone(NodeId(3));
    ranges.gone(NodeId(1));
    assert_eq!(given(&mut ranges, 2), "fenced");
    ranges.fence_mut().passes(NodeId(2));
    assert!(ranges.fence_mut().has_opened());
    assert_eq!(given(&mut ranges, 2), "10.1.0.0/24", "a new node's");
}

proptest! {
    /// Under any sequence of events an allocated block has one holder, and the count is right.
    #[test]
    fn nothing_is_handed_out_twice(steps in proptest::collection::vec((0_u8..5, 0_u32..40), 1..300)) {
        let mut ranges = ranges(&[("10.1.0.0/19", 24), ("fd00::/59", 64)]);
        let mut world: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for (what, node) in steps {
            match what {
                0..=2 => match ranges.assign(NodeId(node)) {
                    Assignment::Write(texts) => {
                        for text in &texts {
                            prop_assert!(!world.values().flatten().any(|other| other == text), "{text} twice");
                        }
                        world.insert(node, texts);
                        ranges.written(NodeId(node), AssignmentOutcome::Written);
                    }
                    Assignment::Settled => prop_assert!(world.contains_key(&node)),
                    Assignment::Exhausted { .. } => prop_assert_eq!(world.len(), 32),
                    Assignment::Fenced => prop_assert!(false, "nobody raised a fence"),
                },
                3 => { ranges.gone(NodeId(node)); world.remove(&node); }
                _ => if let Some(texts) = world.get(&node) {
                    prop_assert_eq!(ranges.seen(NodeId(node), texts), vec![]);
                },
            }
            prop_assert_eq!(ranges.pools()[0].taken() as usize, world.len());
            prop_assert_eq!(ranges.pools()[1].taken() as usize, world.len());
        }
    }
}
