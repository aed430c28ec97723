//! Each field of a filter, alone.

use super::*;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn sandbox() -> v1::PodSandbox {
    v1::PodSandbox {
        id: "abc".to_owned(),
        state: v1::PodSandboxState::SandboxReady.into(),
        labels: labels(&[("app", "web"), ("tier", "front")]),
        ..Default::default()
    }
}

#[test]
fn a_sandbox_matches_by_id_state_and_labels() {
    let state = |state: v1::PodSandboxState| Some(v1::PodSandboxStateValue { state: state.into() });
    let none = v1::PodSandboxFilter::default();
    let ready = v1::PodSandboxFilter {
        state: state(v1::PodSandboxState::SandboxReady),
        ..Default::default()
    };
    let not_ready = v1::PodSandboxFilter {
        state: state(v1::PodSandboxState::SandboxNotready),
        ..Default::default()
    };
    let web =
        v1::PodSandboxFilter { label_selector: labels(&[("app", "web")]), ..Default::default() };
    let other =
        v1::PodSandboxFilter { label_selector: labels(&[("app", "db")]), ..Default::default() };
    let missing =
        v1::PodSandboxFilter { label_selector: labels(&[("zone", "a")]), ..Default::default() };
    for (filter, id, expected) in [
        (&none, "", true),
        (&none, "abc", true),
        (&none, "other", false),
        (&ready, "", true),
        (&not_ready, "", false),
        (&web, "abc", true),
        (&other, "", false),
        (&missing, "", false),
    ] {
        assert_eq!(sandbox_matches(&sandbox(), filter, id), expected, "{filter:?} {id}");
    }
}

#[test]
fn a_container_matches_by_its_sandbox_too() {
    let container = v1::Container {
        id: "c".to_owned(),
        pod_sandbox_id: "s".to_owned(),
        state: v1::ContainerState::ContainerRunning.into(),
        ..Default::default()
    };
    let none = v1::ContainerFilter::default();
    let exited = v1::ContainerFilter {
        state: Some(v1::ContainerStateValue { state: v1::ContainerState::ContainerExited.into() }),
        ..Default::default()
    };
    for (filter, ids, expected) in [
        (&none, ("", ""), true),
        (&none, ("c", "s"), true),
        (&none, ("", "x"), false),
        (&none, ("x", ""), false),
        (&exited, ("", ""), false),
    ] {
        assert_eq!(container_matches(&container, filter, ids), expected, "{ids:?}");
    }
}
