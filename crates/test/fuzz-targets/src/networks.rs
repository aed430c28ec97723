//! Results of CNI plugins, and network configurations that administrators and installers write.

use cni_documents::{NetworkConfigList, addresses_of};

/// Any bytes as a plugin's result: valid addresses, the main one first, or an error. Any bytes as a
/// configuration: a value or an error.
pub fn cni(input: &[u8]) {
    if let Ok(addresses) = addresses_of(input, "eth0") {
        assert!(!addresses.is_empty(), "taken without an address");
        let read = |text: &String| text.parse::<std::net::IpAddr>().expect("an address");
        let addresses: Vec<_> = addresses.iter().map(read).collect();
        let mixed = addresses.iter().any(std::net::IpAddr::is_ipv4);
        assert!(addresses[0].is_ipv4() == mixed, "the main one is of version 4 where one is");
    }
    let _ = NetworkConfigList::parse("a text", input);
}
