//! Pods with devices: admission, restarts of agent and plugin, health, the Node's capacity.

use super::bench::{AgentBench, pod};
use super::cluster::{cluster, cluster_fixture, seconds};
use super::device_fake::FakeDevices;
use cluster_fake::ApiVerb;
use ports::plugins::{DevicePluginOptions, PodResourcesRequest};
use serde_json::{Value, json};
use std::time::Duration;

/// A pod that asks for so many devices of the plugin `gpu`.
fn pod_with(name: &str, count: u32) -> String {
    pod(name, &format!(", resources: {{limits: {{example.com/gpu: '{count}'}}}}"))
}

fn bench_with_devices() -> (AgentBench, FakeDevices) {
    let mut bench = AgentBench::new();
    let devices = FakeDevices::default();
    bench.devices = Some(devices.clone());
    (bench, devices)
}

fn environment(bench: &AgentBench) -> Vec<String> {
    let environment = bench.runtime.environment("main").into_iter();
    let devices = environment.filter(|(name, _)| name == "DEVICES");
    devices.map(|(_, value)| value).collect()
}

fn entries(devices: &FakeDevices) -> usize {
    let checkpoint = devices.checkpoint();
    let entries = checkpoint.pointer("/Data/PodDeviceEntries").and_then(Value::as_array);
    entries.map_or(0, Vec::len)
}

fn count(devices: &FakeDevices, call: &str) -> usize {
    devices.calls().iter().filter(|made| *made == call).count()
}

#[tokio::test(start_paused = true)]
async fn a_pod_gets_its_devices_and_gives_them_back() {
    let (mut bench, devices) = bench_with_devices();
    bench.script.emit(&[]);
    bench.begin();
    devices.plug_in("gpu", "1 2 !3").await.unwrap();
    seconds(1).await;
    bench.script.emit(&[("/m/a", &pod_with("a", 2))]);
    bench.until_running().await;
    assert_eq!(environment(&bench), ["1+2"]);
    assert_eq!(entries(&devices), 1, "on disk before the container runs");
    assert_eq!(count(&devices, "pre_start"), 0);
    let reported = devices.pod_resources().pods();
    let ids: Vec<String> =
        reported[0].containers[0].devices.iter().flat_map(|it| it.ids.clone()).collect();
    assert_eq!(ids, ["1", "2"]);
    assert!(devices.pod_resources().pod("default", "a-n").is_some());
    assert_eq!(devices.pod_resources().allocatable().len(), 2);
    devices.pod_resources().count(PodResourcesRequest::List);
    devices.pod_resources().count(PodResourcesRequest::AlphaList);
    let requests = "kubelet_pod_resources_endpoint_requests_total{server_api_version=\"v1\"}";
    assert_eq!(bench.metric(requests), Some(1.0));
    // A second one finds too few.
    bench.script.emit(&[("/m/a", &pod_with("a", 2)), ("/m/b", &pod_with("b", 1))]);
    bench.until("b fails", |bench| bench.phase_of("b-n") == "Failed").await;
    let failed = bench.pods().into_iter().find(|pod| pod.name == "b-n").unwrap().object;
    assert_eq!(failed["status"]["reason"], "UnexpectedAdmissionError");
    assert_eq!(
        failed["status"]["message"],
        "Pod was rejected: Allocate failed due to requested number of devices unavailable for \
         example.com/gpu. Requested: 1, Available: 0, which is unexpected"
    );
    // The first one ends, and another one gets its devices.
    bench.script.emit(&[]);
    bench.until("both are gone", |bench| bench.pods().is_empty()).await;
    bench.until("the devices are free", |_| entries(&devices) == 0).await;
    bench.script.emit(&[("/m/c", &pod_with("c", 2))]);
    bench.until_running().await;
    assert_eq!(environment(&bench), ["1+2"]);
}

#[tokio::test(start_paused = true)]
async fn plugins_are_asked_what_they_prefer_and_see_starts() {
    let (mut bench, devices) = bench_with_devices();
    bench.script.emit(&[]);
    bench.begin();
    let options = DevicePluginOptions { pre_start_required: true, preferred_allocation: true };
    devices.plug_in_with("gpu", "1 2 3", options).await.unwrap();
    seconds(1).await;
    bench.script.emit(&[("/m/a", &pod_with("a", 1))]);
    bench.until_running().await;
    assert_eq!(environment(&bench), ["3"]);
    assert_eq!(devices.calls(), ["options", "listing", "preferred", "allocate", "pre_start"]);
    bench.runtime.crash("main", 1);
    bench.until("it is called again", |_| count(&devices, "pre_start") == 2).await;
    assert_eq!(count(&devices, "allocate"), 1);
}

