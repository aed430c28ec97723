//! Output of the verbs, from a fake agent's answers.

use super::*;
use ports::local_api::{
    LocalEvent, LocalMilestone, LocalNode, LocalPod, LocalPodDetail, LocalPods, LocalWaiting,
};
use ports::local_runtime::{LocalImage, LocalImages, LocalUsage, LocalUsages};
use serde_json::json;

fn pod(namespace: &str, name: &str, uid: &str, status: &serde_json::Value) -> LocalPod {
    LocalPod {
        uid: uid.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        stage: "Running".to_owned(),
        object: json!({
            "spec": { "containers": [{ "name": "web" }] },
            "status": status,
        }),
        ..LocalPod::default()
    }
}

fn pods() -> LocalPods {
    let running = json!({
        "phase": "Running", "startTime": "1970-01-01T00:00:10Z", "podIP": "10.1.2.3",
        "containerStatuses": [
            { "name": "web", "ready": true, "restartCount": 2, "state": { "running": {} } }
        ],
    });
    let crashing = json!({
        "phase": "Running",
        "containerStatuses": [
            { "name": "web", "ready": false, "restartCount": 7,
              "state": { "waiting": { "reason": "CrashLoopBackOff" } } }
        ],
    });
    LocalPods {
        node: LocalNode { node_name: "Node1".to_owned(), ..LocalNode::default() },
        pods: vec![
            pod("default", "web-node1", "aaaa1111", &running),
            pod("other", "web-node1", "aaaa2222", &crashing),
            pod("default", "db-node1", "bbbb3333", &crashing),
        ],
    }
}

#[test]
fn the_table_shows_the_status_of_each_pod() {
    let table = list::table(&pods(), 70_000_000_000, false);
    let lines: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE"]);
    assert_eq!(lines[1], ["default", "web-node1", "1/1", "Running", "2", "60s"]);
    assert_eq!(lines[2], ["other", "web-node1", "0/1", "CrashLoopBackOff", "7", "-"]);
    let wide = list::table(&pods(), 70_000_000_000, true);
    assert!(wide.contains("10.1.2.3") && wide.contains("aaaa2222"), "{wide}");
}

#[test]
fn a_pod_is_found_by_any_name_that_means_only_it() {
    let pods = pods();
    let uid = |wanted: &str| find::pod(&pods, wanted).map(|pod| pod.uid.clone());
    for (wanted, expected) in [
        ("db-node1", "bbbb3333"),
        ("db", "bbbb3333"),
        ("default/web", "aaaa1111"),
        ("other/web-node1", "aaaa2222"),
        ("bbbb", "bbbb3333"),
        ("aaaa2222", "aaaa2222"),
    ] {
        assert_eq!(uid(wanted).ok().as_deref(), Some(expected), "{wanted}");
    }
    for (wanted, error) in [
        ("web", "default/web-node1"),
        ("aaaa", "say NAMESPACE/NAME"),
        ("nothing", "there are default/web-node1"),
        ("bbb", "no pod named bbb"),
    ] {
        let refused = uid(wanted).expect_err(wanted).to_string();
        assert!(refused.contains(error), "{wanted}: {refused}");
    }
}

#[test]
fn a_pod_with_an_invalid_manifest_is_mentioned() {
    let mut pods = pods();
    let broken = "manifest /m/x.yaml: x.yaml:3: spec.containers: a value is required; not run: \
                  pod shop-node1_default";
    pods.node.source_errors = vec![broken.to_owned(), "manifest /m/y.yaml: no YAML".to_owned()];
    let refused = |pods: &LocalPods, wanted: &str| {
        find::pod(pods, wanted).map(|_| ()).expect_err(wanted).to_string()
    };
    let error = refused(&pods, "default/shop");
    assert!(error.starts_with("no pod named default/shop here; there are "), "{error}");
    assert!(error.contains(&format!("\nwarning: {broken}\n")), "{error}");
    assert!(error.ends_with("`keelson ps` lists 1 more that cannot be used"), "{error}");
    let error = refused(&pods, "y.yaml");
    assert!(error.contains("warning: manifest /m/y.yaml: no YAML"), "{error}");
    let error = refused(&pods, "other");
    assert!(!error.contains("warning: ") && error.contains("lists 2 more"), "{error}");
    pods.pods.clear();
    pods.node.source_errors.clear();
    assert!(refused(&pods, "shop").ends_with("there are no pods on this machine"));
}

