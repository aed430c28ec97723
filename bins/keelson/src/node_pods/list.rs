//! The table of pods, as in kubectl, and the whole objects as JSON or YAML.

use crate::table::{Table, age};
use anyhow::Result;
use ports::api_time::ApiTime;
use ports::local_api::{LocalPod, LocalPods};
use serde_json::{Value, json};

pub(super) fn table(pods: &LocalPods, now: i64, wide: bool) -> String {
    let heads = ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE"];
    let more = ["IP", "SOURCE", "UID"];
    let all: Vec<&str> =
        if wide { heads.into_iter().chain(more).collect() } else { heads.to_vec() };
    let mut table = Table::new(&all);
    for pod in &pods.pods {
        let status = &pod.object["status"];
        let (ready, count, restarts) = containers(status, &pod.object["spec"]);
        let began = text(&status["startTime"]).and_then(ApiTime::parse);
        let common = [
            pod.namespace.clone(),
            pod.name.clone(),
            format!("{ready}/{count}"),
            status_word(pod),
            restarts.to_string(),
            began.map_or_else(|| "-".to_owned(), |began| age(now, began.nanos())),
        ];
        if wide {
            let address = text(&status["podIP"]).unwrap_or("-").to_owned();
            let source =
                if pod.manifest.is_empty() { pod.source.clone() } else { pod.manifest.clone() };
            let [a, b, c, d, e, f] = common;
            table.row([a, b, c, d, e, f, address, source, pod.uid.clone()]);
        } else {
            table.row(common);
        }
    }
    if pods.pods.is_empty() { "no pods on this machine\n".to_owned() } else { table.render() }
}

/// All pods as one v1 List.
pub(super) fn as_list(
    pods: &LocalPods,
    write: impl Fn(&Value) -> Result<String>,
) -> Result<String> {
    let items: Vec<&Value> = pods.pods.iter().map(|pod| &pod.object).collect();
    write(&json!({ "apiVersion": "v1", "kind": "List", "items": items }))
}

fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

/// Ready containers, all containers, restarts. Sidecars count, other init containers do not.
fn containers(status: &Value, spec: &Value) -> (usize, usize, i64) {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let sidecars: Vec<Value> = list(&spec["initContainers"])
        .into_iter()
        .filter(|container| container["restartPolicy"] == "Always")
        .map(|container| container["name"].clone())
        .collect();
    let mut statuses = list(&status["containerStatuses"]);
    let inits = list(&status["initContainerStatuses"]).into_iter();
    statuses.extend(inits.filter(|status| sidecars.contains(&status["name"])));
    let ready = statuses.iter().filter(|status| status["ready"] == true).count();
    let restarts = statuses.iter().filter_map(|status| status["restartCount"].as_i64()).sum();
    (ready, list(&spec["containers"]).len() + sidecars.len(), restarts)
}

/// The STATUS column: the first container's waiting or error reason, else the phase.
fn status_word(pod: &LocalPod) -> String {
    let status = &pod.object["status"];
    if matches!(pod.stage.as_str(), "Ending" | "Ended") {
        return "Terminating".to_owned();
    }
    if let Some(reason) = text(&status["reason"]) {
        return reason.to_owned();
    }
    for (kind, prefix) in [("initContainerStatuses", "Init:"), ("containerStatuses", "")] {
        for container in status[kind].as_array().into_iter().flatten() {
            let state = &container["state"];
            let waiting = text(&state["waiting"]["reason"])
                .filter(|reason| !matches!(*reason, "PodInitializing" | "ContainerCreating"));
            let failed = state["terminated"]["exitCode"].as_i64().filter(|code| *code != 0);
            let ended = failed.and_then(|_| text(&state["terminated"]["reason"]));
            if let Some(warning) = waiting.or(ended) {
                return format!("{prefix}{warning}");
            }
        }
    }
    text(&status["phase"]).unwrap_or("Unknown").to_owned()
}
