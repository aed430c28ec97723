//! Results of CNI plugins, and network configurations that administrators and installers write.

use cni_documents::{NetworkConfigList, addresses_of};

/// Any input parsed as a plugin's result yields valid addresses, the primary one first, or an
/// error; parsed as a network configuration, it yields a value or an error.
pub fn cni(input: &[u8]) {
    if let Ok(addresses) = addresses_of(input, "eth0") {
        assert!(!addresses.is_empty(), "accepted without an address");
        let parse = |text: &String| text.parse::<std::net::IpAddr>().expect("an address");
        let addresses: Vec<_> = addresses.iter().map(parse).collect();
        let has_ipv4 = addresses.iter().any(std::net::IpAddr::is_ipv4);
        assert!(
            addresses[0].is_ipv4() == has_ipv4,
            "the primary address is IPv4 if there is an IPv4 address"
        );
    }
    let _ = NetworkConfigList::parse("input", input);
}
