//! The checkpoint of devices: read once at the start, written after each change.
//!
//! Rule: an allocation is on disk before its container can start. Writes that wait become one. A
//! checkpoint of no use is reported and replaced: then running pods keep their devices in the
//! runtime, but the agent does not know of them.

use super::DeviceService;
use ports::plugins::DevicePlugins;
use resource_allocation::checkpoint::{Checkpoint, decode};
use resource_allocation::{AllocatedResource, DeviceTable};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tracing::{error, info};

const RETRY_DELAY: Duration = Duration::from_secs(5);
/// How long an allocation waits for its checkpoint.
const WRITE_LIMIT: Duration = Duration::from_secs(60);

/// Versions of the table: the newest, and the one that was last written, with the error if any.
#[derive(Default)]
pub(super) struct CheckpointQueue {
    newest: watch::Sender<u64>,
    attempted: watch::Sender<(u64, Option<String>)>,
}

impl CheckpointQueue {
    pub(super) fn mark(&self) {
        self.newest.send_modify(|version| *version += 1);
    }

    /// Waits until the table as it is now is on disk.
    pub(super) async fn wait_until_written(&self) -> Result<(), String> {
        let version = *self.newest.borrow();
        let mut attempted = self.attempted.subscribe();
        let written = attempted.wait_for(|(attempted, _)| *attempted >= version);
        let result = match tokio::time::timeout(WRITE_LIMIT, written).await {
            Ok(Ok(attempt)) => attempt.1.clone().map_or(Ok(()), Err),
            Ok(Err(_)) => Err("the agent is ending".to_owned()),
            Err(_) => Err(format!("it was not written within {WRITE_LIMIT:?}")),
        };
        result.map_err(|why| {
            format!("failed to write checkpoint file \"kubelet_internal_checkpoint\": {why}")
        })
    }
}

/// Writes whenever something changed, for ever.
pub(super) async fn run(service: Arc<DeviceService>) {
    service.wait_until_recovered().await;
    let mut newest = service.checkpoint.newest.subscribe();
    loop {
        let version = *newest.borrow_and_update();
        let (attempted, failed) = {
            let last = service.checkpoint.attempted.borrow();
            (last.0, last.1.is_some())
        };
        if attempted < version || failed {
            let bytes = service.table().checkpoint();
            let written = match bytes {
                Ok(bytes) => service.dir.write_checkpoint(bytes).await,
                Err(error) => Err(error.to_string()),
            };
            let failure = written.err();
            if let Some(why) = &failure {
                error!(err = why, "Failed to write the checkpoint of devices");
            }
            let is_failed = failure.is_some();
            service.checkpoint.attempted.send_replace((version, failure));
            if is_failed {
                let _ = tokio::time::timeout(RETRY_DELAY, newest.changed()).await;
                tokio::time::sleep(RETRY_DELAY / 10).await;
            }
            continue;
        }
        if newest.changed().await.is_err() {
            return;
        }
    }
}

/// Reads what an earlier agent has written, unless that was done.
pub(super) async fn recover(service: &DeviceService) {
    if *service.recovered.borrow() {
        return;
    }
    let checkpoint = match service.dir.read_checkpoint().await {
        Ok(None) => Ok(Checkpoint::default()),
        Ok(Some(bytes)) => decode(&bytes).map_err(|error| error.to_string()),
        Err(why) => Err(why),
    };
    match checkpoint {
        Ok(checkpoint) => {
            info!(v = 2, entries = checkpoint.entries.len(), "Read the checkpoint of devices");
            let allocated = allocated(&checkpoint, &*service.port);
            let resources = checkpoint.resources.clone();
            *service.table() = DeviceTable::recover(allocated, resources, service.now());
        }
        Err(why) => error!(
            err = why,
            dir = service.dir.dir(),
            next_step = "pods that have devices keep them, but the agent may give the same devices to \
                         new pods: remove these pods or restart them",
            "Continue after failing to read checkpoint file. Device allocation info may NOT be \
             up-to-date"
        ),
    }
    service.notify_change();
    service.recovered.send_replace(true);
}

/// The entries with the plugins' answers decoded; those that cannot be are left out.
fn allocated<'a>(
    checkpoint: &'a Checkpoint,
    port: &dyn DevicePlugins,
) -> Vec<(&'a str, &'a str, &'a str, AllocatedResource)> {
    let entries = checkpoint.entries.iter().filter_map(|entry| {
        let setup = match port.decode(&entry.encoded) {
            Ok(setup) => setup,
            Err(why) => {
                error!(
                    pod_uid = entry.uid,
                    container = entry.container,
                    resource = entry.resource,
                    err = why,
                    "Can't unmarshal allocResp"
                );
                return None;
            }
        };
        let devices = AllocatedResource {
            by_numa_node: entry.by_numa_node.clone(),
            encoded: entry.encoded.clone(),
            setup,
        };
        Some((&*entry.uid, &*entry.container, &*entry.resource, devices))
    });
    entries.collect()
}
