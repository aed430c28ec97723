//! Each path and method, byte by byte.

use super::*;
use ports::local_api::{
    LocalApiError, LocalContainer, LocalNode, LocalPod, LocalPodDetail, LocalPods,
    LocalStopAccepted,
};
use ports::{HealthCheck, LocalApi, PortFuture};
use std::sync::Arc;

struct Fixed(&'static str, Result<(), &'static str>);

impl HealthCheck for Fixed {
    fn name(&self) -> &str {
        self.0
    }
    fn check(&self) -> Result<(), String> {
        self.1.map_err(str::to_owned)
    }
}

struct TwoPodsApi;

fn container(name: &str, state: &str) -> LocalContainer {
    LocalContainer { name: name.into(), state: state.into(), ..LocalContainer::default() }
}

fn pod(name: &str, source: &str, containers: Vec<LocalContainer>) -> LocalPod {
    let image = json!([{"name": "main", "image": "registry/main:1"}]);
    LocalPod {
        uid: format!("{name}-uid"),
        namespace: "default".into(),
        name: name.into(),
        source: source.into(),
        containers,
        object: json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name},
            "spec": {"containers": image}}),
        ..LocalPod::default()
    }
}

impl LocalApi for TwoPodsApi {
    fn node(&self) -> LocalNode {
        LocalNode::default()
    }
    fn pods(&self) -> LocalPods {
        let pods = vec![
            pod("web", "file", vec![container("main", "running"), container("main", "exited")]),
            pod("old", "runtime", vec![container("main", "running")]),
            pod("new", "file", Vec::new()),
        ];
        LocalPods { node: self.node(), pods }
    }
    fn pod(&self, _: &str) -> Option<LocalPodDetail> {
        None
    }
    fn stop<'a>(&'a self, _: &'a str) -> PortFuture<'a, Result<LocalStopAccepted, LocalApiError>> {
        unreachable!("the port stops nothing")
    }
    fn changed(&self, _: u64) -> PortFuture<'_, u64> {
        unreachable!("the port waits for nothing")
    }
    fn metrics(&self) -> String {
        "metrics 1\n".to_owned()
    }
}

struct EmptyLocalApi;

impl LocalApi for EmptyLocalApi {
    fn node(&self) -> LocalNode {
        LocalNode::default()
    }
    fn pods(&self) -> LocalPods {
        LocalPods::default()
    }
    fn pod(&self, _: &str) -> Option<LocalPodDetail> {
        None
    }
    fn stop<'a>(&'a self, _: &'a str) -> PortFuture<'a, Result<LocalStopAccepted, LocalApiError>> {
        unreachable!("the port stops nothing")
    }
    fn changed(&self, _: u64) -> PortFuture<'_, u64> {
        unreachable!("the port waits for nothing")
    }
}

fn api(local: impl LocalApi + 'static) -> KubeletApi {
    let checks: Vec<Arc<dyn HealthCheck>> = vec![
        Arc::new(Fixed("ping", Ok(()))),
        Arc::new(Fixed("log", Ok(()))),
        Arc::new(Fixed("syncloop", Err("sync Loop took longer than expected"))),
    ];
    KubeletApi { checks: checks.into(), local: Arc::new(local) }
}

fn pages(debugging_handlers: bool) -> StaticPages {
    StaticPages {
        configz: Bytes::from_static(b"{\"kubeletconfig\":{}}"),
        debugging_handlers,
        disabled: Vec::new(),
        health: Arc::default(),
    }
}

fn ask(debugging_handlers: bool, method: &str, path: &str, query: &str) -> (u16, String) {
    let reply = pages(debugging_handlers).reply(&api(TwoPodsApi), method, path, query);
    (reply.status, String::from_utf8(reply.body.to_vec()).expect("text"))
}

#[test]
fn each_path_answers_as_the_references() {
    let not_found = (404, "404 page not found\n");
    let no_route = (404, "404: Page Not Found");
    let not_allowed = (405, "405: Method Not Allowed");
    let table: &[(&str, &str, (u16, &str))] = &[
        ("GET", "/healthz/ping", (200, "ok")),
        ("POST", "/healthz/ping", (200, "ok")),
        ("GET", "/healthz/log", (200, "ok")),
        (
            "GET",
            "/healthz/syncloop",
            (500, "internal server error: sync Loop took longer than expected\n"),
        ),
        (
            "GET",
            "/healthz",
            (
                500,
                "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n",
            ),
        ),
        ("GET", "/healthz/other", not_found),
        ("GET", "/healthz/", not_found),
        ("GET", "/healthzz", not_found),
        ("GET", "/configz", (200, "{\"kubeletconfig\":{}}")),
        ("GET", "/configz/", not_found),
        ("POST", "/pods", not_allowed),
        ("HEAD", "/pods", not_allowed),
        ("POST", "/runningpods/", not_allowed),
        ("GET", "/pods/web", no_route),
        ("GET", "/runningpods/web", no_route),
        ("GET", "/runningpods", (301, "<a href=\"/runningpods/\">Moved Permanently</a>.\n\n")),
        ("GET", "/metrics", (200, "metrics 1\n")),
        ("GET", "/", not_found),
        ("GET", "/exec/default/web/main", not_found),
        ("GET", "//pods", not_found),
        ("GET", "/healthz/../pods", not_found),
    ];
    for (method, path, (status, body)) in table {
        assert_eq!(ask(true, method, path, ""), (*status, (*body).to_owned()), "{method} {path}");
    }
    let verbose = "[+]ping ok\n[+]log ok\n[+]syncloop excluded: ok\nhealthz check passed\n";
    assert_eq!(ask(true, "GET", "/healthz", "verbose&exclude=syncloop"), (200, verbose.to_owned()));
}

