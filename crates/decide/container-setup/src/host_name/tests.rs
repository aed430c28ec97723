//! Names at their lengths.

use super::*;
use crate::testing::{node, one_with};

fn made(spec: &str) -> Result<(String, String), SetupError> {
    of_pod(&one_with(spec, ""), &node()).map(|host| (host.name, host.domain))
}

#[test]
fn names_and_domains() {
    let long = "h".repeat(70);
    let dashes = format!("{}-.--{}", "h".repeat(60), "x".repeat(9));
    let cut = "h".repeat(63);
    let trimmed = "h".repeat(60);
    for (spec, name, domain) in [
        (String::new(), "web", ""),
        ("hostname: front,".to_owned(), "front", ""),
        ("subdomain: sub,".to_owned(), "web", "sub.shop.svc.cluster.local"),
        ("hostname: front, subdomain: sub,".to_owned(), "front", "sub.shop.svc.cluster.local"),
        ("hostnameOverride: other.example.com,".to_owned(), "other.example.com", ""),
        ("hostnameOverride: o, hostname: front, subdomain: sub,".to_owned(), "o", ""),
        (format!("hostnameOverride: {long},"), cut.as_str(), ""),
    ] {
        assert_eq!(made(&spec), Ok((name.to_owned(), domain.to_owned())), "{spec}");
    }
    for (pod_name, name) in [(long.as_str(), cut.as_str()), (dashes.as_str(), trimmed.as_str())] {
        let mut pod = one_with("", "");
        pod.metadata.name = pod_name.into();
        assert_eq!(of_pod(&pod, &node()).expect("a name").name, name);
    }
    let mut pod = one_with("", "");
    pod.metadata.name = "-".repeat(64).into();
    let error = of_pod(&pod, &node()).expect_err("nothing is left").to_string();
    assert!(error.starts_with("hostname for pod \"-"), "{error}");
}

#[test]
fn bad_names_are_refused() {
    for (spec, start) in [
        ("hostname: Front,", "pod Hostname \"Front\" is not a valid DNS label: "),
        ("hostname: a.b,", "pod Hostname \"a.b\" is not a valid DNS label: "),
        ("subdomain: a.b,", "pod Subdomain \"a.b\" is not a valid DNS label: "),
        ("hostnameOverride: A,", "pod HostnameOverride \"A\" is not a valid DNS subdomain: "),
    ] {
        let error = made(spec).expect_err(spec).to_string();
        assert!(error.starts_with(start), "{error}");
    }
}

#[test]
fn a_gate_hides_the_override() {
    let mut node = node();
    node.gates.hostname_override = false;
    let pod = one_with("hostnameOverride: other,", "");
    assert_eq!(of_pod(&pod, &node).expect("a name").name, "web");
}

#[test]
fn the_kernel_gets_the_full_name_only_where_requested() {
    let domain = "subdomain: sub, setHostnameAsFQDN: true,";
    for (spec, expected) in [
        ("", "web"),
        ("setHostnameAsFQDN: true,", "web"),
        ("subdomain: sub,", "web"),
        ("subdomain: sub, setHostnameAsFQDN: false,", "web"),
        (domain, "web.sub.shop.svc.cluster.local"),
        ("subdomain: sub, setHostnameAsFQDN: true, hostNetwork: true,", ""),
        ("hostname: Bad, hostNetwork: true,", ""),
    ] {
        assert_eq!(for_kernel(&one_with(spec, ""), &node()), Ok(expected.to_owned()), "{spec}");
    }
    // 64 fit, 65 do not.
    let rest = ".sub.shop.svc.cluster.local".len();
    let fits = format!("hostname: {}, {domain}", "h".repeat(64 - rest));
    assert_eq!(for_kernel(&one_with(&fits, ""), &node()).expect("fits").len(), 64);
    let long = format!("hostname: {}, {domain}", "h".repeat(65 - rest));
    let error = for_kernel(&one_with(&long, ""), &node()).expect_err("too long").to_string();
    assert_eq!(
        error,
        format!(
            "failed to construct FQDN from pod hostname and cluster domain, FQDN {}.sub.shop.svc.cluster.local is too long (64 characters is the max, 65 characters requested)",
            "h".repeat(65 - rest)
        )
    );
}
