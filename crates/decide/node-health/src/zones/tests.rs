//! States at their boundaries, and every way into and out of a blackout.

use super::*;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn zone_keys_come_from_labels() {
    let (old_zone, zone) = (ZONE_LABELS[0], ZONE_LABELS[1]);
    let (old_region, region) = (REGION_LABELS[0], REGION_LABELS[1]);
    let rows: [(&[(&str, &str)], &str); 7] = [
        (&[], ""),
        (&[(zone, ""), (region, "")], ""),
        (&[(zone, "z")], ":\0:z"),
        (&[(region, "r")], "r:\0:"),
        (&[(zone, "z"), (region, "r")], "r:\0:z"),
        (&[(zone, "z"), (region, "r"), (old_zone, "y"), (old_region, "q")], "q:\0:y"),
        (&[(zone, "z"), (old_zone, "")], ""),
    ];
    for (have, key) in rows {
        assert_eq!(ZoneKey::from_labels(&labels(have)).as_str(), key, "{have:?}");
    }
    assert!(is_excluded(&labels(&[(EXCLUDE_LABEL, "")])));
    assert!(!is_excluded(&labels(&[(zone, "z")])));
}

#[test]
fn states_and_rates() {
    use ZoneState::{Full, Initial, Normal, Partial};
    let settings = ZoneSettings::default();
    let rows = [
        (0, 0, Normal),
        (1, 0, Normal),
        (0, 1, Full),
        (0, 100, Full),
        (1, 2, Normal),   // two not-ready nodes never make a zone partial
        (2, 3, Partial),  // 0.6
        (9, 11, Partial), // 0.55 exactly
        (10, 11, Normal), // 0.52
        (46, 54, Normal), // 0.54
        (45, 55, Partial),
    ];
    for (ready, not_ready, state) in rows {
        assert_eq!(settings.state(ready, not_ready), state, "{ready} ready, {not_ready} not");
    }
    let (fast, slow) = (settings.rate, settings.secondary_rate);
    assert_eq!(fast.interval(), Some(Duration::from_secs(10)));
    assert_eq!(slow.interval(), Some(Duration::from_secs(100)));
    let rows = [
        (Initial, 10, fast),
        (Normal, 10, fast),
        (Full, 10, fast),
        (Partial, 50, EvictionRate::NEVER),
        (Partial, 51, slow),
    ];
    for (state, size, rate) in rows {
        assert_eq!(settings.rate_in(state, size), rate, "{state:?} {size}");
    }
    for rate in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY, 1e-300] {
        assert_eq!(EvictionRate::per_second(rate), EvictionRate::NEVER, "{rate}");
    }
}

/// Two zones of this many nodes, all ready and evaluated.
fn two_zones(nodes: usize) -> (Zones, ZoneId, ZoneId) {
    let mut zones = Zones::new(ZoneSettings::default());
    let a = zones.handle(&ZoneKey("a".into()));
    let b = zones.handle(&ZoneKey("b".into()));
    for _ in 0..nodes {
        zones.recount(a, None, Some(true));
        zones.recount(b, None, Some(true));
    }
    assert!(zones.needs_evaluation());
    let first = zones.evaluate();
    assert!(!zones.needs_evaluation());
    assert_eq!(first.rates.len(), 2, "from Initial to Normal");
    assert!(!first.blackout_began && !first.blackout_ended);
    (zones, a, b)
}

fn fail_nodes(zones: &mut Zones, zone: ZoneId, nodes: usize) -> ZoneChanges {
    for _ in 0..nodes {
        zones.recount(zone, Some(true), Some(false));
    }
    zones.evaluate()
}

fn recover_nodes(zones: &mut Zones, zone: ZoneId, nodes: usize) -> ZoneChanges {
    for _ in 0..nodes {
        zones.recount(zone, Some(false), Some(true));
    }
    zones.evaluate()
}

#[test]
fn a_zone_changes_its_rate_as_its_nodes_fail_and_recover() {
    let (mut zones, a, _) = two_zones(60);
    let settings = ZoneSettings::default();
    assert_eq!(fail_nodes(&mut zones, a, 32), ZoneChanges::default(), "0.53 changes nothing");
    assert_eq!(fail_nodes(&mut zones, a, 1).rates, [(a, settings.secondary_rate)], "0.55");
    let counts = zones.get(a).map(|zone| (zone.ready(), zone.not_ready()));
    assert_eq!(counts, Some((27, 33)));
    assert_eq!(fail_nodes(&mut zones, a, 26).rates, [], "still partial");
    assert_eq!(
        fail_nodes(&mut zones, a, 1).rates,
        [(a, settings.rate)],
        "entirely dark, the other zone is not"
    );
    assert!(!zones.in_blackout());
    assert_eq!(recover_nodes(&mut zones, a, 1).rates, [(a, settings.secondary_rate)]);
    assert_eq!(recover_nodes(&mut zones, a, 59).rates, [(a, settings.rate)]);
}

#[test]
fn blackout_begins_with_the_last_zone_and_ends_with_the_first_node() {
    let (mut zones, a, b) = two_zones(3);
    assert!(!fail_nodes(&mut zones, a, 3).blackout_began);
    let began = fail_nodes(&mut zones, b, 3);
    assert!(began.blackout_began && zones.in_blackout());
    assert_eq!(
        began.rates,
        [(a, EvictionRate::NEVER), (b, EvictionRate::NEVER)],
        "both zones, whether their state changed or not"
    );
    zones.recount(a, None, Some(false));
    assert_eq!(zones.evaluate(), ZoneChanges::default(), "one more dark node changes nothing");
    let ended = recover_nodes(&mut zones, b, 1);
    assert!(ended.blackout_ended && !zones.in_blackout());
    let rate = ZoneSettings::default().rate;
    assert_eq!(
        ended.rates,
        [(a, rate), (b, rate)],
        "b: two of three nodes are not enough for partial"
    );
}

