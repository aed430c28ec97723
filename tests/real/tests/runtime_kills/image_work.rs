//! Images that are pulled, imported and removed while servers are killed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use cri_wire::v1;

use crate::calls::{CallOutcome, RetryingClient};
use crate::kill_plan::{KillTargets, RandomSequence};
use crate::kills::SPARE;
use crate::server::RuntimeHome;

/// Images that are pulled, imported and removed.
pub(crate) struct ImageWork {
    pub(crate) caller: RetryingClient,
    pub(crate) home: RuntimeHome,
    pub(crate) pulled: String,
    pub(crate) archive: PathBuf,
}

impl ImageWork {
    pub(crate) async fn run(
        self,
        kill_targets: Arc<KillTargets>,
        mut dice: RandomSequence,
    ) -> Result<(usize, usize)> {
        let (mut pulls, mut imports) = (0, 0);
        while !kill_targets.is_over() {
            self.pull_and_remove().await.context("pulling")?;
            pulls += 1;
            let kill_after = (dice.below(2) == 0).then(|| Duration::from_millis(dice.below(400)));
            self.import_and_remove(kill_after).await.context("importing")?;
            imports += 1;
        }
        Ok((pulls, imports))
    }

    pub(crate) async fn pull_and_remove(&self) -> Result<()> {
        loop {
            let request =
                v1::PullImageRequest { image: Some(spec(&self.pulled)), ..Default::default() };
            let mut images = self.caller.images();
            let pull = Box::pin(images.pull_image(request));
            match self.caller.change("PullImage", pull).await? {
                CallOutcome::Answer(_) => break,
                CallOutcome::Refused(status) => bail!("PullImage was refused: {status}"),
                CallOutcome::Interrupted => {}
            }
        }
        self.remove(&self.pulled).await
    }

    async fn remove(&self, name: &str) -> Result<()> {
        loop {
            let request = v1::RemoveImageRequest { image: Some(spec(name)) };
            let mut images = self.caller.images();
            match self.caller.change("RemoveImage", images.remove_image(request)).await? {
                CallOutcome::Answer(_) => return Ok(()),
                CallOutcome::Refused(status) => bail!("RemoveImage was refused: {status}"),
                CallOutcome::Interrupted => {}
            }
        }
    }

    /// With a time limit the importing process is killed after it; without, it must succeed.
    pub(crate) async fn import_and_remove(&self, kill_after: Option<Duration>) -> Result<()> {
        loop {
            self.caller.wait_until_up().await;
            let life = self.caller.life();
            let mut command = tokio::process::Command::from(self.home.import(&self.archive));
            let mut child = command.stdout(std::process::Stdio::null()).spawn()?;
            let status = match kill_after {
                Some(kill_after) => match tokio::time::timeout(kill_after, child.wait()).await {
                    Ok(status) => status?,
                    Err(_) => {
                        child.kill().await?;
                        break;
                    }
                },
                None => child.wait().await?,
            };
            if status.success() {
                break;
            }
            // It asks the server where the images are; that one may just have been killed.
            ensure!(self.caller.wait_for_new_server(life).await, "an import ended with {status}");
        }
        self.remove(SPARE).await
    }
}

fn spec(name: &str) -> v1::ImageSpec {
    v1::ImageSpec { image: name.to_owned(), ..Default::default() }
}
