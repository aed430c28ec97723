//! Lists and their filters.

use anyhow::{Result, ensure};
use cri_wire::v1;

use super::cases;
use crate::support::Cri;

cases![
    list_of_sandboxes_has_all,
    list_of_sandboxes_by_id,
    list_of_sandboxes_by_the_start_of_an_id,
    list_of_sandboxes_by_unknown_id_is_empty,
    list_of_sandboxes_by_state,
    list_of_sandboxes_by_labels,
    list_of_sandboxes_by_all_labels_at_once,
    list_of_containers_has_all,
    list_of_containers_by_id,
    list_of_containers_by_sandbox,
    list_of_containers_by_state,
    list_of_containers_by_labels,
    list_of_containers_shows_the_image,
    list_of_containers_by_unknown_sandbox_is_empty,
];

async fn sandboxes(cri: &Cri, filter: v1::PodSandboxFilter) -> Result<Vec<String>> {
    let request = v1::ListPodSandboxRequest { filter: Some(filter) };
    let items = cri.rt().list_pod_sandbox(request).await?.into_inner().items;
    let mut ids: Vec<String> = items.into_iter().map(|item| item.id).collect();
    ids.sort();
    Ok(ids)
}

async fn containers(cri: &Cri, filter: v1::ContainerFilter) -> Result<Vec<String>> {
    let request = v1::ListContainersRequest { filter: Some(filter) };
    let items = cri.rt().list_containers(request).await?.into_inner().containers;
    let mut ids: Vec<String> = items.into_iter().map(|item| item.id).collect();
    ids.sort();
    Ok(ids)
}

fn sorted(mut ids: Vec<String>) -> Vec<String> {
    ids.sort();
    ids
}

/// Two pods, the second with one more label.
async fn two(cri: &Cri) -> Result<(String, String)> {
    let first = cri.run(&cri.pod()).await?;
    let mut pod = cri.pod();
    pod.labels.insert("extra".to_owned(), "yes".to_owned());
    Ok((first, cri.run(&pod).await?))
}

async fn list_of_sandboxes_has_all(cri: &Cri) -> Result<()> {
    let (first, second) = two(cri).await?;
    ensure!(sandboxes(cri, Default::default()).await? == sorted(vec![first, second]));
    let none = cri.rt().list_pod_sandbox(v1::ListPodSandboxRequest { filter: None }).await?;
    ensure!(none.into_inner().items.len() == 2);
    Ok(())
}

async fn list_of_sandboxes_by_id(cri: &Cri) -> Result<()> {
    let (first, _) = two(cri).await?;
    let filter = v1::PodSandboxFilter { id: first.clone(), ..Default::default() };
    ensure!(sandboxes(cri, filter).await? == [first]);
    Ok(())
}

async fn list_of_sandboxes_by_the_start_of_an_id(cri: &Cri) -> Result<()> {
    let (first, _) = two(cri).await?;
    let filter = v1::PodSandboxFilter { id: first[..13].to_owned(), ..Default::default() };
    ensure!(sandboxes(cri, filter).await? == [first]);
    Ok(())
}

async fn list_of_sandboxes_by_unknown_id_is_empty(cri: &Cri) -> Result<()> {
    two(cri).await?;
    let filter = v1::PodSandboxFilter { id: "unknown".to_owned(), ..Default::default() };
    ensure!(sandboxes(cri, filter).await?.is_empty());
    Ok(())
}

async fn list_of_sandboxes_by_state(cri: &Cri) -> Result<()> {
    let (first, second) = two(cri).await?;
    cri.stop_pod(&first).await?;
    let by = |state: v1::PodSandboxState| v1::PodSandboxFilter {
        state: Some(v1::PodSandboxStateValue { state: state.into() }),
        ..Default::default()
    };
    ensure!(sandboxes(cri, by(v1::PodSandboxState::SandboxReady)).await? == [second]);
    ensure!(sandboxes(cri, by(v1::PodSandboxState::SandboxNotready)).await? == [first]);
    Ok(())
}