#[test]
fn a_restarted_controller_detects_the_blackout() {
    let mut zones = Zones::new(ZoneSettings::default());
    let a = zones.handle(&ZoneKey::default());
    zones.recount(a, None, Some(false));
    assert!(zones.evaluate().blackout_began);
}

#[test]
fn zones_without_nodes_are_no_blackout() {
    let mut zones = Zones::new(ZoneSettings::default());
    let a = zones.handle(&ZoneKey::default());
    assert_eq!(zones.evaluate(), ZoneChanges::default());
    zones.recount(a, None, Some(true));
    zones.evaluate();
    zones.recount(a, Some(true), None);
    assert_eq!(zones.evaluate().rates, [(a, ZoneSettings::default().rate)]);
    assert_eq!(zones.get(a).map(Zone::state), Some(ZoneState::Initial));
    assert!(!zones.in_blackout());
}

#[test]
fn a_dark_zone_whose_last_node_is_deleted_no_longer_counts() {
    let (mut zones, a, b) = two_zones(1);
    fail_nodes(&mut zones, a, 1);
    assert!(fail_nodes(&mut zones, b, 1).blackout_began);
    zones.recount(a, Some(false), None);
    assert!(!zones.evaluate().blackout_ended, "b alone is dark");
    zones.recount(b, Some(false), None);
    assert!(zones.evaluate().blackout_ended, "no node is left");
}

/// Whether a zone is large is checked when its state changes or a blackout ends, not while nodes
/// join and leave in between, as upstream: a zone that shrinks keeps the slow rate, one that grows
/// evicts no node.
#[test]
fn a_zone_keeps_its_rate_until_its_state_changes() {
    let (slow, never) = (ZoneSettings::default().secondary_rate, EvictionRate::NEVER);
    let rows = [
        // nodes, rate when first partial, nodes later, rate when partial again
        (50, never, 51, slow),
        (50, never, 55, slow),
        (51, slow, 50, never),
        (60, slow, 45, never),
        (60, slow, 51, slow),
        (50, never, 45, never),
    ];
    for (before, rate, after, later_rate) in rows {
        let case = format!("{before}, then {after}");
        let (mut zones, a, b) = two_zones(before);
        assert_eq!(fail_nodes(&mut zones, a, before - 5).rates, [(a, rate)], "{case}");
        for _ in before..after {
            zones.recount(a, None, Some(false));
        }
        for _ in after..before {
            zones.recount(a, Some(false), None);
        }
        assert_eq!(zones.evaluate().rates, [], "{case}: no new state");
        assert_eq!(recover_nodes(&mut zones, a, after - 10).rates.len(), 1, "{case}: normal again");
        assert_eq!(
            fail_nodes(&mut zones, a, after - 10).rates,
            [(a, later_rate)],
            "{case}: partial again"
        );
        assert_eq!(fail_nodes(&mut zones, a, 5).rates.len(), 1, "{case}: entirely dark");
        assert_eq!(
            recover_nodes(&mut zones, a, 5).rates,
            [(a, later_rate)],
            "{case}: partial after that"
        );
        fail_nodes(&mut zones, a, 5);
        assert!(fail_nodes(&mut zones, b, before).blackout_began, "{case}");
        let normal = (b, ZoneSettings::default().rate);
        assert_eq!(
            recover_nodes(&mut zones, a, 5).rates,
            [(a, later_rate), normal],
            "{case}: after a blackout"
        );
    }
}

#[test]
fn empty_zones_are_swept_when_there_are_many_zones() {
    let key = |number: usize| {
        ZoneKey::from_labels(&labels(&[(ZONE_LABELS[1], format!("z{number}").as_str())]))
    };
    let mut zones = Zones::new(ZoneSettings::default());
    let first = zones.handle(&key(0));
    zones.recount(first, None, Some(true));
    for number in 1..MAX_UNSWEPT_ZONES {
        assert!(!zones.is_crowded(&key(number)), "{number}");
        zones.handle(&key(number));
    }
    assert!(!zones.is_crowded(&key(3)), "a known zone needs no sweep");
    assert!(zones.is_crowded(&key(MAX_UNSWEPT_ZONES)));
    let kept = zones.handle(&key(5));
    let swept = zones.sweep(|zone| zone == kept);
    assert_eq!(swept.len(), MAX_UNSWEPT_ZONES - 2);
    assert_eq!((zones.handle(&key(0)), zones.handle(&key(5))), (first, kept));
    let new = zones.handle(&key(MAX_UNSWEPT_ZONES));
    assert!(swept.contains(&new));
    let zone = zones.get(new).expect("there");
    assert_eq!((zone.key(), zone.state()), (&key(MAX_UNSWEPT_ZONES), ZoneState::Initial));
    assert_eq!(zones.iter().count(), MAX_UNSWEPT_ZONES);
}

#[test]
fn settings_are_returned() {
    let settings = ZoneSettings { large_above: 7, ..ZoneSettings::default() };
    assert_eq!(*Zones::new(settings).settings(), settings);
}
