//! Every path that a variable may refer to.

use super::*;
use crate::testing::{node, pod_with, texts};

fn the_pod(spec: &str) -> Pod {
    pod_with(
        "labels: {b: \"two\", a: one, x.io/y: z}, annotations: {Note: \"say \\\"hi\\\"\\n\"}",
        &format!(
            "{{{spec} nodeName: n1, serviceAccountName: sa, containers: [{{name: app, image: i}}]}}"
        ),
    )
}

fn read(path: &str, spec: &str, node: &NodeSetupInputs, ips: &[&str]) -> Result<String, String> {
    let field = ObjectFieldSelector { api_version: "v1".into(), field_path: path.into() };
    value(&field, &the_pod(spec), node, &texts(ips)).map_err(|error| error.to_string())
}

#[test]
fn paths_that_are_known() {
    for (path, expected) in [
        ("metadata.name", "web"),
        ("metadata.namespace", "shop"),
        ("metadata.uid", "u-1"),
        ("metadata.labels", "a=\"one\"\nb=\"two\"\nx.io/y=\"z\""),
        ("metadata.annotations", "Note=\"say \\\"hi\\\"\\n\""),
        ("metadata.labels['a']", "one"),
        ("metadata.labels['x.io/y']", "z"),
        ("metadata.labels['missing']", ""),
        ("metadata.annotations['Note']", "say \"hi\"\n"),
        ("spec.nodeName", "n1"),
        ("spec.host", "n1"),
        ("spec.serviceAccountName", "sa"),
        ("status.hostIP", "192.168.1.5"),
        ("status.hostIPs", "192.168.1.5"),
        ("status.podIP", "10.0.0.1"),
        ("status.podIPs", "10.0.0.1,fd00::1"),
    ] {
        let outcome = read(path, "", &node(), &["10.0.0.1", "fd00::1"]);
        assert_eq!(outcome.as_deref(), Ok(expected), "{path}");
    }
}

#[test]
fn paths_that_are_not() {
    for (path, expected) in [
        ("metadata.generation", "field label not supported: metadata.generation"),
        ("", "field label not supported: "),
        ("spec.restartPolicy", "unsupported fieldPath: spec.restartPolicy"),
        ("spec.schedulerName", "unsupported fieldPath: spec.schedulerName"),
        ("status.phase", "unsupported fieldPath: status.phase"),
        ("spec.x['y']", "field label does not support subscript: spec.x['y']"),
        ("['y']", "field label not supported: ['y']"),
        ("metadata.labels['y'", "field label not supported: metadata.labels['y'"),
    ] {
        assert_eq!(read(path, "", &node(), &[]), Err(expected.to_owned()), "{path}");
    }
    for path in ["metadata.labels['bad key']", "metadata.annotations['']"] {
        let error = read(path, "", &node(), &[]).expect_err(path);
        assert!(error.starts_with(&format!("invalid key subscript in {path}: ")), "{error}");
    }
    let field =
        ObjectFieldSelector { api_version: "v2".into(), field_path: "metadata.name".into() };
    let error = value(&field, &the_pod(""), &node(), &[]).expect_err("version");
    assert_eq!(error.to_string(), "unsupported pod version: v2");
}

#[test]
fn addresses_follow_the_nodes_first_family() {
    let v6_first = ["fd00::5", "10.0.0.5"].map(|ip| ip.parse().expect("an address"));
    let v4 = ["10.0.0.5"].map(|ip| ip.parse().expect("an address"));
    for (node_ips, ips, expected) in [
        (&v4[..], &["fd00::1", "10.0.0.1"][..], &["10.0.0.1", "fd00::1"][..]),
        (&v6_first[..], &["10.0.0.1", "fd00::1"], &["fd00::1", "10.0.0.1"]),
        (&[][..], &["fd00::1", "10.0.0.1"], &["10.0.0.1", "fd00::1"]),
        (&v4[..], &["10.0.0.1", "10.0.0.2"], &["10.0.0.1"]),
        (&v4[..], &["fd00::1"], &["fd00::1"]),
        (&v4[..], &["010.000.0.1", "nonsense"], &["10.0.0.1"]),
        (&v4[..], &[], &[]),
    ] {
        assert_eq!(in_order_of_families(node_ips, &texts(ips)), texts(expected), "{ips:?}");
    }
    let mut node = node();
    node.node_ips = v6_first.to_vec();
    for (path, expected) in [
        ("status.hostIP", "fd00::5"),
        ("status.hostIPs", "fd00::5,10.0.0.5"),
        ("status.podIP", "fd00::9"),
        ("status.podIPs", "fd00::9,10.0.0.9"),
    ] {
        let outcome = read(path, "", &node, &["10.0.0.9", "fd00::9"]);
        assert_eq!(outcome.as_deref(), Ok(expected), "{path}");
    }
    for spec in ["", "hostNetwork: true,"] {
        assert_eq!(read("status.podIP", spec, &node, &[]).as_deref(), Ok(""));
        assert_eq!(read("status.podIPs", spec, &node, &[]).as_deref(), Ok(""));
    }
    assert_eq!(read("status.podIP", "", &node, &["odd"]).as_deref(), Ok("odd"));
    node.node_ips.clear();
    read("status.hostIP", "", &node, &[]).expect_err("no address yet");
}

#[test]
fn texts_are_quoted_as_go_quotes_them() {
    for (text, expected) in [
        ("plain é 世", "\"plain é 世\""),
        ("a\"b\\c", "\"a\\\"b\\\\c\""),
        ("\u{7}\u{8}\u{c}\n\r\t\u{b}", "\"\\a\\b\\f\\n\\r\\t\\v\""),
        ("\u{0}\u{1f}\u{7f}", "\"\\x00\\x1f\\x7f\""),
        ("\u{85}\u{a0}\u{200b}\u{feff}", "\"\\u0085\\u00a0\\u200b\\ufeff\""),
        ("\u{e0001}", "\"\\U000e0001\""),
        ("", "\"\""),
    ] {
        assert_eq!(quoted(text), expected, "{text:?}");
    }
}
