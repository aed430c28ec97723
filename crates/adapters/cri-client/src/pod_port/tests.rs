//! The port against a scripted runtime: observing pods, acting on them, and listening.

mod listening;
mod scripted;

use std::time::Duration;

use ports::container_runtime::ContainerRuntimeError;
use ports::pod_runtime::PodRuntime;
use ports::runtime_objects::{
    CgroupDriver, ContainerConfig, ContainerState, ImageSpec, LinuxResources, PullRequest,
    RegistryLogin, SandboxConfig,
};

use super::seconds;
use crate::tests::scripted::SocketDir;
use crate::{CallLimits, CriClient};
use scripted::{PodScript, script};

const SHORT: Duration = Duration::from_millis(300);

fn client(script: &PodScript, limits: CallLimits) -> CriClient {
    let runtime = script.transport();
    CriClient::over(runtime, script.image_transport(), limits)
}

fn patient(script: &PodScript) -> CriClient {
    client(script, CallLimits { request: Duration::from_secs(20), ..CallLimits::default() })
}

fn ids<'a>(ids: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    ids.map(String::as_str).collect()
}

#[tokio::test]
async fn observing_all_pods_returns_each_status_in_list_order() {
    let runtime = script(&[("a", "s1"), ("b", "s2")], &[("a", "s1", "c1"), ("b", "s2", "c2")]);
    let pods = patient(&runtime).observe_all().await.expect("a look");
    assert_eq!(ids(pods.sandboxes.iter().map(|it| &it.id)), ["s1", "s2"]);
    assert_eq!(ids(pods.containers.iter().map(|it| &it.id)), ["c1", "c2"]);
    assert_eq!(pods.containers[1].sandbox_id, "s2");
    assert_eq!(pods.containers[1].state, ContainerState::Running);
    assert_eq!(pods.sandboxes[0].ips, ["10.0.0.1"]);
    assert_eq!(pods.unreadable_pods, []);
}

#[tokio::test]
async fn observing_one_pod_returns_only_that_pod() {
    let runtime = script(&[("a", "s1"), ("b", "s2")], &[("a", "s1", "c1"), ("b", "s2", "c2")]);
    let client = patient(&runtime);
    let pods = client.observe_pod("b").await.expect("a look");
    assert_eq!(ids(pods.sandboxes.iter().map(|it| &it.id)), ["s2"]);
    assert_eq!(ids(pods.containers.iter().map(|it| &it.id)), ["c2"]);
    let none = client.observe_pod("nobody").await.expect("a look");
    assert_eq!((none.sandboxes.len(), none.containers.len()), (0, 0));
}

#[tokio::test]
async fn a_listing_names_each_pods_objects_without_status_calls() {
    let runtime = script(&[("a", "hang")], &[("a", "hang", "c1"), ("b", "s2", "hang")]);
    let listed = patient(&runtime).list_pods().await.expect("a listing");
    assert_eq!(ids(listed.keys()), ["a", "b"]);
    assert_eq!(listed["a"].len(), 2, "{listed:?}");
    assert_eq!(runtime.max_concurrent_calls(), 0, "no status was asked for");
}

#[tokio::test]
async fn objects_removed_between_list_and_status_are_left_out() {
    let runtime = script(&[("a", "s1"), ("a", "gone")], &[("a", "s1", "gone"), ("a", "s1", "c1")]);
    let pods = patient(&runtime).observe_pod("a").await.expect("a look");
    assert_eq!(ids(pods.sandboxes.iter().map(|it| &it.id)), ["s1"]);
    assert_eq!(ids(pods.containers.iter().map(|it| &it.id)), ["c1"]);
}

#[tokio::test]
async fn a_pod_that_cannot_be_read_is_named_and_spoils_no_other() {
    for spoiled in ["hang", "broken", "no-status", "other-id"] {
        let runtime =
            script(&[("a", "s1"), ("b", "s2")], &[("a", "s1", spoiled), ("b", "s2", "c2")]);
        let limits = CallLimits { request: SHORT * 10, ..CallLimits::default() };
        let client = client(&runtime, limits);
        let pods = client.observe_all().await.expect("a look");
        assert_eq!(ids(pods.sandboxes.iter().map(|it| &it.id)), ["s2"], "{spoiled}");
        assert_eq!(ids(pods.containers.iter().map(|it| &it.id)), ["c2"], "{spoiled}");
        assert_eq!(pods.unreadable_pods.len(), 1, "{spoiled}");
        assert_eq!(pods.unreadable_pods[0].uid, "a", "{spoiled}");
        assert!(
            pods.unreadable_pods[0].why.starts_with("ContainerStatus"),
            "{}",
            pods.unreadable_pods[0].why
        );
        client.observe_pod("a").await.expect_err("this very pod");
        client.observe_pod("b").await.expect("the other");
    }
}

