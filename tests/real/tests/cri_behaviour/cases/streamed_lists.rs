//! Streamed lists, since v1.36: the same items as the plain lists, whatever their number.

use anyhow::{Result, ensure};
use cri_wire::v1;
use tonic::Streaming;

use super::cases;
use crate::support::{BUSYBOX, Cri};

cases![
    stream_of_sandboxes,
    stream_of_containers,
    stream_of_many_containers_has_parts,
    stream_of_container_stats,
    stream_of_pod_stats,
    stream_of_pod_metrics,
    stream_of_images,
];

/// More than one message holds, and few enough to create within a case.
const MANY: usize = 101;

/// The items of each message, as texts; a stream ends without an error.
async fn parts<Answer, Item>(
    mut stream: Streaming<Answer>,
    items: impl Fn(Answer) -> Vec<Item>,
    text: impl Fn(Item) -> String,
) -> Result<Vec<Vec<String>>> {
    let mut parts = Vec::new();
    while let Some(answer) = stream.message().await? {
        parts.push(items(answer).into_iter().map(&text).collect());
    }
    Ok(parts)
}

fn sorted(parts: Vec<Vec<String>>) -> Vec<String> {
    let mut all: Vec<String> = parts.into_iter().flatten().collect();
    all.sort();
    all
}

fn extra() -> std::collections::BTreeMap<String, String> {
    [("extra".to_owned(), "yes".to_owned())].into()
}

async fn sandboxes(cri: &Cri, filter: v1::PodSandboxFilter) -> Result<Vec<String>> {
    let request = v1::StreamPodSandboxesRequest { filter: Some(filter) };
    let stream = cri.rt().stream_pod_sandboxes(request).await?.into_inner();
    Ok(sorted(parts(stream, |answer| answer.pod_sandboxes, |one| one.id).await?))
}

async fn stream_of_sandboxes(cri: &Cri) -> Result<()> {
    ensure!(sandboxes(cri, Default::default()).await?.is_empty());
    let first = cri.run(&cri.pod()).await?;
    let mut pod = cri.pod();
    pod.labels.extend(extra());
    let second = cri.run(&pod).await?;
    let all = sorted(vec![vec![first.clone(), second.clone()]]);
    ensure!(sandboxes(cri, Default::default()).await? == all);
    let filter = v1::PodSandboxFilter { label_selector: extra(), ..Default::default() };
    ensure!(sandboxes(cri, filter).await? == std::slice::from_ref(&second));
    let filter = v1::PodSandboxFilter { id: "unknown".to_owned(), ..Default::default() };
    ensure!(sandboxes(cri, filter).await?.is_empty());
    cri.stop_pod(&first).await?;
    let state = v1::PodSandboxState::SandboxReady.into();
    let state = Some(v1::PodSandboxStateValue { state });
    let filter = v1::PodSandboxFilter { state, ..Default::default() };
    ensure!(sandboxes(cri, filter).await? == [second]);
    Ok(())
}

async fn containers(cri: &Cri, filter: v1::ContainerFilter) -> Result<Vec<Vec<String>>> {
    let request = v1::StreamContainersRequest { filter: Some(filter) };
    let stream = cri.rt().stream_containers(request).await?.into_inner();
    parts(stream, |answer| answer.containers, |one| one.id).await
}

async fn stream_of_containers(cri: &Cri) -> Result<()> {
    ensure!(sorted(containers(cri, Default::default()).await?).is_empty());
    let running = cri.running("sleep 100").await?;
    let mut config = cri.container("true");
    config.labels.extend(extra());
    let created = cri.create(&running.sandbox, &running.pod, &config).await?;
    let all = sorted(vec![vec![running.id.clone(), created.clone()]]);
    ensure!(sorted(containers(cri, Default::default()).await?) == all);
    let filter = v1::ContainerFilter { label_selector: extra(), ..Default::default() };
    ensure!(sorted(containers(cri, filter).await?) == [created]);
    let state = v1::ContainerState::ContainerRunning.into();
    let state = Some(v1::ContainerStateValue { state });
    let filter = v1::ContainerFilter { state, ..Default::default() };
    ensure!(sorted(containers(cri, filter).await?) == [running.id]);
    let filter = v1::ContainerFilter { pod_sandbox_id: "unknown".to_owned(), ..Default::default() };
    ensure!(sorted(containers(cri, filter).await?).is_empty());
    Ok(())
}

