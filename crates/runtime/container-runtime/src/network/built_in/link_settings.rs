//! Sysctls of the built-in network's links: what the kernel accepts from other senders.
//!
//! Rule: addresses and routes come from this runtime alone. Router advertisements and redirects of
//! a pod change neither the host (CVE-2020-10749's class) nor another pod, and without an IPv6
//! range a link has no IPv6 at all. Written while a link is down, so that no packet comes first.
//!
//! upstream: the kernel's ip-sysctl.rst; containernetworking/plugins plugins/main/bridge

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::INSIDE;

#[cfg(test)]
mod tests;

type Result<T> = std::result::Result<T, netlink::NetlinkError>;

/// Sysctls by which another sender changes a link's addresses and routes. Duplicate address
/// detection is among them: the host reaches no pod by IPv6 while the bridge's address is
/// tentative, and never again after a pod has claimed it.
const LEARNED: [&str; 4] = ["accept_ra", "accept_redirects", "autoconf", "accept_dad"];
const OFF: &str = "disable_ipv6";

/// A setting below `/proc/sys/net`, and its value.
type Setting = (String, &'static str);

/// The bridge, on which the host receives packets of pods.
pub(super) fn harden_bridge(link: &str, has_ipv6: bool) -> Result<()> {
    write_all(&of_bridge(link, has_ipv6))
}

/// The host's end of a pod's veth pair: it has no addresses, the bridge has them.
pub(super) fn harden_port(link: &str) -> Result<()> {
    write_all(&of_port(link))
}

/// The pod's end; call it in the pod's namespace. Sysctls that the pod sets are left alone.
pub(super) fn harden_inside(sysctls: &BTreeMap<String, String>, has_ipv6: bool) -> Result<()> {
    write_all(&of_inside(sysctls, has_ipv6))
}

fn ipv6(link: &str, name: &str, value: &'static str) -> Setting {
    (format!("ipv6/conf/{link}/{name}"), value)
}

fn of_bridge(link: &str, has_ipv6: bool) -> Vec<Setting> {
    let learned = LEARNED.map(|name| ipv6(link, name, "0"));
    // A bridge of another version may have had an IPv6 range or none.
    let off = ipv6(link, OFF, if has_ipv6 { "0" } else { "1" });
    let redirects = (format!("ipv4/conf/{link}/accept_redirects"), "0");
    learned.into_iter().chain([off, redirects]).collect()
}

fn of_port(link: &str) -> Vec<Setting> {
    let learned = LEARNED.map(|name| ipv6(link, name, "0"));
    learned.into_iter().chain([ipv6(link, OFF, "1")]).collect()
}

fn of_inside(sysctls: &BTreeMap<String, String>, has_ipv6: bool) -> Vec<Setting> {
    let asked: Vec<String> = sysctls.keys().map(|name| name.replace('/', ".")).collect();
    let is_asked = |name: &str| {
        ["all", "default", INSIDE]
            .iter()
            .any(|link| asked.contains(&format!("net.ipv6.conf.{link}.{name}")))
    };
    let mut settings: Vec<Setting> =
        LEARNED.iter().filter(|name| !is_asked(name)).map(|name| ipv6(INSIDE, name, "0")).collect();
    if !has_ipv6 && !asked.iter().any(|name| name.starts_with("net.ipv6.conf.")) {
        settings.push(ipv6(INSIDE, OFF, "1"));
    }
    settings
}

/// A kernel without IPv6 has none of these sysctls and needs none.
fn write_all(settings: &[Setting]) -> Result<()> {
    for (name, value) in settings {
        let path = Path::new("/proc/sys/net").join(name);
        let failed = |error: std::io::Error| netlink::NetlinkError::Invalid {
            operation: format!("writing {value} to {}", path.display()),
            reason: error.to_string(),
        };
        match fs::read_to_string(&path) {
            Ok(present) if present.trim() == *value => {}
            Ok(_) => fs::write(&path, value).map_err(failed)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(())
}
