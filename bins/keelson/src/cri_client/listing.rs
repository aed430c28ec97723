//! The subcommands that only look: lists, details, use of resources, events.
//!
//! Rule: `-o json` prints the runtime's answer whole, the table what a person looks for first.
//! Does not sort or filter beyond what its options say.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use cri_client::CriClient;
use cri_wire::v1;
use prost::{Message, Name};

use super::next_step::explain;
use super::{CriFormat, json, output};
use crate::table::{Table, age, short_id, size};

/// Which containers a list has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListScope {
    All,
    Running,
}

fn show<M: Message + Name>(
    answer: &M,
    format: CriFormat,
    table: impl FnOnce(&M) -> Table,
) -> Result<()> {
    match format {
        CriFormat::Json => output::print(&json::pretty(&json::to_value(answer)?)?),
        CriFormat::Table => output::print(&table(answer).render()),
    }
}

fn show_ids<'a>(ids: impl Iterator<Item = &'a str>) -> Result<()> {
    output::print(&ids.map(|id| format!("{id}\n")).collect::<String>())
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

pub(super) async fn version(client: &CriClient, format: CriFormat) -> Result<()> {
    let answer = client.version(v1::VersionRequest::default()).await.map_err(explain)?;
    show(&answer, format, |answer| {
        let mut table = Table::new(&["RUNTIME", "VERSION", "CRI"]);
        let v1::VersionResponse { runtime_name, runtime_version, runtime_api_version, .. } =
            answer.clone();
        table.row([runtime_name, runtime_version, runtime_api_version]);
        table
    })
}

pub(super) async fn info(client: &CriClient, format: CriFormat) -> Result<()> {
    let verbose = format == CriFormat::Json;
    let answer = client.status(v1::StatusRequest { verbose }).await.map_err(explain)?;
    if verbose {
        return output::print(&json::pretty(&json::with_opened_info(&answer)?)?);
    }
    show(&answer, format, |answer| {
        let mut table = Table::new(&["CONDITION", "STATUS", "REASON", "MESSAGE"]);
        for condition in answer.status.iter().flat_map(|status| &status.conditions) {
            let v1::RuntimeCondition { r#type, status, reason, message } = condition.clone();
            table.row([r#type, status.to_string(), reason, message]);
        }
        table
    })
}

pub(super) async fn pods(client: &CriClient, format: CriFormat, quiet: bool) -> Result<()> {
    let request = v1::ListPodSandboxRequest::default();
    let answer = client.list_pod_sandbox(request).await.map_err(explain)?;
    if quiet {
        return show_ids(answer.items.iter().map(|sandbox| sandbox.id.as_str()));
    }
    show(&answer, format, |answer| pods_table(&answer.items, now()))
}

pub(super) fn pods_table(sandboxes: &[v1::PodSandbox], now: i64) -> Table {
    let mut table =
        Table::new(&["POD ID", "AGE", "STATE", "NAME", "NAMESPACE", "ATTEMPT", "RUNTIME"]);
    for sandbox in sandboxes {
        let metadata = sandbox.metadata.clone().unwrap_or_default();
        let state = match sandbox.state() {
            v1::PodSandboxState::SandboxReady => "Ready",
            v1::PodSandboxState::SandboxNotready => "NotReady",
        };
        let handler = &sandbox.runtime_handler;
        table.row([
            short_id(&sandbox.id),
            age(now, sandbox.created_at),
            state.to_owned(),
            metadata.name,
            metadata.namespace,
            metadata.attempt.to_string(),
            if handler.is_empty() { "(default)".to_owned() } else { handler.clone() },
        ]);
    }
    table
}

pub(super) async fn containers(
    client: &CriClient,
    format: CriFormat,
    scope: ListScope,
    quiet: bool,
) -> Result<()> {
    let running = v1::ContainerStateValue { state: v1::ContainerState::ContainerRunning.into() };
    let state = (scope == ListScope::Running).then_some(running);
    let filter = Some(v1::ContainerFilter { state, ..Default::default() });
    let request = v1::ListContainersRequest { filter };
    let answer = client.list_containers(request).await.map_err(explain)?;
    if quiet {
        return show_ids(answer.containers.iter().map(|container| container.id.as_str()));
    }
    show(&answer, format, |answer| containers_table(&answer.containers, now()))
}

pub(super) fn containers_table(containers: &[v1::Container], now: i64) -> Table {
    let mut table =
        Table::new(&["CONTAINER", "IMAGE", "AGE", "STATE", "NAME", "ATTEMPT", "POD ID", "POD"]);
    for container in containers {
        let metadata = container.metadata.clone().unwrap_or_default();
        let state = match container.state() {
            v1::ContainerState::ContainerCreated => "Created",
            v1::ContainerState::ContainerRunning => "Running",
            v1::ContainerState::ContainerExited => "Exited",
            v1::ContainerState::ContainerUnknown => "Unknown",
        };
        let image = container.image.clone().unwrap_or_default();
        let image = if image.user_specified_image.is_empty() {
            image.image
        } else {
            image.user_specified_image
        };
        let pod = container.labels.get("io.kubernetes.pod.name").cloned().unwrap_or_default();
        table.row([
            short_id(&container.id),
            if image.starts_with("sha256:") { short_id(&image) } else { image },
            age(now, container.created_at),
            state.to_owned(),
            metadata.name,
            metadata.attempt.to_string(),
            short_id(&container.pod_sandbox_id),
            pod,
        ]);
    }
    table
}

pub(super) async fn images(client: &CriClient, format: CriFormat, quiet: bool) -> Result<()> {
    let request = v1::ListImagesRequest::default();
    let answer = client.list_images(request).await.map_err(explain)?;
    if quiet {
        return show_ids(answer.images.iter().map(|image| image.id.as_str()));
    }
    show(&answer, format, |answer| images_table(&answer.images))
}

/// One line per name, since a person looks for the name.
pub(super) fn images_table(images: &[v1::Image]) -> Table {
    let mut table = Table::new(&["IMAGE", "IMAGE ID", "SIZE", "PINNED"]);
    for image in images {
        let names = match (image.repo_tags.as_slice(), image.repo_digests.as_slice()) {
            ([], []) => vec!["<none>".to_owned()],
            ([], digests) => digests.to_vec(),
            (tags, _) => tags.to_vec(),
        };
        let pinned = if image.pinned { "yes" } else { "no" };
        for name in names {
            table.row([name, short_id(&image.id), size(image.size), pinned.to_owned()]);
        }
    }
    table
}

pub(super) async fn inspect_container(client: &CriClient, container_id: String) -> Result<()> {
    let request = v1::ContainerStatusRequest { container_id, verbose: true };
    let answer = client.container_status(request).await.map_err(explain)?;
    output::print(&json::pretty(&json::with_opened_info(&answer)?)?)
}

pub(super) async fn inspect_sandbox(client: &CriClient, pod_sandbox_id: String) -> Result<()> {
    let request = v1::PodSandboxStatusRequest { pod_sandbox_id, verbose: true };
    let answer = client.pod_sandbox_status(request).await.map_err(explain)?;
    output::print(&json::pretty(&json::with_opened_info(&answer)?)?)
}

pub(super) async fn inspect_image(client: &CriClient, name: String) -> Result<()> {
    let image = Some(v1::ImageSpec { image: name.clone(), ..Default::default() });
    let request = v1::ImageStatusRequest { image, verbose: true };
    let answer = client.image_status(request).await.map_err(explain)?;
    // For an image that it does not have, a runtime returns an empty response.
    answer
        .image
        .as_ref()
        .with_context(|| format!("no image {name}; list what is there with `images`"))?;
    output::print(&json::pretty(&json::with_opened_info(&answer)?)?)
}

pub(super) async fn container_stats(
    client: &CriClient,
    format: CriFormat,
    container: Option<String>,
) -> Result<()> {
    let id = container.unwrap_or_default();
    let filter = Some(v1::ContainerStatsFilter { id, ..Default::default() });
    let request = v1::ListContainerStatsRequest { filter };
    let answer = client.list_container_stats(request).await.map_err(explain)?;
    show(&answer, format, |answer| {
        let mut table = Table::new(&["CONTAINER", "NAME", "CPU TIME", "MEMORY", "DISK", "INODES"]);
        for stats in &answer.stats {
            let attributes = stats.attributes.clone().unwrap_or_default();
            let disk = stats.writable_layer.clone().unwrap_or_default();
            table.row([
                short_id(&attributes.id),
                attributes.metadata.unwrap_or_default().name,
                cpu_time(stats.cpu.as_ref()),
                memory(stats.memory.as_ref()),
                amount(disk.used_bytes.map(|bytes| size(bytes.value))),
                amount(disk.inodes_used.map(|count| count.value.to_string())),
            ]);
        }
        table
    })
}

pub(super) async fn sandbox_stats(
    client: &CriClient,
    format: CriFormat,
    sandbox: Option<String>,
) -> Result<()> {
    let id = sandbox.unwrap_or_default();
    let filter = Some(v1::PodSandboxStatsFilter { id, ..Default::default() });
    let request = v1::ListPodSandboxStatsRequest { filter };
    let answer = client.list_pod_sandbox_stats(request).await.map_err(explain)?;
    show(&answer, format, |answer| {
        let heads = ["POD ID", "NAME", "NAMESPACE", "CPU TIME", "MEMORY", "PROCESSES"];
        let mut table = Table::new(&heads);
        for stats in &answer.stats {
            let attributes = stats.attributes.clone().unwrap_or_default();
            let metadata = attributes.metadata.unwrap_or_default();
            let linux = stats.linux.clone().unwrap_or_default();
            let processes = linux.process.and_then(|process| process.process_count);
            table.row([
                short_id(&attributes.id),
                metadata.name,
                metadata.namespace,
                cpu_time(linux.cpu.as_ref()),
                memory(linux.memory.as_ref()),
                amount(processes.map(|count| count.value.to_string())),
            ]);
        }
        table
    })
}

/// As scrapers read metrics: a name, its labels, the value.
pub(super) async fn sandbox_metrics(client: &CriClient, format: CriFormat) -> Result<()> {
    let request = v1::ListPodSandboxMetricsRequest::default();
    let answer = client.list_pod_sandbox_metrics(request).await.map_err(explain)?;
    if format == CriFormat::Json {
        return output::print(&json::pretty(&json::to_value(&answer)?)?);
    }
    let request = v1::ListMetricDescriptorsRequest::default();
    let known = client.list_metric_descriptors(request).await.map_err(explain)?.descriptors;
    let mut text = String::new();
    for pod in &answer.pod_metrics {
        let of_containers = pod.container_metrics.iter().flat_map(|one| &one.metrics);
        for metric in pod.metrics.iter().chain(of_containers) {
            let keys = known.iter().find(|one| one.name == metric.name);
            let keys = keys.map(|one| one.label_keys.as_slice()).unwrap_or_default();
            let labels: Vec<String> = keys
                .iter()
                .zip(&metric.label_values)
                .map(|(key, value)| format!("{key}={value:?}"))
                .collect();
            let value = metric.value.map(|value| value.value).unwrap_or_default();
            text.push_str(&format!("{}{{{}}} {value}\n", metric.name, labels.join(",")));
        }
    }
    output::print(&text)
}

fn cpu_time(cpu: Option<&v1::CpuUsage>) -> String {
    let used = cpu.and_then(|cpu| cpu.usage_core_nano_seconds);
    amount(used.map(|nanos| {
        let milliseconds = nanos.value / 1_000_000;
        format!("{}.{:03}s", milliseconds / 1_000, milliseconds % 1_000)
    }))
}

fn memory(memory: Option<&v1::MemoryUsage>) -> String {
    amount(memory.and_then(|memory| memory.working_set_bytes).map(|bytes| size(bytes.value)))
}

fn amount(known: Option<String>) -> String {
    known.unwrap_or_else(|| "-".to_owned())
}

pub(super) async fn events(client: &CriClient, format: CriFormat) -> Result<()> {
    let mut events = client.container_events();
    while let Some(event) = events.next().await.map_err(explain)? {
        let line = match format {
            CriFormat::Json => json::to_value(&event)?.to_string(),
            CriFormat::Table => event_line(&event),
        };
        output::print(&format!("{line}\n"))?;
    }
    Ok(())
}

pub(super) fn event_line(event: &v1::ContainerEventResponse) -> String {
    let kind = match event.container_event_type() {
        v1::ContainerEventType::ContainerCreatedEvent => "created",
        v1::ContainerEventType::ContainerStartedEvent => "started",
        v1::ContainerEventType::ContainerStoppedEvent => "stopped",
        v1::ContainerEventType::ContainerDeletedEvent => "deleted",
    };
    let sandbox = event.pod_sandbox_status.clone().unwrap_or_default();
    let pod = sandbox.metadata.unwrap_or_default();
    let time = jiff::Timestamp::from_nanosecond(event.created_at.into())
        .map_or_else(|_| event.created_at.to_string(), |time| time.to_string());
    let id = short_id(&event.container_id);
    format!("{time} {kind} {id} pod {}/{}", pod.namespace, pod.name)
}