#[tokio::test(start_paused = true)]
async fn assignments_outlive_agent_and_plugin() {
    let (mut bench, devices) = bench_with_devices();
    bench.script.emit(&[]);
    bench.begin();
    devices.plug_in("gpu", "1 2").await.unwrap();
    seconds(1).await;
    let manifest = pod_with("a", 1);
    bench.script.emit(&[("/m/a", &manifest)]);
    bench.until_running().await;
    let uid = bench.pod().unwrap().uid;
    for round in 0..3 {
        bench.kill().await;
        devices.unplug("gpu");
        bench.script.emit(&[("/m/a", &manifest)]);
        bench.begin();
        bench.until_running().await;
        seconds(2).await;
        assert_eq!(bench.pod().unwrap().uid, uid, "round {round}");
        let starts = bench.calls_of("start_container").len();
        // Its container starts again while the plugin is away.
        seconds(700).await;
        bench.runtime.crash("main", 1);
        if round == 0 {
            let started = |bench: &AgentBench| bench.calls_of("start_container").len() > starts;
            devices.plug_in("gpu", "1 2").await.unwrap();
            bench.until("it started again", started).await;
        } else {
            devices.plug_in("gpu", "1 2").await.unwrap();
            seconds(700).await;
        }
        bench.until_running().await;
        assert_eq!(environment(&bench), ["1"], "round {round}");
        assert_eq!(count(&devices, "allocate"), 1);
    }
    bench.script.emit(&[]);
    bench.until("it is gone", |bench| bench.pod().is_none()).await;
    bench.until("its devices are free", |_| entries(&devices) == 0).await;
}