async fn stream_of_many_containers_has_parts(cri: &Cri) -> Result<()> {
    containers(cri, Default::default()).await?;
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    let mut made = Vec::new();
    for _ in 0..MANY {
        made.push(cri.create(&sandbox, &pod, &cri.container("true")).await?);
    }
    let items = containers(cri, Default::default()).await?;
    ensure!(items.len() > 1, "{} items in one part", items.concat().len());
    ensure!(items.iter().all(|part| !part.is_empty()), "a part without items");
    ensure!(sorted(items) == sorted(vec![made]));
    Ok(())
}

async fn container_stats(cri: &Cri, filter: v1::ContainerStatsFilter) -> Result<Vec<String>> {
    let request = v1::StreamContainerStatsRequest { filter: Some(filter) };
    let stream = cri.rt().stream_container_stats(request).await?.into_inner();
    let id = |one: v1::ContainerStats| one.attributes.unwrap_or_default().id;
    Ok(sorted(parts(stream, |answer| answer.container_stats, id).await?))
}

async fn stream_of_container_stats(cri: &Cri) -> Result<()> {
    ensure!(container_stats(cri, Default::default()).await?.is_empty());
    let (first, second) = (cri.running("sleep 100").await?, cri.running("sleep 100").await?);
    let all = sorted(vec![vec![first.id.clone(), second.id]]);
    ensure!(container_stats(cri, Default::default()).await? == all);
    let filter = v1::ContainerStatsFilter { pod_sandbox_id: first.sandbox, ..Default::default() };
    ensure!(container_stats(cri, filter).await? == [first.id]);
    Ok(())
}

async fn pod_stats(cri: &Cri, filter: v1::PodSandboxStatsFilter) -> Result<Vec<String>> {
    let request = v1::StreamPodSandboxStatsRequest { filter: Some(filter) };
    let stream = cri.rt().stream_pod_sandbox_stats(request).await?.into_inner();
    let id = |one: v1::PodSandboxStats| one.attributes.unwrap_or_default().id;
    Ok(sorted(parts(stream, |answer| answer.pod_sandbox_stats, id).await?))
}

async fn stream_of_pod_stats(cri: &Cri) -> Result<()> {
    ensure!(pod_stats(cri, Default::default()).await?.is_empty());
    let first = cri.run(&cri.pod()).await?;
    let mut pod = cri.pod();
    pod.labels.extend(extra());
    let second = cri.run(&pod).await?;
    let all = sorted(vec![vec![first.clone(), second.clone()]]);
    ensure!(pod_stats(cri, Default::default()).await? == all);
    let filter = v1::PodSandboxStatsFilter { id: first.clone(), ..Default::default() };
    ensure!(pod_stats(cri, filter).await? == [first]);
    let filter = v1::PodSandboxStatsFilter { label_selector: extra(), ..Default::default() };
    ensure!(pod_stats(cri, filter).await? == [second]);
    Ok(())
}

async fn stream_of_pod_metrics(cri: &Cri) -> Result<()> {
    let items = async || -> Result<Vec<String>> {
        let request = v1::StreamPodSandboxMetricsRequest {};
        let stream = cri.rt().stream_pod_sandbox_metrics(request).await?.into_inner();
        let id = |one: v1::PodSandboxMetrics| one.pod_sandbox_id;
        Ok(sorted(parts(stream, |answer| answer.pod_sandbox_metrics, id).await?))
    };
    ensure!(items().await?.is_empty());
    let (first, second) = (cri.running("sleep 100").await?, cri.running("sleep 100").await?);
    ensure!(items().await? == sorted(vec![vec![first.sandbox, second.sandbox]]));
    Ok(())
}

async fn stream_of_images(cri: &Cri) -> Result<()> {
    let streamed = async |image: Option<&str>| -> Result<Vec<String>> {
        let filter = image.map(|image| v1::ImageFilter {
            image: Some(v1::ImageSpec { image: image.to_owned(), ..Default::default() }),
        });
        let request = v1::StreamImagesRequest { filter };
        let stream = cri.im().stream_images(request).await?.into_inner();
        Ok(sorted(parts(stream, |answer| answer.images, |one| one.repo_tags.concat()).await?))
    };
    ensure!(streamed(Some("registry.test/unknown:1")).await?.is_empty());
    let one = streamed(Some(BUSYBOX)).await?;
    ensure!(one.len() == 1 && one[0].contains("busybox"), "{one:?}");
    let listed = cri.im().list_images(v1::ListImagesRequest { filter: None }).await?.into_inner();
    let listed = listed.images.into_iter().map(|one| one.repo_tags.concat()).collect();
    let all = streamed(None).await?;
    ensure!(all == sorted(vec![listed]) && all.len() > 1, "{all:?}");
    Ok(())
}
