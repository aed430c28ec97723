//! Pod sandboxes: create, list, stop, remove.

use anyhow::{Result, ensure};
use cri_wire::v1;
use tonic::Code;

use super::cases;
use crate::support::{Cri, code, pod_options};

cases![
    sandbox_becomes_ready,
    sandbox_status_shows_what_was_asked,
    sandbox_needs_metadata,
    sandbox_name_is_taken_once,
    sandbox_with_another_attempt_is_another,
    sandbox_with_unknown_handler_is_refused,
    sandbox_with_known_handler_shows_it,
    sandbox_stop_makes_it_not_ready,
    sandbox_stop_twice_is_fine,
    sandbox_stop_of_unknown_is_fine,
    sandbox_stop_of_empty_id_is_refused,
    sandbox_remove_twice_is_fine,
    sandbox_remove_of_ready_stops_it,
    sandbox_remove_takes_containers_along,
    sandbox_stop_stops_containers,
    sandbox_status_of_unknown_is_not_found,
    sandbox_is_found_by_the_start_of_its_id,
    sandbox_name_is_free_after_removal,
    sandbox_failed_leaves_nothing,
    sandbox_times_are_nanoseconds,
    sandbox_verbose_has_info,
    sandbox_not_verbose_has_no_info,
    sandbox_keeps_its_creation_time_when_stopped,
    sandbox_resources_can_be_updated,
    sandbox_resources_of_unknown_are_refused,
];

async fn sandbox_becomes_ready(cri: &Cri) -> Result<()> {
    let id = cri.run(&cri.pod()).await?;
    ensure!(id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "the id {id}");
    ensure!(cri.pod_status(&id).await?.state() == v1::PodSandboxState::SandboxReady);
    Ok(())
}

async fn sandbox_status_shows_what_was_asked(cri: &Cri) -> Result<()> {
    let pod = cri.pod();
    let id = cri.run(&pod).await?;
    let status = cri.pod_status(&id).await?;
    ensure!(status.metadata == pod.metadata, "{:?}", status.metadata);
    ensure!(status.labels == pod.labels && status.annotations == pod.annotations);
    let options = status.linux.and_then(|linux| linux.namespaces).and_then(|all| all.options);
    ensure!(options.is_some_and(|options| options.network() == v1::NamespaceMode::Node));
    ensure!(status.network.is_some_and(|network| network.ip.is_empty()), "no address on the host");
    Ok(())
}

async fn sandbox_needs_metadata(cri: &Cri) -> Result<()> {
    let pod = v1::PodSandboxConfig { metadata: None, ..cri.pod() };
    let request = v1::RunPodSandboxRequest { config: Some(pod), runtime_handler: String::new() };
    ensure!(code(cri.rt().run_pod_sandbox(request).await)? == Code::Unknown);
    Ok(())
}

async fn sandbox_name_is_taken_once(cri: &Cri) -> Result<()> {
    let pod = cri.pod();
    cri.run(&pod).await?;
    let request = v1::RunPodSandboxRequest { config: Some(pod), runtime_handler: String::new() };
    let refused = cri.rt().run_pod_sandbox(request).await;
    let Err(status) = refused else { anyhow::bail!("it was made twice") };
    ensure!(status.code() == Code::FailedPrecondition, "{status}");
    ensure!(status.message().contains("is reserved for"), "{status}");
    Ok(())
}

async fn sandbox_with_another_attempt_is_another(cri: &Cri) -> Result<()> {
    let mut pod = cri.pod();
    let first = cri.run(&pod).await?;
    pod.metadata.get_or_insert_default().attempt = 1;
    ensure!(cri.run(&pod).await? != first);
    Ok(())
}

async fn sandbox_with_unknown_handler_is_refused(cri: &Cri) -> Result<()> {
    let request = v1::RunPodSandboxRequest {
        config: Some(cri.pod()),
        runtime_handler: "no-such-handler".to_owned(),
    };
    ensure!(code(cri.rt().run_pod_sandbox(request).await)? == Code::Unknown);
    Ok(())
}

async fn sandbox_with_known_handler_shows_it(cri: &Cri) -> Result<()> {
    let request = v1::RunPodSandboxRequest {
        config: Some(cri.pod()),
        runtime_handler: "test-handler".to_owned(),
    };
    let id = cri.rt().run_pod_sandbox(request).await?.into_inner().pod_sandbox_id;
    ensure!(cri.pod_status(&id).await?.runtime_handler == "test-handler");
    Ok(())
}

async fn sandbox_stop_makes_it_not_ready(cri: &Cri) -> Result<()> {
    let id = cri.run(&cri.pod()).await?;
    cri.stop_pod(&id).await?;
    ensure!(cri.pod_status(&id).await?.state() == v1::PodSandboxState::SandboxNotready);
    Ok(())
}

async fn sandbox_stop_twice_is_fine(cri: &Cri) -> Result<()> {
    let id = cri.run(&cri.pod()).await?;
    cri.stop_pod(&id).await?;
    Ok(cri.stop_pod(&id).await?)
}

async fn sandbox_stop_of_unknown_is_fine(cri: &Cri) -> Result<()> {
    Ok(cri.stop_pod("no-such-sandbox").await?)
}