async fn list_of_sandboxes_by_labels(cri: &Cri) -> Result<()> {
    let (_, second) = two(cri).await?;
    let selector = [("extra".to_owned(), "yes".to_owned())].into();
    let filter = v1::PodSandboxFilter { label_selector: selector, ..Default::default() };
    ensure!(sandboxes(cri, filter).await? == [second]);
    Ok(())
}

async fn list_of_sandboxes_by_all_labels_at_once(cri: &Cri) -> Result<()> {
    two(cri).await?;
    let selector =
        [("extra".to_owned(), "yes".to_owned()), ("case".to_owned(), "other".to_owned())].into();
    let filter = v1::PodSandboxFilter { label_selector: selector, ..Default::default() };
    ensure!(sandboxes(cri, filter).await?.is_empty());
    Ok(())
}

/// A running container and a created one, in two pods.
async fn two_containers(cri: &Cri) -> Result<(crate::support::StartedContainer, String, String)> {
    let running = cri.running("sleep 100").await?;
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    let mut config = cri.container("true");
    config.labels.insert("extra".to_owned(), "yes".to_owned());
    let created = cri.create(&sandbox, &pod, &config).await?;
    Ok((running, sandbox, created))
}

async fn list_of_containers_has_all(cri: &Cri) -> Result<()> {
    let (running, _, created) = two_containers(cri).await?;
    ensure!(containers(cri, Default::default()).await? == sorted(vec![running.id, created]));
    Ok(())
}

async fn list_of_containers_by_id(cri: &Cri) -> Result<()> {
    let (running, ..) = two_containers(cri).await?;
    for id in [&running.id, &running.id[..13].to_owned()] {
        let filter = v1::ContainerFilter { id: id.clone(), ..Default::default() };
        ensure!(containers(cri, filter).await? == [running.id.clone()], "{id}");
    }
    Ok(())
}

async fn list_of_containers_by_sandbox(cri: &Cri) -> Result<()> {
    let (_, sandbox, created) = two_containers(cri).await?;
    let filter = v1::ContainerFilter { pod_sandbox_id: sandbox, ..Default::default() };
    ensure!(containers(cri, filter).await? == [created]);
    Ok(())
}

async fn list_of_containers_by_state(cri: &Cri) -> Result<()> {
    let (running, _, created) = two_containers(cri).await?;
    let by = |state: v1::ContainerState| v1::ContainerFilter {
        state: Some(v1::ContainerStateValue { state: state.into() }),
        ..Default::default()
    };
    ensure!(containers(cri, by(v1::ContainerState::ContainerRunning)).await? == [running.id]);
    ensure!(containers(cri, by(v1::ContainerState::ContainerCreated)).await? == [created]);
    ensure!(containers(cri, by(v1::ContainerState::ContainerExited)).await?.is_empty());
    Ok(())
}

async fn list_of_containers_by_labels(cri: &Cri) -> Result<()> {
    let (_, _, created) = two_containers(cri).await?;
    let selector = [("extra".to_owned(), "yes".to_owned())].into();
    let filter = v1::ContainerFilter { label_selector: selector, ..Default::default() };
    ensure!(containers(cri, filter).await? == [created]);
    Ok(())
}

async fn list_of_containers_shows_the_image(cri: &Cri) -> Result<()> {
    cri.running("sleep 100").await?;
    let request = v1::ListContainersRequest { filter: None };
    let list = cri.rt().list_containers(request).await?.into_inner().containers;
    ensure!(list[0].image_ref.starts_with("sha256:"), "{:?}", list[0].image_ref);
    ensure!(list[0].image.as_ref().is_some_and(|image| image.image == crate::support::BUSYBOX));
    Ok(())
}

async fn list_of_containers_by_unknown_sandbox_is_empty(cri: &Cri) -> Result<()> {
    two_containers(cri).await?;
    let filter = v1::ContainerFilter { pod_sandbox_id: "unknown".to_owned(), ..Default::default() };
    ensure!(containers(cri, filter).await?.is_empty());
    Ok(())
}