#[tokio::test(start_paused = true)]
async fn after_a_reboot_a_pod_is_rejected_until_its_plugin_is_back() {
    let (mut bench, devices) = bench_with_devices();
    bench.script.emit(&[]);
    bench.begin();
    devices.plug_in("gpu", "1").await.unwrap();
    seconds(1).await;
    bench.script.emit(&[("/m/a", &pod_with("a", 1))]);
    bench.until_running().await;
    bench.kill().await;
    devices.unplug("gpu");
    bench.runtime.forget_all();
    bench.script.emit(&[("/m/a", &pod_with("a", 1))]);
    bench.begin();
    bench.until("it fails", |bench| bench.phase().as_deref() == Some("Failed")).await;
    assert_eq!(bench.status("/reason"), "UnexpectedAdmissionError");
    let message = bench.status("/message").as_str().unwrap_or_default().to_owned();
    assert!(message.contains("no healthy devices present"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn failures_of_plugins_reject_their_pods_only() {
    let (mut bench, devices) = bench_with_devices();
    bench.script.emit(&[]);
    bench.begin();
    devices.plug_in("gpu", "1").await.unwrap();
    devices.plug_in("nic", "1").await.unwrap();
    devices.fail_allocation("gpu", Some("out of order"));
    devices.hang("nic");
    seconds(1).await;
    let nic = pod("b", ", resources: {limits: {example.com/nic: '1'}}");
    let plain = pod("c", "");
    bench.script.emit(&[("/m/a", &pod_with("a", 1)), ("/m/b", &nic), ("/m/c", &plain)]);
    bench.until("c runs", |bench| bench.phase_of("c-n") == "Running").await;
    bench.until("a fails", |bench| bench.phase_of("a-n") == "Failed").await;
    assert_eq!(bench.phase_of("b-n"), "Pending");
    let waiting = bench.pods().into_iter().find(|pod| pod.name == "b-n").unwrap().waiting_on;
    assert_eq!(waiting.unwrap().why, "its devices are being allocated by their plugins");
    let failed = bench.pods().into_iter().find(|pod| pod.name == "a-n").unwrap().object;
    let message = failed["status"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("out of order"), "{message}");
    // The device is free again.
    devices.fail_allocation("gpu", None);
    bench.script.emit(&[("/m/d", &pod_with("d", 1)), ("/m/b", &nic)]);
    bench.until("d runs", |bench| bench.phase_of("d-n") == "Running").await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_devices_cannot_be_recorded_is_rejected() {
    let (mut bench, devices) = bench_with_devices();
    bench.script.emit(&[]);
    bench.begin();
    devices.plug_in("gpu", "1").await.unwrap();
    seconds(1).await;
    devices.break_disk(true);
    bench.script.emit(&[("/m/a", &pod_with("a", 1))]);
    bench.until("it fails", |bench| bench.phase().as_deref() == Some("Failed")).await;
    let message = bench.status("/message").as_str().unwrap_or_default().to_owned();
    assert!(message.contains("failed to write checkpoint file"), "{message}");
    devices.break_disk(false);
    bench.until("the checkpoint is written", |_| entries(&devices) == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_damaged_checkpoint_stops_no_pod() {
    let (mut bench, devices) = bench_with_devices();
    devices.set_checkpoint("{\"Data\":{\"PodDev");
    bench.script.emit(&[]);
    bench.begin();
    devices.plug_in("gpu", "1").await.unwrap();
    seconds(1).await;
    bench.script.emit(&[("/m/a", &pod_with("a", 1))]);
    bench.until_running().await;
    assert_eq!(entries(&devices), 1);
}

#[tokio::test(start_paused = true)]
async fn the_health_of_devices_is_in_the_status() {
    let (mut bench, devices) = bench_with_devices();
    bench.script.emit(&[]);
    bench.begin();
    devices.plug_in("gpu", "1 2").await.unwrap();
    seconds(1).await;
    bench.script.emit(&[("/m/a", &pod_with("a", 1))]);
    bench.until_running().await;
    let health = |health: &str| json!([{ "name": "example.com/gpu", "resources": [{ "resourceID": "1", "health": health }] }]);
    let path = "/containerStatuses/0/allocatedResourcesStatus";
    bench.until("it is healthy", |bench| bench.status(path) == health("Healthy")).await;
    devices.list("gpu", "!1 2");
    let took = bench.until("it is not", |bench| bench.status(path) == health("Unhealthy")).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(bench.phase().as_deref(), Some("Running"));
}

#[tokio::test(start_paused = true)]
async fn the_node_reports_its_devices() {
    let mut bench = cluster_fixture(|_| {});
    let devices = FakeDevices::default();
    bench.devices = Some(devices.clone());
    bench.script.emit(&[]);
    bench.begin();
    seconds(5).await;
    let amount = |bench: &AgentBench, list: &str| {
        cluster(bench).node()["status"][list]["example.com/gpu"].clone()
    };
    let is = |capacity: &'static str, allocatable: &'static str| {
        move |bench: &AgentBench| {
            amount(bench, "capacity") == capacity && amount(bench, "allocatable") == allocatable
        }
    };
    assert_eq!(amount(&bench, "capacity"), Value::Null);
    devices.plug_in("gpu", "1 2").await.unwrap();
    let took = bench.until("both", is("2", "2")).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    devices.list("gpu", "1 !2");
    bench.until("one is unhealthy", is("2", "1")).await;
    devices.unplug("gpu");
    bench.until("the plugin is gone", is("2", "0")).await;
    let took = bench.until("it is gone for good", is("0", "0")).await;
    assert!((290..=315).contains(&took.as_secs()), "{took:?}");
    devices.plug_in("gpu", "1").await.unwrap();
    bench.until("it is back", is("1", "1")).await;
    let local = bench.api().plugins().plugins;
    assert_eq!(
        (local[0].name.as_str(), local[0].state.as_str()),
        ("example.com/gpu", "registered")
    );
}

#[tokio::test(start_paused = true)]
async fn requests_of_plugins_are_judged() {
    let (mut bench, devices) = bench_with_devices();
    bench.script.emit(&[]);
    bench.begin();
    let absent = devices.register("absent").await.unwrap_err();
    assert!(absent.starts_with("failed to get device plugin options: "), "{absent}");
    let invalid = devices.plug_in("two words", "1").await.unwrap_err();
    assert_eq!(invalid, "the ResourceName \"example.com/two words\" is invalid");
    assert!(bench.api().plugins().plugins.is_empty());
}

#[tokio::test(start_paused = true)]
async fn plugins_may_come_through_the_directory_of_plugins() {
    let (mut bench, devices) = bench_with_devices();
    bench.script.emit(&[]);
    bench.begin();
    seconds(1).await;
    devices.start("gpu", "1");
    devices.put_sockets(&["gpu"]);
    let state = |bench: &AgentBench| -> Vec<String> {
        let plugins = bench.api().plugins().plugins.into_iter();
        plugins.map(|it| format!("{} {} {}", it.socket, it.name, it.state)).collect()
    };
    let registered =
        |bench: &AgentBench| state(bench) == ["/registry/gpu example.com/gpu registered"];
    bench.until("it is registered", registered).await;
    seconds(1).await;
    bench.script.emit(&[("/m/a", &pod_with("a", 1))]);
    bench.until_running().await;
    assert_eq!(devices.pod_resources().allocatable().len(), 1);
    assert_eq!(
        bench.metric("kubelet_device_plugin_registration_total{resource_name=\"example.com/gpu\"}"),
        Some(1.0)
    );
    devices.put_sockets(&[]);
    let gone = |bench: &AgentBench| state(bench) == [" example.com/gpu disconnected"];
    bench.until("it is gone", gone).await;
    assert!(devices.pod_resources().allocatable().is_empty());
    assert_eq!(bench.phase().as_deref(), Some("Running"));
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_flaps_causes_a_patch_a_second() {
    let mut bench = cluster_fixture(|_| {});
    let devices = FakeDevices::default();
    bench.devices = Some(devices.clone());
    bench.script.emit(&[]);
    bench.begin();
    devices.plug_in("gpu", "1").await.unwrap();
    seconds(5).await;
    let patches = |bench: &AgentBench| {
        let log = cluster(bench).cluster.log();
        log.iter().filter(|entry| entry.verb == ApiVerb::Patch).count()
    };
    let before = patches(&bench);
    for round in 0..1_000 {
        devices.list("gpu", if round % 2 == 0 { "!1" } else { "1" });
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let caused = patches(&bench) - before;
    assert!(caused <= 12, "{caused} patches in ten seconds");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_succeeded_is_not_judged_again() {
    let (mut bench, devices) = bench_with_devices();
    bench.script.emit(&[]);
    bench.begin();
    devices.plug_in("gpu", "1").await.unwrap();
    seconds(1).await;
    let manifest = format!("{}  restartPolicy: Never\n", pod_with("a", 1));
    bench.script.emit(&[("/m/a", &manifest)]);
    bench.until_running().await;
    bench.runtime.crash("main", 0);
    let succeeded = |bench: &AgentBench| bench.phase().as_deref() == Some("Succeeded");
    bench.until("it has succeeded", succeeded).await;
    bench.until("its devices are free", |_| entries(&devices) == 0).await;
    bench.kill().await;
    devices.unplug("gpu");
    bench.script.emit(&[("/m/a", &manifest)]);
    bench.begin();
    bench.until("it is known again", |bench| bench.phase().is_some()).await;
    seconds(30).await;
    assert!(succeeded(&bench), "{:?}", bench.phase());
}

/// The devices of all entries of the checkpoint, sorted.
fn assigned(devices: &FakeDevices) -> Vec<String> {
    let checkpoint = devices.checkpoint();
    let entries = checkpoint.pointer("/Data/PodDeviceEntries").and_then(Value::as_array);
    let ids = entries.into_iter().flatten().flat_map(|entry| {
        let ids = entry["DeviceIDs"]["-1"].as_array().cloned().unwrap_or_default();
        ids.into_iter().filter_map(|id| id.as_str().map(str::to_owned))
    });
    let mut ids: Vec<String> = ids.collect();
    ids.sort_unstable();
    ids
}

#[tokio::test(start_paused = true)]
async fn kills_of_agent_and_plugin_give_no_device_twice_and_lose_none() {
    let (mut bench, devices) = bench_with_devices();
    let names = ["a", "b", "c"];
    let manifests: Vec<(String, String)> =
        names.iter().map(|name| (format!("/m/{name}"), pod_with(name, 2))).collect();
    let manifests: Vec<(&str, &str)> =
        manifests.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    for round in 0..20_u64 {
        bench.script.emit(&manifests);
        bench.begin();
        tokio::time::sleep(Duration::from_micros(round * 700)).await;
        devices.start("gpu", "1 2 3 4 5 6");
        let registered = tokio::time::timeout(Duration::from_millis(5), devices.register("gpu"));
        // Where the agent is not that far, the plugin is killed before it has registered.
        let _ = registered.await;
        tokio::time::sleep(Duration::from_micros(round * 900)).await;
        let ids = assigned(&devices);
        let mut once = ids.clone();
        once.dedup();
        assert_eq!(ids, once, "round {round}");
        bench.kill().await;
        devices.unplug("gpu");
    }
    bench.script.emit(&[]);
    bench.begin();
    bench.until("all are gone", |bench| bench.pods().is_empty()).await;
    bench.until("no device is lost", |_| assigned(&devices).is_empty()).await;
    devices.plug_in("gpu", "1 2 3 4 5 6").await.unwrap();
    seconds(1).await;
    bench.script.emit(&manifests);
    for name in names {
        let full_name = format!("{name}-n");
        bench.until("it runs", |bench| bench.phase_of(&full_name) == "Running").await;
    }
    assert_eq!(assigned(&devices), ["1", "2", "3", "4", "5", "6"]);
}
