//! Every kind of path and method, compared with upstream's attributes.

use super::*;

#[test]
fn each_path_has_its_subresources_in_order() {
    let table: &[(&str, &[&str])] = &[
        ("/pods", &["pods", "proxy"]),
        ("/pods/", &["pods", "proxy"]),
        ("/pods/a/b", &["pods", "proxy"]),
        ("/podsx", &["proxy"]),
        ("/Pods", &["proxy"]),
        ("/runningpods", &["pods", "proxy"]),
        ("/runningpods/", &["pods", "proxy"]),
        ("/runningPods/", &["proxy"]),
        ("/healthz", &["healthz", "proxy"]),
        ("/healthz/ping", &["healthz", "proxy"]),
        ("/healthzz", &["proxy"]),
        ("/configz", &["configz", "proxy"]),
        ("/stats/summary", &["stats"]),
        ("/stats", &["stats"]),
        ("/statsz", &["proxy"]),
        ("/metrics", &["metrics"]),
        ("/metrics/cadvisor", &["metrics"]),
        ("/logs", &["log"]),
        ("/logs/syslog", &["log"]),
        ("/checkpoint/ns/pod/ctr", &["checkpoint"]),
        ("/statusz", &["statusz"]),
        ("/flagz", &["configz"]),
        ("/exec/ns/pod/ctr", &["proxy"]),
        ("/run/ns/pod/ctr", &["proxy"]),
        ("/containerLogs/ns/pod/ctr", &["proxy"]),
        ("/debug/pprof/", &["proxy"]),
        ("/", &["proxy"]),
        ("", &["proxy"]),
        ("//pods", &["proxy"]),
        ("/exec/../pods", &["proxy"]),
    ];
    for (path, expected) in table {
        assert_eq!(subresources(path), *expected, "{path}");
    }
}

#[test]
fn each_method_has_its_verb() {
    let table = [
        ("GET", "get"),
        ("POST", "create"),
        ("PUT", "update"),
        ("PATCH", "patch"),
        ("DELETE", "delete"),
        ("HEAD", ""),
        ("OPTIONS", ""),
        ("get", ""),
    ];
    for (method, expected) in table {
        assert_eq!(verb(method), expected, "{method}");
    }
}

#[test]
fn a_path_is_decoded_once() {
    let table = [
        ("/%70ods", "/pods"),
        ("/%2570ods", "/%70ods"),
        ("/a+b", "/a+b"),
        ("/pods%2Fa", "/pods/a"),
        ("/%ff", "/%ff"),
        ("/%zz", "/%zz"),
    ];
    for (path, expected) in table {
        assert_eq!(decoded(path), expected, "{path}");
    }
}
