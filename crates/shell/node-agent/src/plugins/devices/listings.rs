//! The owner of the plugins' lists, and of what ends by time or with its pod.
//!
//! Rule: one list for each resource, that of the plugin that was connected last. A list that ends is
//! not opened again: the plugin registers again. Between lists nothing runs.

use super::DeviceService;
use crate::keyed_tasks::{KeyedTasks, Panicked};
use crate::pods::pod_workers::ActivePods;
use std::sync::Arc;
use tokio::sync::watch;
use tracing::{info, warn};

/// What the owner is asked for.
pub(super) enum ListingCommand {
    Start { resource: String, endpoint: String, generation: u64 },
    Stop { resource: String, generation: u64 },
}

/// How a list ended: the generation of its plugin, and why.
type ListingEnd = (u64, String);

/// Runs for ever.
pub(super) async fn run(service: Arc<DeviceService>, mut active: watch::Receiver<ActivePods>) {
    super::checkpoint::recover(&service).await;
    let mut commands = service.received_commands.lock().await;
    let mut listings: KeyedTasks<String, ListingEnd> = KeyedTasks::default();
    // After a panic of this task no list is open any more.
    service.stop_all("the agent's own task for it was restarted");
    loop {
        service.retain_active(&active.borrow_and_update());
        let expiry = service.table().next_expiry().map(|at| service.began + at);
        tokio::select! {
            Some(command) = commands.recv() => service.take(command, &mut listings),
            (resource, end) = listings.next() => {
                if let Ok((generation, why)) = end {
                    service.stop(&resource, generation, why);
                } else if let Err(Panicked(why)) = end {
                    warn!(resource, panic = why, "The list of a device plugin panicked");
                    service.stop_current(&resource, &why);
                }
            }
            () = sleep_until(expiry) => service.expire(),
            changed = active.changed() => if changed.is_err() { return },
        }
    }
}

async fn sleep_until(at: Option<tokio::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

impl DeviceService {
    fn take(
        self: &Arc<Self>,
        command: ListingCommand,
        listings: &mut KeyedTasks<String, ListingEnd>,
    ) {
        match command {
            ListingCommand::Start { resource, endpoint, generation } => {
                if self.table().generation(&resource) != Some(generation) {
                    // A later plugin was connected before this command came.
                    return;
                }
                info!(resource, endpoint, "Device plugin connected");
                let task = follow(self.clone(), resource.clone(), endpoint, generation);
                listings.start(resource, "device-listing", task);
            }
            ListingCommand::Stop { resource, generation } => {
                if self.stop(&resource, generation, "it was deregistered".to_owned()) {
                    listings.abort(&resource);
                }
            }
        }
    }

    fn stop(&self, resource: &str, generation: u64, why: String) -> bool {
        let now = self.now();
        let stopped = self.table().stopped(resource, generation, now);
        if stopped {
            warn!(resource, err = why, "Device plugin is gone; its devices are not given any more");
            self.set_error(resource, Some(why));
            self.notify_change();
        }
        stopped
    }

    /// Whatever plugin the resource has.
    fn stop_current(&self, resource: &str, why: &str) {
        let generation = self.table().generation(resource);
        if let Some(generation) = generation {
            self.stop(resource, generation, why.to_owned());
        }
    }

    fn stop_all(&self, why: &str) {
        let plugins: Vec<String> = {
            let table = self.table();
            table
                .plugins()
                .filter(|(_, it)| it.is_some())
                .map(|(name, _)| name.to_owned())
                .collect()
        };
        for resource in plugins {
            self.stop_current(&resource, why);
        }
    }

    fn expire(&self) {
        let now = self.now();
        let expired = self.table().expire(now);
        if expired {
            self.notify_change();
        }
    }

    /// Takes the devices of pods back that are gone.
    fn retain_active(&self, active: &ActivePods) {
        if active.is_complete && self.table().retain(|uid| active.uids.contains(uid)) {
            self.notify_change();
        }
    }
}

/// Follows the list of one plugin until it ends.
async fn follow(
    service: Arc<DeviceService>,
    resource: String,
    endpoint: String,
    generation: u64,
) -> ListingEnd {
    let mut listing = match service.port.listing(&endpoint).await {
        Ok(listing) => listing,
        Err(error) => return (generation, error.to_string()),
    };
    loop {
        match listing.next().await {
            Ok(devices) => {
                let count = devices.len();
                if !service.table().listed(&resource, generation, devices) {
                    return (generation, "another plugin has taken its place".to_owned());
                }
                info!(v = 2, resource, count, "State pushed for device plugin");
                service.notify_change();
            }
            Err(error) => return (generation, error.to_string()),
        }
    }
}
