//! Containers: create, start, exit, remove.

use anyhow::{Result, ensure};
use cri_wire::v1;
use tonic::Code;

use super::cases;
use crate::support::{BUSYBOX, CONFIGURED, Cri, code, texts};

cases![
    container_goes_through_its_states,
    container_exit_code_is_kept,
    container_exit_zero_is_completed,
    container_killed_by_a_signal_has_128_and_its_number,
    container_status_shows_what_was_asked,
    container_status_of_unknown_is_not_found,
    container_is_found_by_the_start_of_its_id,
    container_needs_metadata,
    container_needs_the_pods_metadata,
    container_needs_a_sandbox,
    container_needs_a_known_image,
    container_needs_a_command,
    container_name_is_taken_once,
    container_with_another_attempt_is_another,
    container_starts_once,
    container_start_of_unknown_is_not_found,
    container_that_ended_cannot_be_started,
    container_in_a_stopped_pod_cannot_be_started,
    container_whose_program_is_missing_fails_to_start,
    container_stop_gives_grace,
    container_stop_sends_a_real_time_signal,
    container_stop_kills_after_its_grace,
    container_stop_without_grace_kills_at_once,
    container_stop_twice_is_fine,
    container_stop_of_unknown_is_fine,
    container_stop_of_created_is_fine,
    container_remove_of_running_stops_it,
    container_remove_of_created_is_fine,
    container_remove_of_unknown_is_fine,
    container_remove_twice_is_fine,
    container_name_is_free_after_removal,
    container_times_are_in_order,
    container_uses_the_defaults_of_its_image,
    container_command_replaces_the_images,
    container_arguments_replace_the_images_command,
    container_environment_is_passed,
    container_working_directory_is_used,
    container_hostname_variable_is_the_pods,
    container_image_is_shown_by_name_and_digest,
    container_resources_can_be_updated_while_it_runs,
    container_resources_of_unknown_are_not_found,
    container_finds_its_files_writable,
    container_root_can_be_read_only,
    container_verbose_has_info,
];

async fn container_goes_through_its_states(cri: &Cri) -> Result<()> {
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    let id = cri.create(&sandbox, &pod, &cri.container("sleep 3")).await?;
    ensure!(cri.status(&id).await?.state() == v1::ContainerState::ContainerCreated);
    cri.start(&id).await?;
    ensure!(cri.status(&id).await?.state() == v1::ContainerState::ContainerRunning);
    cri.until_ended(&id).await?;
    cri.remove(&id).await?;
    ensure!(code(cri.status(&id).await)? == Code::NotFound);
    Ok(())
}

async fn container_exit_code_is_kept(cri: &Cri) -> Result<()> {
    let running = cri.running("exit 7").await?;
    let status = cri.until_ended(&running.id).await?;
    ensure!(status.exit_code == 7 && status.reason == "Error", "{status:?}");
    Ok(())
}

async fn container_exit_zero_is_completed(cri: &Cri) -> Result<()> {
    let running = cri.running("true").await?;
    let status = cri.until_ended(&running.id).await?;
    ensure!(status.exit_code == 0 && status.reason == "Completed", "{status:?}");
    Ok(())
}

async fn container_killed_by_a_signal_has_128_and_its_number(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 0.1; sh -c 'kill -SEGV $$'; exit $?").await?;
    ensure!(cri.until_ended(&running.id).await?.exit_code == 139);
    Ok(())
}

async fn container_status_shows_what_was_asked(cri: &Cri) -> Result<()> {
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    let config = cri.container("true");
    let id = cri.create(&sandbox, &pod, &config).await?;
    let status = cri.status(&id).await?;
    ensure!(status.metadata == config.metadata && status.labels == config.labels);
    ensure!(status.log_path == cri.dir.join(&config.log_path).display().to_string());
    ensure!(status.exit_code == 0 && status.reason.is_empty() && status.message.is_empty());
    Ok(())
}

async fn container_status_of_unknown_is_not_found(cri: &Cri) -> Result<()> {
    ensure!(code(cri.status("no-such-container").await)? == Code::NotFound);
    ensure!(code(cri.status("").await)? == Code::Unknown);
    Ok(())
}

async fn container_is_found_by_the_start_of_its_id(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    ensure!(cri.status(&running.id[..13]).await?.id == running.id);
    Ok(())
}

