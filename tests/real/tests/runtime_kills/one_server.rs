//! One server with one or two pods, for tests of a single fault.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use cri_wire::v1;
use node_testkit::bed::Bed;
use node_testkit::start::RunningPart;

use crate::calls::RetryingClient;
use crate::kill_plan::{KillTargets, RandomSequence};
use crate::kills::READY;
use crate::pods::TestPod;
use crate::server::RuntimeHome;
use crate::slot::{CheckCounts, PodSlot};

pub(crate) struct SingleServer<'a> {
    bed: &'a Bed,
    pub(crate) home: &'a RuntimeHome,
    pub(crate) caller: RetryingClient,
    running: RunningPart,
}

impl<'a> SingleServer<'a> {
    pub(crate) async fn start(bed: &'a Bed, home: &'a RuntimeHome) -> Result<Self> {
        let running = home.start(bed, None)?;
        let server = Self { bed, home, caller: RetryingClient::new(&home.socket()), running };
        server.until_it_answers().await?;
        Ok(server)
    }

    async fn until_it_answers(&self) -> Result<()> {
        until("an answer", || async { Ok(self.caller.is_answering().await) }).await?;
        self.caller.mark_up();
        Ok(())
    }

    /// Kills the server and starts another.
    pub(crate) async fn kill_and_restart(&mut self) -> Result<()> {
        self.caller.mark_down();
        self.running.kill()?;
        self.running = self.home.start(self.bed, None)?;
        self.until_it_answers().await
    }

    pub(crate) fn end(mut self) -> Result<()> {
        self.caller.mark_down();
        self.running.kill()
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.running.process_id()
    }

    pub(crate) fn slot(&self, slot: usize, round: u32) -> PodSlot {
        PodSlot {
            caller: self.caller.clone(),
            kill_targets: Arc::new(KillTargets::default()),
            pod: TestPod { slot, round },
            dice: RandomSequence(17),
            tally: CheckCounts::default(),
            wanted: BTreeMap::new(),
        }
    }

    /// Waits until a container has exited with this code; any other reported exit is an error.
    pub(crate) async fn until_exited(&self, slot: &PodSlot, id: &str, code: i32) -> Result<()> {
        until("its end", || async {
            let status = slot.status(id).await??;
            Ok(status.state() == v1::ContainerState::ContainerExited)
        })
        .await?;
        let status = slot.status(id).await??;
        ensure!(status.exit_code == code, "told with {status:?}; expected {code}");
        Ok(())
    }

    pub(crate) async fn exec(&self, id: &str, script: &str, timeout: i64) -> Result<(i32, String)> {
        let request = v1::ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: ["sh", "-c", script].map(str::to_owned).into(),
            timeout,
        };
        let answer = self.caller.runtime().exec_sync(request).await?.into_inner();
        Ok((answer.exit_code, String::from_utf8(answer.stdout)?))
    }
}

pub(crate) async fn until<F: Future<Output = Result<bool>>>(
    what: &str,
    mut ask: impl FnMut() -> F,
) -> Result<()> {
    let begun = Instant::now();
    while !ask().await? {
        ensure!(begun.elapsed() < READY, "{what} did not come within {READY:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
