//! What a runtime reports: versions, conditions, statistics, events.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cri_wire::v1;
use cri_wire::v1::ContainerEventType as Kind;
use tonic::Code;

use super::cases;
use crate::support::{Cri, code};

cases![
    version_is_reported,
    status_is_ready,
    status_lists_handlers,
    runtime_config_names_a_driver,
    runtime_config_can_be_updated,
    stats_of_a_container,
    stats_of_unknown_are_not_found,
    stats_list_has_running_ones_only,
    stats_list_by_sandbox,
    stats_of_a_pod,
    stats_list_of_pods,
    events_cover_a_container_lifecycle,
    metrics_are_described,
    metrics_of_a_pod,
    checkpoint_is_not_implemented,
];

async fn version_is_reported(cri: &Cri) -> Result<()> {
    let version = cri.rt().version(v1::VersionRequest::default()).await?.into_inner();
    ensure!(version.version == "0.1.0" && version.runtime_api_version == "v1", "{version:?}");
    ensure!(!version.runtime_name.is_empty() && !version.runtime_version.is_empty());
    Ok(())
}

async fn status_is_ready(cri: &Cri) -> Result<()> {
    let status = cri.rt().status(v1::StatusRequest { verbose: false }).await?.into_inner();
    let conditions = status.status.unwrap_or_default().conditions;
    for kind in ["RuntimeReady", "NetworkReady"] {
        let ready = conditions.iter().any(|one| one.r#type == kind && one.status);
        ensure!(ready, "{kind}: {conditions:?}");
    }
    Ok(())
}

async fn status_lists_handlers(cri: &Cri) -> Result<()> {
    let status = cri.rt().status(v1::StatusRequest { verbose: false }).await?.into_inner();
    let names: Vec<&str> = status.runtime_handlers.iter().map(|one| &*one.name).collect();
    ensure!(names.contains(&"") && names.contains(&"test-handler"), "{names:?}");
    let first = status.runtime_handlers.first().and_then(|one| one.features);
    ensure!(first.is_some_and(|features| features.user_namespaces), "{first:?}");
    Ok(())
}

async fn runtime_config_names_a_driver(cri: &Cri) -> Result<()> {
    let config = cri.rt().runtime_config(v1::RuntimeConfigRequest {}).await?.into_inner();
    ensure!(config.linux.is_some_and(|linux| linux.cgroup_driver() == v1::CgroupDriver::Cgroupfs));
    Ok(())
}

async fn runtime_config_can_be_updated(cri: &Cri) -> Result<()> {
    let network = v1::NetworkConfig { pod_cidr: "10.99.0.0/24".to_owned() };
    let runtime_config = Some(v1::RuntimeConfig { network_config: Some(network) });
    cri.rt().update_runtime_config(v1::UpdateRuntimeConfigRequest { runtime_config }).await?;
    Ok(())
}

async fn stats_of_a_container(cri: &Cri) -> Result<()> {
    let running = cri.running("dd if=/dev/zero of=/file bs=1M count=3; sleep 100").await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let request = v1::ContainerStatsRequest { container_id: running.id.clone() };
    let stats = cri.rt().container_stats(request).await?.into_inner().stats.unwrap_or_default();
    ensure!(stats.attributes.is_some_and(|of| of.id == running.id));
    let cpu = stats.cpu.unwrap_or_default();
    ensure!(cpu.timestamp > 0 && cpu.usage_core_nano_seconds.is_some_and(|used| used.value > 0));
    let memory = stats.memory.unwrap_or_default();
    ensure!(memory.working_set_bytes.is_some_and(|used| used.value > 0), "{memory:?}");
    ensure!(stats.writable_layer.is_some());
    Ok(())
}

async fn stats_of_unknown_are_not_found(cri: &Cri) -> Result<()> {
    let request = v1::ContainerStatsRequest { container_id: "unknown".to_owned() };
    ensure!(code(cri.rt().container_stats(request).await)? == Code::NotFound);
    let request = v1::PodSandboxStatsRequest { pod_sandbox_id: "unknown".to_owned() };
    ensure!(code(cri.rt().pod_sandbox_stats(request).await)? == Code::NotFound);
    Ok(())
}

async fn stats_list_has_running_ones_only(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    cri.create(&running.sandbox, &running.pod, &cri.container("true")).await?;
    let request = v1::ListContainerStatsRequest { filter: None };
    let list = cri.rt().list_container_stats(request).await?.into_inner().stats;
    let with_cpu: Vec<_> = list.iter().filter(|one| one.cpu.is_some()).collect();
    ensure!(with_cpu.len() == 1, "{} with numbers", with_cpu.len());
    Ok(())
}

async fn stats_list_by_sandbox(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    cri.running("sleep 100").await?;
    let filter =
        v1::ContainerStatsFilter { pod_sandbox_id: running.sandbox.clone(), ..Default::default() };
    let request = v1::ListContainerStatsRequest { filter: Some(filter) };
    let list = cri.rt().list_container_stats(request).await?.into_inner().stats;
    let ids: Vec<String> =
        list.into_iter().filter_map(|one| one.attributes).map(|of| of.id).collect();
    ensure!(ids == [running.id], "{ids:?}");
    Ok(())
}

async fn stats_of_a_pod(cri: &Cri) -> Result<()> {
    let running = cri.running_as(cri.networked_pod(), cri.container("sleep 100")).await?;
    let request = v1::PodSandboxStatsRequest { pod_sandbox_id: running.sandbox.clone() };
    let stats = cri.rt().pod_sandbox_stats(request).await?.into_inner().stats.unwrap_or_default();
    let linux = stats.linux.context("no statistics")?;
    ensure!(linux.containers.len() == 1, "{:?}", linux.containers.len());
    let link = linux.network.and_then(|network| network.default_interface);
    ensure!(link.is_some_and(|link| link.name == "eth0"), "the pod's link");
    Ok(())
}

async fn stats_list_of_pods(cri: &Cri) -> Result<()> {
    let list = async |filter: Option<v1::PodSandboxStatsFilter>| -> Result<Vec<String>> {
        let request = v1::ListPodSandboxStatsRequest { filter };
        let stats = cri.rt().list_pod_sandbox_stats(request).await?.into_inner().stats;
        Ok(stats.into_iter().filter_map(|one| one.attributes).map(|of| of.id).collect())
    };
    ensure!(list(None).await?.is_empty(), "nobody runs");
    let first = cri.running("sleep 100").await?;
    let mut pod = cri.pod();
    pod.labels.insert("extra".to_owned(), "yes".to_owned());
    let second = cri.running_as(pod, cri.container("sleep 100")).await?;
    ensure!(list(None).await?.len() == 2);
    let by_id = v1::PodSandboxStatsFilter { id: first.sandbox.clone(), ..Default::default() };
    ensure!(list(Some(by_id)).await? == [first.sandbox]);
    let label_selector = [("extra".to_owned(), "yes".to_owned())].into();
    let by_label = v1::PodSandboxStatsFilter { label_selector, ..Default::default() };
    ensure!(list(Some(by_label)).await? == [second.sandbox]);
    let unknown = v1::PodSandboxStatsFilter { id: "unknown".to_owned(), ..Default::default() };
    ensure!(list(Some(unknown)).await?.is_empty());
    Ok(())
}

async fn events_cover_a_container_lifecycle(cri: &Cri) -> Result<()> {
    let mut runtime = cri.rt();
    let (sender, mut reported) = tokio::sync::mpsc::channel(64);
    let listening = tokio::spawn(async move {
        let mut stream = runtime.get_container_events(v1::GetEventsRequest {}).await?.into_inner();
        while let Some(event) = stream.message().await? {
            if sender.send(event).await.is_err() {
                break;
            }
        }
        Ok::<_, tonic::Status>(())
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let running = cri.running("true").await?;
    let status = cri.until_ended(&running.id).await?;
    cri.remove(&running.id).await?;
    cri.remove_pod(&running.sandbox).await?;
    let mut of_container = Vec::new();
    let mut of_sandbox = Vec::new();
    let mut limit = Duration::from_secs(30);
    while let Ok(Some(event)) = tokio::time::timeout(limit, reported.recv()).await {
        let kind = event.container_event_type();
        for reported in
            event.containers_statuses.iter().filter(|reported| reported.id == running.id)
        {
            ensure!(reported.image_ref == status.image_ref, "{reported:?} is not {status:?}");
            ensure!(reported.image == status.image, "{reported:?} is not {status:?}");
        }
        if event.container_id == running.id {
            of_container.push(kind);
        } else if event.container_id == running.sandbox {
            of_sandbox.push(kind);
        }
        // Those that are expected are there; now none may follow.
        if of_container.len() + of_sandbox.len() >= 8 {
            limit = Duration::from_secs(1);
        }
    }
    listening.abort();
    use Kind::{
        ContainerCreatedEvent as Created, ContainerDeletedEvent as Deleted,
        ContainerStartedEvent as Started, ContainerStoppedEvent as Stopped,
    };
    ensure!(of_container == [Created, Started, Stopped, Deleted], "{of_container:?}");
    ensure!(of_sandbox == [Created, Started, Stopped, Deleted], "{of_sandbox:?}");
    Ok(())
}

/// The metrics that dashboards use; a runtime may have more.
const METRICS: &[&str] = &[
    "container_cpu_usage_seconds_total",
    "container_memory_usage_bytes",
    "container_memory_working_set_bytes",
    "container_memory_rss",
    "container_oom_events_total",
    "container_network_receive_bytes_total",
    "container_network_transmit_bytes_total",
    "container_fs_usage_bytes",
    "container_processes",
    "container_start_time_seconds",
    "container_spec_memory_limit_bytes",
];

async fn metrics_are_described(cri: &Cri) -> Result<()> {
    let request = v1::ListMetricDescriptorsRequest {};
    let all = cri.rt().list_metric_descriptors(request).await?.into_inner().descriptors;
    for name in METRICS {
        let known: Vec<_> = all.iter().filter(|one| one.name == *name).collect();
        ensure!(known.len() == 1, "{name}: {} descriptors", known.len());
        ensure!(!known[0].help.is_empty() && !known[0].label_keys.is_empty(), "{:?}", known[0]);
    }
    Ok(())
}

async fn metrics_of_a_pod(cri: &Cri) -> Result<()> {
    let running = cri.running_as(cri.networked_pod(), cri.container("sleep 100")).await?;
    let gone = cri.run(&cri.pod()).await?;
    cri.stop_pod(&gone).await?;
    let request = v1::ListPodSandboxMetricsRequest {};
    let all = cri.rt().list_pod_sandbox_metrics(request).await?.into_inner().pod_metrics;
    ensure!(all.len() == 1, "pods that run: {}", all.len());
    let pod = all.iter().find(|pod| pod.pod_sandbox_id == running.sandbox).context("the pod")?;
    let received = "container_network_receive_bytes_total";
    ensure!(pod.metrics.iter().any(|metric| metric.name == received), "{:?}", pod.metrics);
    let of_container = pod.container_metrics.iter().find(|one| one.container_id == running.id);
    let metrics = &of_container.context("the container")?.metrics;
    let value = |name: &str| {
        let found = metrics.iter().find(|metric| metric.name == name);
        found.and_then(|metric| metric.value).map(|value| value.value)
    };
    ensure!(value("container_memory_usage_bytes").is_some_and(|used| used > 0), "{metrics:?}");
    ensure!(value("container_processes") == Some(1), "{metrics:?}");
    Ok(())
}

/// An unsupported call returns Unimplemented, not a success.
async fn checkpoint_is_not_implemented(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    let location = cri.dir.join("checkpoint.tar");
    let request = v1::CheckpointContainerRequest {
        container_id: running.id.clone(),
        location: location.display().to_string(),
        timeout: 10,
    };
    let Err(status) = cri.rt().checkpoint_container(request).await else {
        anyhow::bail!("it was answered");
    };
    ensure!(!status.message().is_empty() && !location.exists(), "{status}");
    ensure!(status.code() == Code::Unimplemented, "{status}");
    ensure!(cri.status(&running.id).await?.state() == v1::ContainerState::ContainerRunning);
    Ok(())
}