#[test]
fn an_explanation_begins_with_the_reason_and_the_next_step() {
    let mut detail = LocalPodDetail { pod: pods().pods.remove(1), ..LocalPodDetail::default() };
    detail.pod.waiting_on = Some(LocalWaiting {
        why: "container web ended 7 times; it starts again in 40 s".to_owned(),
        next_step: "keelson logs other/web-node1 --previous".to_owned(),
    });
    detail.events = (0..20)
        .map(|number| LocalEvent {
            kind: "Warning".to_owned(),
            reason: "BackOff".to_owned(),
            message: format!("number {number}"),
            count: 3,
            ..LocalEvent::default()
        })
        .collect();
    let text = explain::text(&detail, &LocalNode::default(), 0, false);
    let mut lines = text.lines();
    assert_eq!(
        lines.next(),
        Some("other/web-node1: container web ended 7 times; it starts again in 40 s")
    );
    assert_eq!(lines.next(), Some("next: keelson logs other/web-node1 --previous"));
    assert!(text.contains("BackOff (x3): number 19") && !text.contains("number 11"), "{text}");
    let wide = explain::text(&detail, &LocalNode::default(), 0, true);
    assert!(wide.contains("number 19") && wide.contains("number 0"), "{wide}");
    detail.pod.manifest = "/m/web.yaml".to_owned();
    let source_errors = vec!["manifest /m/web.yaml: kept".to_owned(), "another".to_owned()];
    let node = LocalNode { source_errors, ..LocalNode::default() };
    let value = explain::value(&detail, &node).unwrap();
    assert_eq!(value["name"], "web-node1");
    assert_eq!(value["waitingOn"]["nextStep"], "keelson logs other/web-node1 --previous");
    assert_eq!(value["warnings"], json!(["manifest /m/web.yaml: kept"]));
    assert_eq!(value["events"].as_array().map(Vec::len), Some(20));
    detail.pod.waiting_on = None;
    assert!(explain::value(&detail, &node).unwrap()["waitingOn"].is_null());
    let text = explain::text(&detail, &LocalNode::default(), 0, false);
    assert!(text.contains("where it should be"), "{text}");
}

#[test]
fn a_timeline_lists_each_step_with_its_duration() {
    let mark = |at: i64, milestone: &str, container: &str, attempt| LocalMilestone {
        at: at * 1_000_000,
        milestone: milestone.to_owned(),
        container: container.to_owned(),
        attempt,
    };
    let detail = LocalPodDetail {
        marks: vec![
            mark(1_000, "seen", "", 0),
            mark(1_002, "sandboxBegan", "", 0),
            mark(1_082, "sandboxRan", "", 0),
            mark(1_200, "started", "web", 1),
        ],
        ..LocalPodDetail::default()
    };
    let text = timeline::table(&detail);
    assert!(text.contains("82.0 ms       +80.0 ms    sandbox ran"), "{text}");
    assert!(text.contains("200.0 ms      +118.0 ms   started         web (restart 1)"), "{text}");
}

#[test]
fn yaml_reads_back_as_what_it_was() {
    let value = json!({
        "plain": "text", "path": "/a/b.c", "odd": "a: b", "yes": "no", "number-like": "1.5",
        "number": 1.5, "nothing": null, "empty": {}, "none": [], "deep": [
            { "a": 1, "b": ["x", ["y", {"z": true}], "line\nbreak"] }, [], "", "- x"
        ],
    });
    let text = yaml::write(&value);
    let origin =
        document::diagnostic::Origin::File { path: "test.yaml".into(), line: 0, column: 0 };
    let read = document::parse(text.as_bytes(), &origin).expect(&text);
    assert_eq!(read.root.to_json(), value, "{text}");
}

