//! A port that another process uses.

use super::*;

#[test]
fn a_taken_port_ends_nothing_unless_it_was_asked_for() {
    let held = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = held.local_addr().expect("an address");
    let failed = || -> Result<ListeningPort> { Err(anyhow!("secure port: {address}: in use")) };
    assert!(may_be_taken(failed(), address, false).is_ok_and(|port| port.is_none()));
    assert!(may_be_taken(failed(), address, true).is_err(), "asked for by name");
    drop(held);
    assert!(may_be_taken(failed(), address, false).is_err(), "something else is wrong");
}

#[test]
fn events_leave_room_for_other_writes() {
    let rows = [
        (None, 64),
        (Some((20.0, 30)), 10),
        (Some((20.0, 8)), 4),
        (Some((1.0, 1)), 1),
        (Some((2_000.0, 4_000)), 64),
    ];
    for (rate, expected) in rows {
        assert_eq!(events_per_batch(rate), expected, "{rate:?}");
    }
}
