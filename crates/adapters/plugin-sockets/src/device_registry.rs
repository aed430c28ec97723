//! The directory of device plugins: the agent's registration socket, and the checkpoint.
//!
//! Rule: sockets of earlier times are removed once, before the first serving: plugins see the new
//! socket and register again. The checkpoint is on disk before a write returns.
//!
//! upstream: pkg/kubelet/cm/devicemanager/manager.go (CleanupPluginDirectory)

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use host_paths::{BlockingPool, OpenDir, SymlinkPolicy, WriteDurability, write_whole};
use plugin_wire::device_plugin as wire;
use plugin_wire::device_plugin::registration_server::{Registration, RegistrationServer};
use ports::PortFuture;
use ports::plugins::{DevicePluginDir, DeviceRegistrar, DeviceRegistrationRequest};
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tracing::{info, warn};

use crate::inotify::NameChanges;
use crate::serve::{REQUEST_SIZE_LIMIT, file_identity, listen, make_dir, serve};

#[cfg(test)]
mod tests;

const SOCKET: &str = "kubelet.sock";
const CHECKPOINT: &str = "kubelet_internal_checkpoint";
/// A checkpoint of a node with ten thousand devices has about 2 MiB.
const MAX_CHECKPOINT_BYTES: usize = 64 << 20;
const FILE_LIMIT: Duration = Duration::from_secs(30);
const FILE_MODE: u32 = 0o600;

/// The directory of device plugins.
pub struct DeviceRegistryDir {
    path: PathBuf,
    pool: BlockingPool,
    cleaned: AtomicBool,
}

impl DeviceRegistryDir {
    pub fn new(path: &Path) -> Self {
        let pool = BlockingPool::new("device-files", 2, FILE_LIMIT);
        Self { path: path.to_owned(), pool, cleaned: AtomicBool::new(false) }
    }

    async fn serve_socket(&self, registrar: Arc<dyn DeviceRegistrar>) -> Result<String, String> {
        make_dir(&self.path)?;
        if !self.cleaned.swap(true, Ordering::Relaxed) {
            remove_sockets(&self.path)?;
        }
        let socket = self.path.join(SOCKET);
        let listener = listen(&socket)?;
        let created = file_identity(&socket);
        let service = RegistrationServer::new(RegistrationService { registrar })
            .max_decoding_message_size(REQUEST_SIZE_LIMIT);
        let served = serve(listener, Routes::new(service));
        tokio::select! {
            error = served => Ok(error),
            () = until_changed(&self.path, || file_identity(&socket) != created) => {
                Ok(format!("{} was removed or replaced", socket.display()))
            }
        }
    }
}

impl DevicePluginDir for DeviceRegistryDir {
    fn dir(&self) -> String {
        self.path.display().to_string()
    }

    fn serve(&self, registrar: Arc<dyn DeviceRegistrar>) -> PortFuture<'_, String> {
        Box::pin(async move { self.serve_socket(registrar).await.unwrap_or_else(|error| error) })
    }

    fn read_checkpoint(&self) -> PortFuture<'_, Result<Option<Vec<u8>>, String>> {
        let path = self.path.clone();
        let read = move || {
            let dir = match OpenDir::open(&path) {
                Err(error) if error.is_missing() => return Ok(None),
                dir => dir?,
            };
            match dir.read(CHECKPOINT, SymlinkPolicy::Refused, MAX_CHECKPOINT_BYTES) {
                Err(error) if error.is_missing() => Ok(None),
                read => read.map(Some),
            }
        };
        Box::pin(async move {
            let read = self.pool.run(read).await.map_err(|error| error.to_string())?;
            read.map_err(|error: host_paths::PathError| error.to_string())
        })
    }

    fn write_checkpoint(&self, bytes: Vec<u8>) -> PortFuture<'_, Result<(), String>> {
        let path = self.path.clone();
        let write = move || {
            let dir = OpenDir::make(&path, 0o750)?;
            write_whole(&dir, CHECKPOINT, &bytes, FILE_MODE, WriteDurability::Synced)
        };
        Box::pin(async move {
            let written = self.pool.run(write).await.map_err(|error| error.to_string())?;
            written.map_err(|error| error.to_string())
        })
    }
}

/// Waits until `changed` holds; looks whenever a name in the directory changed.
async fn until_changed(dir: &Path, changed: impl Fn() -> bool) {
    let watched = NameChanges::new().and_then(|changes| {
        changes.setter().watch(dir)?;
        Ok(changes)
    });
    let mut changes = match watched {
        Ok(changes) => changes,
        Err(error) => {
            warn!(err = %error, path = %dir.display(), "Device plugins' directory is not watched");
            return std::future::pending().await;
        }
    };
    while !changed() {
        if changes.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Removes all sockets in the directory, and nothing else.
fn remove_sockets(dir: &Path) -> Result<(), String> {
    let describe = |error: std::io::Error| format!("cannot list {}: {error}", dir.display());
    for entry in std::fs::read_dir(dir).map_err(describe)? {
        let entry = entry.map_err(describe)?;
        let is_socket = entry.file_type().is_ok_and(|it| it.is_socket());
        if !is_socket {
            continue;
        }
        match std::fs::remove_file(entry.path()) {
            Ok(()) => info!(v = 2, path = %entry.path().display(), "Removed an earlier socket"),
            Err(error) => {
                warn!(err = %error, path = %entry.path().display(), "Cannot remove a socket");
            }
        }
    }
    Ok(())
}

struct RegistrationService {
    registrar: Arc<dyn DeviceRegistrar>,
}

#[tonic::async_trait]
impl Registration for RegistrationService {
    async fn register(
        &self,
        request: Request<wire::RegisterRequest>,
    ) -> Result<Response<wire::Empty>, Status> {
        let request = request.into_inner();
        let registered = self.registrar.register(DeviceRegistrationRequest {
            version: request.version,
            endpoint: request.endpoint,
            resource: request.resource_name,
        });
        registered.await.map_err(Status::unknown)?;
        Ok(Response::new(wire::Empty {}))
    }
}