#[test]
fn the_log_is_chosen_by_the_container_id_in_the_status() {
    let of = |status: serde_json::Value, previous| {
        let pod = json!({ "status": { "containerStatuses": [status] } });
        logs::status_container_id(&pod, "web", previous).map(str::to_owned)
    };
    let ended = |id: &str| json!({ "terminated": { "containerID": format!("containerd://{id}") } });
    let crashing = json!({ "name": "web", "containerID": "containerd://b",
        "state": { "waiting": { "reason": "CrashLoopBackOff" } }, "lastState": ended("b") });
    let again = json!({ "name": "web", "containerID": "containerd://b",
        "state": { "running": {} }, "lastState": ended("a") });
    let done = json!({ "name": "web", "containerID": "containerd://a", "state": ended("a") });
    let unheard = json!({ "name": "web", "state": { "waiting": { "reason": "PodInitializing" } } });
    for (status, now, before) in [
        (crashing, Some("b"), Some("b")),
        (again, Some("b"), Some("a")),
        (done, Some("a"), None),
        (unheard, None, None),
    ] {
        assert_eq!(of(status.clone(), false).as_deref(), now, "{status}");
        assert_eq!(of(status.clone(), true).as_deref(), before, "{status}");
    }
}

#[test]
fn top_shows_cpu_between_two_readings_and_a_dash_for_missing_values() {
    let one = |id: &str, at: i64, cpu: Option<u64>, memory: Option<u64>| LocalUsage {
        container_id: id.to_owned(),
        name: "main".to_owned(),
        pod_namespace: "default".to_owned(),
        pod_name: format!("pod-{id}"),
        pod_uid: format!("uid-{id}"),
        at: at * 1_000_000_000,
        cpu_nanos: cpu,
        memory_bytes: memory,
        written_bytes: None,
    };
    let before = LocalUsages {
        containers: vec![
            one("a", 10, Some(1_000_000_000), None),
            one("b", 10, Some(500), None),
            one("d", 10, Some(5), None),
        ],
    };
    let now = LocalUsages {
        containers: vec![
            one("d", 10, Some(6), None),
            one("c", 12, Some(9), Some(1_500_000)),
            one("b", 12, None, Some(10)),
            one("a", 12, Some(1_500_000_000), Some(2_000_000)),
        ],
    };
    let text = top::table(&before, &now, None);
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1], ["default", "pod-a", "main", "250m", "2MB", "-"]);
    assert_eq!(rows[2], ["default", "pod-b", "main", "-", "10B", "-"], "it no longer tells");
    assert_eq!(rows[3], ["default", "pod-c", "main", "-", "1.5MB", "-"], "it is new");
    assert_eq!(rows[4], ["default", "pod-d", "main", "-", "-", "-"], "no time has passed");
    assert_eq!(top::table(&before, &now, Some("uid-a")).lines().count(), 2);
    assert_eq!(top::table(&before, &now, Some("x")), "no containers run\n");
}

#[test]
fn images_are_listed_by_each_of_their_names() {
    let image = |id: &str, tags: &[&str], digests: &[&str]| LocalImage {
        id: format!("sha256:{id}"),
        tags: tags.iter().map(ToString::to_string).collect(),
        digests: digests.iter().map(ToString::to_string).collect(),
        size_bytes: 1_000,
        pinned: id == "1",
    };
    let images = LocalImages {
        images: vec![
            image("1", &["b:1", "a:1"], &["a@x"]),
            image("2", &[], &["d@x"]),
            image("3", &[], &[]),
        ],
    };
    let text = images::table(&images);
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1], ["<none>", "3", "1kB"]);
    assert_eq!(rows[2], ["a:1", "1", "1kB", "yes"]);
    assert_eq!(rows[4], ["d@x", "2", "1kB"]);
    assert_eq!(images::table(&LocalImages::default()), "no images\n");
}
