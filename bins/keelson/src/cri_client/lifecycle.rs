//! The subcommands that change something: sandboxes, containers, images, commands in containers.
//!
//! Rule: prints the id of what was made or changed, one per line, so that scripts can go on with
//! it. Several ids are handled in order; the first failure ends the command. Does not undo.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use cri_client::CriClient;
use cri_wire::v1;
use ports::container_runtime::ContainerRuntimeError;

use super::next_step::explain;
use super::{files, output};

#[derive(Debug, Subcommand)]
pub(super) enum LifecycleCommand {
    /// Run a command in a container and pass on its output and exit code
    Exec {
        /// End the command after so many seconds; 0 for never
        #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
        time_limit: i64,
        container: String,
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Pull an image
    Pull { image: String },
    /// Remove images
    Rmi {
        #[arg(required = true)]
        images: Vec<String>,
    },
    /// Run a pod sandbox
    Runp {
        /// A PodSandboxConfig as JSON
        file: PathBuf,
        /// The runtime handler to use
        #[arg(long, value_name = "NAME", default_value = "")]
        runtime_handler: String,
    },
    /// Create a container in a pod sandbox
    Create {
        sandbox: String,
        /// A ContainerConfig as JSON
        container_file: PathBuf,
        /// The PodSandboxConfig that the sandbox was run with
        sandbox_file: PathBuf,
    },
    /// Start containers
    Start {
        #[arg(required = true)]
        containers: Vec<String>,
    },
    /// Stop containers
    Stop {
        /// How many seconds a container has to end by itself
        #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
        grace: i64,
        #[arg(required = true)]
        containers: Vec<String>,
    },
    /// Change the resources of a container
    Update {
        container: String,
        /// A LinuxContainerResources as JSON
        file: PathBuf,
    },
    /// Tell the runtime of a pod sandbox's changed resources
    Updatep {
        sandbox: String,
        /// A LinuxContainerResources as JSON
        file: PathBuf,
    },
    /// Remove containers
    Rm {
        #[arg(required = true)]
        containers: Vec<String>,
    },
    /// Stop pod sandboxes
    Stopp {
        #[arg(required = true)]
        sandboxes: Vec<String>,
    },
    /// Remove pod sandboxes
    Rmp {
        #[arg(required = true)]
        sandboxes: Vec<String>,
    },
}

impl LifecycleCommand {
    pub(super) async fn run(self, client: &CriClient) -> Result<ExitCode> {
        match self {
            Self::Exec { time_limit, container, command } => {
                return exec(client, container, command, time_limit).await;
            }
            Self::Pull { image } => pull(client, image).await?,
            Self::Runp { file, runtime_handler } => {
                let config = Some(files::read(&file)?);
                let request = v1::RunPodSandboxRequest { config, runtime_handler };
                let answer = client.run_pod_sandbox(request).await.map_err(explain)?;
                report(&answer.pod_sandbox_id)?;
            }
            Self::Create { sandbox: pod_sandbox_id, container_file, sandbox_file } => {
                let config = Some(files::read(&container_file)?);
                let sandbox_config = Some(files::read(&sandbox_file)?);
                let request = v1::CreateContainerRequest { pod_sandbox_id, config, sandbox_config };
                let answer = client.create_container(request).await.map_err(explain)?;
                report(&answer.container_id)?;
            }
            Self::Start { containers } => {
                let start = async |container_id| {
                    client
                        .start_container(v1::StartContainerRequest { container_id })
                        .await
                        .map(drop)
                };
                each(containers, start).await?;
            }
            Self::Stop { grace: timeout, containers } => {
                let stop = async |container_id| {
                    let request = v1::StopContainerRequest { container_id, timeout };
                    client.stop_container(request).await.map(drop)
                };
                each(containers, stop).await?;
            }
            Self::Update { container, file } => update(client, container, &file).await?,
            Self::Updatep { sandbox, file } => update_sandbox(client, sandbox, &file).await?,
            Self::Rm { containers } => {
                let remove = async |container_id| {
                    let request = v1::RemoveContainerRequest { container_id };
                    client.remove_container(request).await.map(drop)
                };
                each(containers, remove).await?;
            }
            Self::Stopp { sandboxes } => {
                let stop = async |pod_sandbox_id| {
                    let request = v1::StopPodSandboxRequest { pod_sandbox_id };
                    client.stop_pod_sandbox(request).await.map(drop)
                };
                each(sandboxes, stop).await?;
            }
            Self::Rmp { sandboxes } => {
                let remove = async |pod_sandbox_id| {
                    let request = v1::RemovePodSandboxRequest { pod_sandbox_id };
                    client.remove_pod_sandbox(request).await.map(drop)
                };
                each(sandboxes, remove).await?;
            }
            Self::Rmi { images } => {
                let remove = async |image| {
                    let image = Some(v1::ImageSpec { image, ..Default::default() });
                    client.remove_image(v1::RemoveImageRequest { image }).await.map(drop)
                };
                each(images, remove).await?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn update(client: &CriClient, id: String, file: &Path) -> Result<()> {
    let request = v1::UpdateContainerResourcesRequest {
        container_id: id.clone(),
        linux: Some(files::read(file)?),
        ..Default::default()
    };
    client.update_container_resources(request).await.map_err(explain)?;
    report(&id)
}

async fn update_sandbox(client: &CriClient, id: String, file: &Path) -> Result<()> {
    let request = v1::UpdatePodSandboxResourcesRequest {
        pod_sandbox_id: id.clone(),
        resources: Some(files::read(file)?),
        overhead: None,
    };
    client.update_pod_sandbox_resources(request).await.map_err(explain)?;
    report(&id)
}

/// Does the same to each id, in order, and reports it.
async fn each(
    ids: Vec<String>,
    act: impl AsyncFn(String) -> Result<(), ContainerRuntimeError>,
) -> Result<()> {
    for id in ids {
        act(id.clone()).await.map_err(explain)?;
        report(&id)?;
    }
    Ok(())
}

fn report(id: &str) -> Result<()> {
    output::print(&format!("{id}\n"))
}

async fn pull(client: &CriClient, image: String) -> Result<()> {
    let image = Some(v1::ImageSpec { image, ..Default::default() });
    let request = v1::PullImageRequest { image, auth: None, sandbox_config: None };
    let answer = client.pull_image(request).await.map_err(explain)?;
    report(&answer.image_ref)
}

async fn exec(
    client: &CriClient,
    container_id: String,
    cmd: Vec<String>,
    timeout: i64,
) -> Result<ExitCode> {
    let request = v1::ExecSyncRequest { container_id, cmd, timeout };
    let answer = client.exec_sync(request).await.map_err(explain)?;
    output::pass_on(&answer.stdout, &answer.stderr)?;
    Ok(exit_code(answer.exit_code))
}

/// A process can only exit with a byte; a code that does not fit is still a failure.
pub(super) fn exit_code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}
