//! Which container's log a request means, by the pod's status.
//!
//! Rule: pure; the choice and the texts are upstream's (pkg/kubelet/kubelet_pods.go,
//! validateContainerLogStatus).

use serde_json::Value;

/// The ID of the container, without the runtime's name.
///
/// # Errors
/// If there is no log to read: the text for the client.
pub(super) fn container_of_log<'a>(
    pod: &'a Value,
    pod_name: &str,
    container: &str,
    previous: bool,
) -> Result<&'a str, String> {
    let lists = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let statuses = lists.iter().filter_map(|list| pod["status"][*list].as_array()).flatten();
    let named = |what: &str| format!("container {container:?} in pod {pod_name:?} {what}");
    let status = statuses.into_iter().find(|status| status["name"] == container);
    let status = status.ok_or_else(|| named("is not available"))?;
    let (state, last) = (&status["state"], &status["lastState"]["terminated"]);
    let terminated = &state["terminated"];
    if previous {
        return id(&last["containerID"])
            .ok_or_else(|| format!("previous terminated {}", named("not found")));
    }
    if state["running"].is_object() {
        return id(&status["containerID"]).ok_or_else(|| named("is not available"));
    }
    if terminated.is_object() {
        // Without an ID the next container did not start.
        let id = id(&terminated["containerID"]).or_else(|| id(&last["containerID"]));
        return id.ok_or_else(|| named("is terminated"));
    }
    if last.is_object() {
        return id(&last["containerID"]).ok_or_else(|| named("is terminated"));
    }
    Err(match state["waiting"]["reason"].as_str() {
        Some("ErrImagePull") => named("is waiting to start: image can't be pulled"),
        Some("ImagePullBackOff") => named("is waiting to start: trying and failing to pull image"),
        Some(reason) => named(&format!("is waiting to start: {reason}")),
        None if state["waiting"].is_object() => named("is waiting to start: "),
        None => named("is waiting to start - no logs yet"),
    })
}

/// The ID after `containerd://`.
fn id(text: &Value) -> Option<&str> {
    let text = text.as_str()?;
    let id = text.split_once("://").map_or(text, |(_, id)| id);
    Some(id).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(status: &Value, previous: bool) -> Result<String, String> {
        let pod = json!({"status": {"containerStatuses": [status]}});
        container_of_log(&pod, "web", "main", previous).map(str::to_owned)
    }

    #[test]
    fn the_state_decides_which_container_is_read() {
        let error = |text: &str| Err(format!("container \"main\" in pod \"web\" {text}"));
        let ended = |id: &str| json!({"terminated": {"containerID": id}});
        let running = json!({"name": "main", "containerID": "containerd://now",
            "state": {"running": {}}, "lastState": ended("containerd://before")});
        let crashing = json!({"name": "main", "containerID": "containerd://before",
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": ended("containerd://before")});
        let waiting =
            |reason: &str| json!({"name": "main", "state": {"waiting": {"reason": reason}}});
        let terminated = |id: &str, last: &str| json!({"name": "main", "state": ended(id), "lastState": ended(last)});
        let table = [
            (running.clone(), false, Ok("now".to_owned())),
            (running, true, Ok("before".to_owned())),
            (crashing.clone(), false, Ok("before".to_owned())),
            (crashing, true, Ok("before".to_owned())),
            (terminated("containerd://end", "containerd://before"), false, Ok("end".to_owned())),
            (terminated("", "containerd://before"), false, Ok("before".to_owned())),
            (terminated("", ""), false, error("is terminated")),
            (waiting("ErrImagePull"), false, error("is waiting to start: image can't be pulled")),
            (
                waiting("ImagePullBackOff"),
                false,
                error("is waiting to start: trying and failing to pull image"),
            ),
            (waiting("ContainerCreating"), false, error("is waiting to start: ContainerCreating")),
            (
                waiting("ContainerCreating"),
                true,
                Err("previous terminated container \"main\" in pod \"web\" not found".to_owned()),
            ),
            (
                json!({"name": "main", "state": {}}),
                false,
                error("is waiting to start - no logs yet"),
            ),
            (json!({"name": "other"}), false, error("is not available")),
        ];
        for (status, previous, expected) in table {
            assert_eq!(of(&status, previous), expected, "{status}");
        }
    }

    #[test]
    fn init_and_ephemeral_containers_have_logs_too() {
        for list in ["initContainerStatuses", "ephemeralContainerStatuses"] {
            let status =
                json!({"name": "main", "state": {"running": {}}, "containerID": "cri-o://a"});
            let pod = json!({"status": {list: [status]}});
            assert_eq!(container_of_log(&pod, "web", "main", false), Ok("a"), "{list}");
        }
        let no_status = json!({});
        let none = container_of_log(&no_status, "web", "main", false);
        assert_eq!(none, Err("container \"main\" in pod \"web\" is not available".to_owned()));
    }
}