async fn container_needs_metadata(cri: &Cri) -> Result<()> {
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    let config = v1::ContainerConfig { metadata: None, ..cri.container("true") };
    ensure!(code(cri.create(&sandbox, &pod, &config).await)? == Code::Unknown);
    Ok(())
}

async fn container_needs_the_pods_metadata(cri: &Cri) -> Result<()> {
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    let nameless = v1::PodSandboxConfig { metadata: None, ..pod };
    let refused = cri.create(&sandbox, &nameless, &cri.container("true")).await;
    ensure!(code(refused)? == Code::Unknown);
    Ok(())
}

async fn container_needs_a_sandbox(cri: &Cri) -> Result<()> {
    let refused = cri.create("no-such-sandbox", &cri.pod(), &cri.container("true")).await;
    ensure!(code(refused)? == Code::NotFound);
    Ok(())
}

async fn container_needs_a_known_image(cri: &Cri) -> Result<()> {
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    let mut config = cri.container("true");
    config.image.get_or_insert_default().image = "registry.test/missing:1".to_owned();
    ensure!(code(cri.create(&sandbox, &pod, &config).await)? == Code::NotFound);
    Ok(())
}

async fn container_needs_a_command(cri: &Cri) -> Result<()> {
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    let mut config = cri.container("");
    config.command.clear();
    config.image.get_or_insert_default().image = crate::support::COMMANDLESS.to_owned();
    ensure!(code(cri.create(&sandbox, &pod, &config).await)? == Code::Unknown);
    Ok(())
}

async fn container_name_is_taken_once(cri: &Cri) -> Result<()> {
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    let config = cri.container("true");
    cri.create(&sandbox, &pod, &config).await?;
    let Err(status) = cri.create(&sandbox, &pod, &config).await else {
        anyhow::bail!("it was made twice")
    };
    ensure!(status.code() == Code::FailedPrecondition, "{status}");
    ensure!(status.message().contains("is reserved for"), "{status}");
    Ok(())
}

async fn container_with_another_attempt_is_another(cri: &Cri) -> Result<()> {
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    let mut config = cri.container("true");
    let first = cri.create(&sandbox, &pod, &config).await?;
    config.metadata.get_or_insert_default().attempt = 1;
    ensure!(cri.create(&sandbox, &pod, &config).await? != first);
    Ok(())
}

async fn container_starts_once(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    ensure!(code(cri.start(&running.id).await)? == Code::Unknown);
    ensure!(cri.status(&running.id).await?.state() == v1::ContainerState::ContainerRunning);
    Ok(())
}

async fn container_start_of_unknown_is_not_found(cri: &Cri) -> Result<()> {
    ensure!(code(cri.start("no-such-container").await)? == Code::NotFound);
    Ok(())
}

async fn container_that_ended_cannot_be_started(cri: &Cri) -> Result<()> {
    let running = cri.running("true").await?;
    cri.until_ended(&running.id).await?;
    ensure!(code(cri.start(&running.id).await)? == Code::Unknown);
    Ok(())
}

async fn container_in_a_stopped_pod_cannot_be_started(cri: &Cri) -> Result<()> {
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    let id = cri.create(&sandbox, &pod, &cri.container("true")).await?;
    cri.stop_pod(&sandbox).await?;
    ensure!(code(cri.start(&id).await)? == Code::Unknown);
    Ok(())
}

async fn container_whose_program_is_missing_fails_to_start(cri: &Cri) -> Result<()> {
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    let mut config = cri.container("");
    config.command = texts(&["/no/such/program"]);
    let id = cri.create(&sandbox, &pod, &config).await?;
    ensure!(code(cri.start(&id).await)? != Code::Ok);
    let status = cri.status(&id).await?;
    ensure!(status.state() == v1::ContainerState::ContainerExited, "{status:?}");
    ensure!(status.exit_code == 128 && status.reason == "StartError", "{status:?}");
    ensure!(!status.message.is_empty());
    Ok(())
}

async fn container_stop_gives_grace(cri: &Cri) -> Result<()> {
    let running =
        cri.running("trap 'exit 42' TERM; echo ready; while true; do sleep 0.05; done").await?;
    wait_for_output(&running, "ready").await?;
    cri.stop(&running.id, 20).await?;
    ensure!(cri.status(&running.id).await?.exit_code == 42);
    Ok(())
}