/// The call's own limit is two minutes here; observing all pods does not wait for that.
#[tokio::test]
async fn a_hanging_status_does_not_block_observing_all_pods() {
    let runtime = script(&[("a", "s1"), ("b", "s2")], &[("a", "s1", "hang"), ("b", "s2", "c2")]);
    let client = client(&runtime, CallLimits::default());
    let look = tokio::time::timeout(CallLimits::default().request / 4, client.observe_all());
    let pods = look.await.expect("soon").expect("a look");
    assert_eq!(ids(pods.containers.iter().map(|it| &it.id)), ["c2"]);
    let [unreadable_pods] = pods.unreadable_pods.as_slice() else {
        panic!("{:?}", pods.unreadable_pods)
    };
    assert_eq!((unreadable_pods.uid.as_str(), unreadable_pods.is_kubelet_pod), ("a", true));
    assert!(
        unreadable_pods.why.starts_with("ContainerStatus: no answer"),
        "{}",
        unreadable_pods.why
    );
}

#[tokio::test]
async fn a_sandbox_that_cannot_be_read_takes_its_containers_along() {
    let runtime = script(&[("a", "broken")], &[("a", "broken", "c1")]);
    let pods = patient(&runtime).observe_all().await.expect("a look");
    assert_eq!((pods.sandboxes.len(), pods.containers.len()), (0, 0));
    assert_eq!(pods.unreadable_pods[0].uid, "a");
}

#[tokio::test]
async fn status_calls_are_limited_in_concurrency_and_all_complete() {
    let names: Vec<String> = (0..100).map(|number| format!("c{number}")).collect();
    let rows: Vec<(&str, &str, &str)> =
        names.iter().map(|name| ("a", "s1", name.as_str())).collect();
    let runtime = script(&[("a", "s1")], &rows);
    let pods = patient(&runtime).observe_all().await.expect("a look");
    assert_eq!(ids(pods.containers.iter().map(|it| &it.id)), ids(names.iter()));
    let most = runtime.max_concurrent_calls();
    assert!((2..=8).contains(&most), "{most} at once");
}

/// A crashed container waits for this: the two calls are not made one after the other.
#[tokio::test]
async fn sandbox_and_container_statuses_are_requested_concurrently() {
    let runtime = script(&[("a", "s1")], &[("a", "s1", "c1")]);
    patient(&runtime).observe_pod("a").await.expect("a look");
    assert_eq!(runtime.max_concurrent_calls(), 2);
}

#[tokio::test]
async fn an_unavailable_runtime_fails_the_whole_observation() {
    let dir = SocketDir::new();
    let limits = CallLimits { request: SHORT, ..CallLimits::default() };
    let client = CriClient::connect(&dir.endpoint(), None, limits);
    let error = client.observe_all().await.expect_err("nobody there");
    assert!(matches!(error, ContainerRuntimeError::Unavailable { .. }), "{error}");
}

#[tokio::test]
async fn calls_carry_their_arguments() {
    let runtime = script(&[], &[]);
    let client = patient(&runtime);
    let sandbox = SandboxConfig { runtime_handler: "kata".into(), ..Default::default() };
    assert_eq!(client.run_sandbox(&sandbox).await, Ok("sandbox-on-kata".into()));
    let config = ContainerConfig { name: "app".into(), ..Default::default() };
    let made = PodRuntime::create_container(&client, "s1", &config, &sandbox).await;
    assert_eq!(made, Ok("app-in-s1".into()));
    let nameless = ContainerConfig::default();
    let error = PodRuntime::create_container(&client, "s1", &nameless, &sandbox).await;
    let text = error.expect_err("no id").to_string();
    assert!(text.contains("did not name the container"), "{text}");
    PodRuntime::start_container(&client, "c").await.expect("starts");
    PodRuntime::stop_container(&client, "c", Duration::from_millis(1500)).await.expect("stops");
    let resources = LinuxResources { cpu_shares: 12, ..Default::default() };
    client.update_container("c", &resources).await.expect("updates");
    client.reopen_log("c").await.expect("reopens");
    let command = ["ls".to_owned(), "-l".to_owned()];
    let output = PodRuntime::exec_sync(&client, "c", &command, SHORT).await.expect("runs");
    assert_eq!((output.stdout, output.exit_code), (b"ls -l within 1".to_vec(), 3));
    client.set_pod_cidr("10.1.0.0/24").await.expect("takes it");
    let recorded_calls =
        ["start c", "stop c in 2", "update c to 12", "reopen c", "cidr 10.1.0.0/24"];
    assert_eq!(runtime.recorded_calls(), recorded_calls);
    assert_eq!(client.cgroup_driver().await, Ok(CgroupDriver::Cgroupfs));
    assert_eq!(client.handlers().await.expect("handlers")[0].name, "runc");
    assert_eq!(client.container_usage().await.expect("usage")[0].container_id, "c");
}