#[test]
fn without_debugging_handlers_only_the_first_group_is_served() {
    let disabled = (405, "Debug endpoints are disabled.\n".to_owned());
    for path in ["/runningpods/", "/exec/a/b/c", "/logs/", "/debug/pprof/", "/containerLogs/a/b/c"]
    {
        assert_eq!(ask(false, "GET", path, ""), disabled, "{path}");
    }
    assert_eq!(ask(false, "GET", "/configz", "").0, 404);
    assert_eq!(ask(false, "GET", "/pods", "").0, 200);
    assert_eq!(ask(false, "GET", "/healthz/ping", "").0, 200);
}

#[test]
fn pods_are_those_of_sources_and_running_pods_those_of_the_runtime() {
    let (status, body) = ask(true, "GET", "/pods", "");
    let expected = concat!(
        r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#,
        r#"{"metadata":{"name":"web"},"spec":{"containers":[{"image":"registry/main:1","name":"main"}]}},"#,
        r#"{"metadata":{"name":"new"},"spec":{"containers":[{"image":"registry/main:1","name":"main"}]}}"#,
        "]}\n"
    );
    assert_eq!((status, body.as_str()), (200, expected));
    assert_eq!(ask(true, "GET", "/pods/", ""), (status, body));
    let (status, body) = ask(true, "GET", "/runningpods/", "");
    let list: Value = serde_json::from_str(&body).expect("JSON");
    let running = |name: &str| {
        json!({
            "metadata": {"name": name, "namespace": "default", "uid": format!("{name}-uid")},
            "spec": {"containers": [
                {"name": "main", "image": "registry/main:1", "resources": {}}
            ]},
            "status": {},
        })
    };
    assert_eq!(status, 200);
    assert_eq!(list["items"], json!([running("web"), running("old")]));
    let none = pages(true).reply(&api(EmptyLocalApi), "GET", "/pods", "");
    let expected = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{},\"items\":null}\n";
    assert_eq!(none.body, expected);
}

#[test]
fn responses_have_the_required_headers() {
    let reply = |method: &str, path: &str| {
        pages(true).reply(&api(TwoPodsApi), method, path, "").into_response()
    };
    assert_eq!(reply("DELETE", "/pods").headers()[ALLOW], "GET");
    assert_eq!(reply("GET", "/runningpods").headers()[LOCATION], "/runningpods/");
    assert_eq!(reply("GET", "/configz").headers()[CONTENT_TYPE], JSON);
    assert_eq!(reply("GET", "/healthz").headers()[CONTENT_TYPE], TEXT);
}

#[test]
fn the_results_of_health_checks_are_metrics_until_they_are_reset() {
    let (pages, api) = (pages(true), api(EmptyLocalApi));
    let ask = |method: &str, path: &str| {
        let reply = pages.reply(&api, method, path, "");
        String::from_utf8(reply.body.to_vec()).expect("text")
    };
    assert_eq!(ask("GET", "/metrics/slis"), "");
    ask("GET", "/healthz");
    // Not counted in upstream either.
    ask("GET", "/healthz/ping");
    let text = ask("GET", "/metrics/slis");
    let healthy = "kubernetes_healthcheck{name=\"ping\",type=\"healthz\"} 1\n";
    let failed =
        "kubernetes_healthchecks_total{name=\"syncloop\",status=\"error\",type=\"healthz\"} 1\n";
    assert!(text.contains(healthy) && text.contains(failed), "{text}");
    assert!(!text.contains("} 2"), "{text}");
    assert_eq!(ask("DELETE", "/metrics/slis"), "metrics reset\n");
    assert_eq!(ask("GET", "/metrics/slis"), "");
}

#[test]
fn a_handler_that_is_switched_off_answers_so() {
    let disabled = DisabledHandler { path: "/logs/", text: "logs endpoint is disabled." };
    let pages = StaticPages { disabled: vec![disabled], ..pages(true) };
    let text = |path: &str| pages.disabled(path).map(|reply| (reply.status, reply.body));
    let off = (405, Bytes::from_static(b"logs endpoint is disabled.\n"));
    assert_eq!((text("/logs/"), text("/logs/a/b")), (Some(off.clone()), Some(off)));
    assert_eq!((text("/exec/a/b/c"), text("/configz")), (None, None));
}