async fn wait_for_output(running: &crate::support::StartedContainer, text: &str) -> Result<()> {
    for _ in 0..500 {
        if running.output().is_ok_and(|printed| printed.contains(text)) {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    anyhow::bail!("{text:?} was never said")
}

/// The stop signal of images with systemd, and of others.
async fn container_stop_sends_a_real_time_signal(cri: &Cri) -> Result<()> {
    let script = "trap 'echo stopped; exit 4' 37; echo ready; while :; do sleep 0.05; done";
    let mut config = cri.container(script);
    config.stop_signal = v1::Signal::Sigrtminplus3.into();
    let running = cri.running_as(cri.pod(), config).await?;
    while !running.output().is_ok_and(|printed| printed.contains("ready")) {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    cri.stop(&running.id, 10).await?;
    let status = cri.status(&running.id).await?;
    ensure!(status.exit_code == 4, "{status:?}");
    ensure!(running.output()?.ends_with("stopped\n"), "{}", running.output()?);
    Ok(())
}

async fn container_stop_kills_after_its_grace(cri: &Cri) -> Result<()> {
    let running = cri.running("trap '' TERM; echo ready; while true; do sleep 0.05; done").await?;
    wait_for_output(&running, "ready").await?;
    let begun = std::time::Instant::now();
    cri.stop(&running.id, 1).await?;
    ensure!(begun.elapsed() >= std::time::Duration::from_millis(900), "{:?}", begun.elapsed());
    ensure!(cri.status(&running.id).await?.exit_code == 137);
    Ok(())
}

async fn container_stop_without_grace_kills_at_once(cri: &Cri) -> Result<()> {
    let running = cri.running("trap 'exit 42' TERM; while true; do sleep 0.05; done").await?;
    cri.stop(&running.id, 0).await?;
    ensure!(cri.status(&running.id).await?.exit_code == 137);
    Ok(())
}

async fn container_stop_twice_is_fine(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    cri.stop(&running.id, 0).await?;
    let before = cri.status(&running.id).await?;
    cri.stop(&running.id, 0).await?;
    ensure!(cri.status(&running.id).await? == before);
    Ok(())
}

async fn container_stop_of_unknown_is_fine(cri: &Cri) -> Result<()> {
    Ok(cri.stop("no-such-container", 0).await?)
}

async fn container_stop_of_created_is_fine(cri: &Cri) -> Result<()> {
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    let id = cri.create(&sandbox, &pod, &cri.container("true")).await?;
    cri.stop(&id, 5).await?;
    ensure!(cri.status(&id).await?.state() == v1::ContainerState::ContainerCreated);
    Ok(())
}

async fn container_remove_of_running_stops_it(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    cri.remove(&running.id).await?;
    ensure!(code(cri.status(&running.id).await)? == Code::NotFound);
    Ok(())
}

async fn container_remove_of_created_is_fine(cri: &Cri) -> Result<()> {
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    let id = cri.create(&sandbox, &pod, &cri.container("true")).await?;
    Ok(cri.remove(&id).await?)
}

async fn container_remove_of_unknown_is_fine(cri: &Cri) -> Result<()> {
    Ok(cri.remove("no-such-container").await?)
}

async fn container_remove_twice_is_fine(cri: &Cri) -> Result<()> {
    let running = cri.running("true").await?;
    cri.until_ended(&running.id).await?;
    cri.remove(&running.id).await?;
    Ok(cri.remove(&running.id).await?)
}

async fn container_name_is_free_after_removal(cri: &Cri) -> Result<()> {
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    let config = cri.container("true");
    let first = cri.create(&sandbox, &pod, &config).await?;
    cri.remove(&first).await?;
    ensure!(cri.create(&sandbox, &pod, &config).await? != first);
    Ok(())
}

async fn container_times_are_in_order(cri: &Cri) -> Result<()> {
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    let id = cri.create(&sandbox, &pod, &cri.container("sleep 0.1")).await?;
    let created = cri.status(&id).await?;
    ensure!(created.created_at > 1_500_000_000_000_000_000, "{}", created.created_at);
    ensure!(created.started_at == 0 && created.finished_at == 0);
    cri.start(&id).await?;
    let running = cri.status(&id).await?;
    ensure!(running.started_at >= running.created_at, "{running:?}");
    let ended = cri.until_ended(&id).await?;
    ensure!(ended.finished_at > ended.started_at && ended.created_at == created.created_at);
    Ok(())
}

fn of_image(cri: &Cri, image: &str) -> v1::ContainerConfig {
    let mut config = cri.container("");
    config.command.clear();
    config.image.get_or_insert_default().image = image.to_owned();
    config
}

async fn container_uses_the_defaults_of_its_image(cri: &Cri) -> Result<()> {
    let (exit, output) = cri.ran(cri.pod(), of_image(cri, CONFIGURED)).await?;
    ensure!((exit, output.as_str()) == (0, "65534\n/tmp\nyes\n"), "{exit}: {output}");
    Ok(())
}

async fn container_command_replaces_the_images(cri: &Cri) -> Result<()> {
    let mut config = of_image(cri, CONFIGURED);
    config.command = texts(&["echo"]);
    let (_, output) = cri.ran(cri.pod(), config).await?;
    ensure!(output == "\n", "{output:?}");
    Ok(())
}

async fn container_arguments_replace_the_images_command(cri: &Cri) -> Result<()> {
    let mut config = of_image(cri, CONFIGURED);
    config.args = texts(&["echo mine"]);
    let (_, output) = cri.ran(cri.pod(), config).await?;
    ensure!(output == "mine\n", "{output:?}");
    Ok(())
}

async fn container_environment_is_passed(cri: &Cri) -> Result<()> {
    let mut config = cri.container("echo \"$A-$B\"");
    config.envs = vec![
        v1::KeyValue { key: "A".to_owned(), value: b"one two".to_vec() },
        v1::KeyValue { key: "B".to_owned(), value: "ü".as_bytes().to_vec() },
    ];
    let (_, output) = cri.ran(cri.pod(), config).await?;
    ensure!(output == "one two-ü\n", "{output:?}");
    Ok(())
}

async fn container_working_directory_is_used(cri: &Cri) -> Result<()> {
    let mut config = cri.container("pwd");
    config.working_dir = "/not/there/yet".to_owned();
    let (exit, output) = cri.ran(cri.pod(), config).await?;
    ensure!((exit, output.as_str()) == (0, "/not/there/yet\n"), "{exit} {output:?}");
    Ok(())
}

async fn container_hostname_variable_is_the_pods(cri: &Cri) -> Result<()> {
    let (_, output) = cri.ran(cri.networked_pod(), cri.container("echo $HOSTNAME")).await?;
    ensure!(output == "pod-host\n", "{output:?}");
    Ok(())
}

async fn container_image_is_shown_by_name_and_digest(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    let status = cri.status(&running.id).await?;
    ensure!(status.image.is_some_and(|image| image.image == BUSYBOX));
    ensure!(status.image_ref.contains("sha256:"), "{}", status.image_ref);
    Ok(())
}

async fn container_resources_can_be_updated_while_it_runs(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    let request = v1::UpdateContainerResourcesRequest {
        container_id: running.id.clone(),
        linux: Some(v1::LinuxContainerResources { cpu_shares: 333, ..Default::default() }),
        ..Default::default()
    };
    cri.rt().update_container_resources(request).await?;
    let status = cri.status(&running.id).await?;
    let linux = status.resources.and_then(|resources| resources.linux);
    ensure!(linux.is_some_and(|linux| linux.cpu_shares == 333));
    Ok(())
}

async fn container_resources_of_unknown_are_not_found(cri: &Cri) -> Result<()> {
    let request = v1::UpdateContainerResourcesRequest {
        container_id: "no-such-container".to_owned(),
        ..Default::default()
    };
    ensure!(code(cri.rt().update_container_resources(request).await)? == Code::NotFound);
    Ok(())
}

async fn container_finds_its_files_writable(cri: &Cri) -> Result<()> {
    let (exit, output) = cri.script("echo x > /etc/new && cat /etc/new").await?;
    ensure!((exit, output.as_str()) == (0, "x\n"));
    Ok(())
}

async fn container_root_can_be_read_only(cri: &Cri) -> Result<()> {
    let mut config = cri.container("touch /etc/new 2>/dev/null; echo $?");
    crate::support::security(&mut config).readonly_rootfs = true;
    let (_, output) = cri.ran(cri.pod(), config).await?;
    ensure!(output == "1\n", "{output:?}");
    Ok(())
}

async fn container_verbose_has_info(cri: &Cri) -> Result<()> {
    let running = cri.running("sleep 100").await?;
    let request = v1::ContainerStatusRequest { container_id: running.id, verbose: true };
    let info = cri.rt().container_status(request).await?.into_inner().info;
    let info: serde_json::Value = serde_json::from_str(info.get("info").map_or("", |text| text))?;
    ensure!(info["sandboxID"] == running.sandbox.as_str(), "{info}");
    Ok(())
}