#[tokio::test]
async fn stopping_or_removing_a_missing_object_succeeds() {
    let runtime = script(&[], &[]);
    let client = patient(&runtime);
    PodRuntime::stop_container(&client, "gone", SHORT).await.expect("stopped");
    PodRuntime::remove_container(&client, "gone").await.expect("removed");
    client.stop_sandbox("gone").await.expect("stopped");
    client.remove_sandbox("gone").await.expect("removed");
    PodRuntime::start_container(&client, "gone").await.expect_err("nothing to start");
    PodRuntime::stop_container(&client, "broken", SHORT).await.expect_err("another error");
}

#[tokio::test]
async fn images_are_found_pulled_and_removed_at_their_own_service() {
    let runtime = script(&[], &[]);
    let client = patient(&runtime);
    let image = |name: &str| ImageSpec { image: name.into(), ..Default::default() };
    let found = client.image(&image("present")).await.expect("an answer").expect("present");
    assert_eq!((found.id.as_str(), found.uid), ("sha256:present", Some(0)));
    assert_eq!(client.image(&image("absent")).await, Ok(None));
    assert_eq!(client.image(&image("gone")).await, Ok(None));
    client.image(&image("no-id")).await.expect_err("useless");
    assert_eq!(client.images().await.expect("images").len(), 1);
    let login = RegistryLogin { username: "me".into(), ..Default::default() };
    let request = PullRequest { image: image("present"), login: Some(login), ..Default::default() };
    assert_eq!(PodRuntime::pull_image(&client, &request).await, Ok("pulled-by-me".into()));
    let pod = SandboxConfig { name: "web".into(), namespace: "shop".into(), ..Default::default() };
    let for_pod = PullRequest { sandbox: Some(pod), ..request };
    let pulled = PodRuntime::pull_image(&client, &for_pod).await;
    assert_eq!(pulled, Ok("pulled-by-me-for-shop/web".into()));
    let anonymous = PullRequest { image: image("present"), ..Default::default() };
    PodRuntime::pull_image(&client, &anonymous).await.expect_err("no reference comes back");
    let slow = PullRequest { image: image("hang"), limit: Some(SHORT), ..Default::default() };
    let error = PodRuntime::pull_image(&client, &slow).await.expect_err("its own limit");
    assert_eq!(error, ContainerRuntimeError::DeadlineExceeded { call: "PullImage", limit: SHORT });
    PodRuntime::remove_image(&client, &image("gone")).await.expect("gone is gone");
    let (images, containers) = client.image_filesystems().await.expect("filesystems");
    assert_eq!((images[0].mountpoint.as_str(), containers[0].mountpoint.as_str()), ("/i", "/c"));
}

#[tokio::test]
async fn a_stop_may_take_its_grace_and_no_more_than_the_limit_beyond() {
    let runtime = script(&[], &[]);
    let limits = CallLimits { request: SHORT, ..CallLimits::default() };
    let client = client(&runtime, limits);
    let grace = Duration::from_secs(1);
    let started = std::time::Instant::now();
    let error = PodRuntime::stop_container(&client, "hang", grace).await.expect_err("hangs");
    let limit = grace + SHORT;
    assert_eq!(error, ContainerRuntimeError::DeadlineExceeded { call: "StopContainer", limit });
    assert!(started.elapsed() >= limit - Duration::from_millis(20));
}

#[test]
fn seconds_are_never_fewer_than_asked_for() {
    for (time, expected) in [
        (Duration::ZERO, 0),
        (Duration::from_nanos(1), 1),
        (Duration::from_secs(30), 30),
        (Duration::from_millis(30_001), 31),
        (Duration::MAX, i64::MAX),
    ] {
        assert_eq!(seconds(time), expected, "{time:?}");
    }
}
