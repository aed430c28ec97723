//! A port that somebody else has.

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