async fn sandbox_stop_of_empty_id_is_refused(cri: &Cri) -> Result<()> {
    ensure!(code(cri.stop_pod("").await)? == Code::Unknown);
    Ok(())
}

async fn sandbox_remove_twice_is_fine(cri: &Cri) -> Result<()> {
    let id = cri.run(&cri.pod()).await?;
    cri.stop_pod(&id).await?;
    cri.remove_pod(&id).await?;
    Ok(cri.remove_pod(&id).await?)
}

async fn sandbox_remove_of_ready_stops_it(cri: &Cri) -> Result<()> {
    let id = cri.run(&cri.pod()).await?;
    cri.remove_pod(&id).await?;
    ensure!(code(cri.pod_status(&id).await)? == Code::NotFound);
    Ok(())
}

async fn sandbox_remove_takes_containers_along(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    cri.remove_pod(&running.sandbox).await?;
    ensure!(code(cri.status(&running.id).await)? == Code::NotFound);
    Ok(())
}

async fn sandbox_stop_stops_containers(cri: &Cri) -> Result<()> {
    let running = cri.running("trap '' TERM; while true; do sleep 1; done").await?;
    cri.stop_pod(&running.sandbox).await?;
    let status = cri.status(&running.id).await?;
    ensure!(status.state() == v1::ContainerState::ContainerExited);
    ensure!(status.exit_code == 137, "{}", status.exit_code);
    Ok(())
}

async fn sandbox_status_of_unknown_is_not_found(cri: &Cri) -> Result<()> {
    ensure!(code(cri.pod_status("no-such-sandbox").await)? == Code::NotFound);
    Ok(())
}

async fn sandbox_is_found_by_the_start_of_its_id(cri: &Cri) -> Result<()> {
    let id = cri.run(&cri.pod()).await?;
    ensure!(cri.pod_status(&id[..13]).await?.id == id);
    Ok(())
}

async fn sandbox_name_is_free_after_removal(cri: &Cri) -> Result<()> {
    let pod = cri.pod();
    let first = cri.run(&pod).await?;
    cri.remove_pod(&first).await?;
    ensure!(cri.run(&pod).await? != first);
    Ok(())
}

async fn sandbox_failed_leaves_nothing(cri: &Cri) -> Result<()> {
    let mut pod = cri.pod();
    let linux = pod.linux.get_or_insert_default();
    linux.sysctls.insert("no.such.setting".to_owned(), "1".to_owned());
    let request =
        v1::RunPodSandboxRequest { config: Some(pod.clone()), runtime_handler: String::new() };
    ensure!(code(cri.rt().run_pod_sandbox(request).await)? == Code::Unknown);
    let list = cri.rt().list_pod_sandbox(v1::ListPodSandboxRequest::default()).await?;
    ensure!(list.into_inner().items.is_empty(), "something stayed");
    pod.linux.get_or_insert_default().sysctls.clear();
    cri.run(&pod).await?;
    Ok(())
}

async fn sandbox_times_are_nanoseconds(cri: &Cri) -> Result<()> {
    let before = i64::try_from(
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos(),
    )?;
    let id = cri.run(&cri.pod()).await?;
    let created = cri.pod_status(&id).await?.created_at;
    ensure!(created >= before && created < before + 60_000_000_000, "{created} after {before}");
    Ok(())
}

async fn sandbox_verbose_has_info(cri: &Cri) -> Result<()> {
    let id = cri.run(&cri.pod()).await?;
    let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id, verbose: true };
    let info = cri.rt().pod_sandbox_status(request).await?.into_inner().info;
    let info: serde_json::Value = serde_json::from_str(info.get("info").map_or("", |text| text))?;
    ensure!(info["pid"].as_u64().is_some_and(|pid| pid > 0), "{info}");
    Ok(())
}

async fn sandbox_not_verbose_has_no_info(cri: &Cri) -> Result<()> {
    let id = cri.run(&cri.pod()).await?;
    let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id, verbose: false };
    ensure!(cri.rt().pod_sandbox_status(request).await?.into_inner().info.is_empty());
    Ok(())
}

async fn sandbox_keeps_its_creation_time_when_stopped(cri: &Cri) -> Result<()> {
    let id = cri.run(&cri.pod()).await?;
    let before = cri.pod_status(&id).await?.created_at;
    cri.stop_pod(&id).await?;
    ensure!(cri.pod_status(&id).await?.created_at == before);
    Ok(())
}

async fn sandbox_resources_can_be_updated(cri: &Cri) -> Result<()> {
    let mut pod = cri.pod();
    pod_options(&mut pod);
    let id = cri.run(&pod).await?;
    let request = v1::UpdatePodSandboxResourcesRequest {
        pod_sandbox_id: id,
        overhead: None,
        resources: Some(v1::LinuxContainerResources { cpu_shares: 256, ..Default::default() }),
    };
    cri.rt().update_pod_sandbox_resources(request).await?;
    Ok(())
}

async fn sandbox_resources_of_unknown_are_refused(cri: &Cri) -> Result<()> {
    let request = v1::UpdatePodSandboxResourcesRequest {
        pod_sandbox_id: "no-such-sandbox".to_owned(),
        ..Default::default()
    };
    ensure!(code(cri.rt().update_pod_sandbox_resources(request).await)? != Code::Ok);
    Ok(())
}
