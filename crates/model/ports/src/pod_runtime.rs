//! The port through which pods run: sandboxes, containers, images of a CRI runtime.
//!
//! Rule: one method does one thing, ends within a deadline, and makes no choices; idempotence is
//! CRI's (stopping what is stopped and removing what is gone succeed). A call that timed out may
//! still have an effect: observe again before acting on it.

use std::time::Duration;

use crate::PortFuture;
use crate::container_runtime::ContainerRuntimeError;
use crate::runtime_objects::{
    CgroupDriver, ContainerConfig, ContainerUsage, ExecOutput, FilesystemUsage, HandlerFeatures,
    ImageRecord, ImageSpec, LinuxResources, ListedPods, PullRequest, RuntimePods, RuntimeSignal,
    SandboxConfig,
};

pub type RuntimeFuture<'a, T> = PortFuture<'a, Result<T, ContainerRuntimeError>>;

/// An endless stream of changes in the runtime; it reconnects by itself with back-off.
pub trait RuntimeSignals: Send {
    /// Waits for the next signal. May be dropped and called again without losing one.
    fn next(&mut self) -> PortFuture<'_, RuntimeSignal>;
}

/// The runtime that runs pods.
pub trait PodRuntime: Send + Sync {
    /// All sandboxes and containers, with statuses (addresses, exit codes) of each. What disappears
    /// between the listing and its status is left out; a pod of which a status cannot be read is
    /// named in `unread` and does not spoil the others.
    fn observe_all(&self) -> RuntimeFuture<'_, RuntimePods>;
    /// The same for the pod of one UID; empty where there is nothing. What cannot be read is an
    /// error here.
    fn observe_pod<'a>(&'a self, uid: &'a str) -> RuntimeFuture<'a, RuntimePods>;
    /// What the list calls alone return for each pod. No status is requested, so it costs two calls
    /// however many pods there are.
    fn list_pods(&self) -> RuntimeFuture<'_, ListedPods>;
    fn signals(&self) -> Box<dyn RuntimeSignals>;

    fn run_sandbox<'a>(&'a self, config: &'a SandboxConfig) -> RuntimeFuture<'a, String>;
    fn stop_sandbox<'a>(&'a self, id: &'a str) -> RuntimeFuture<'a, ()>;
    fn remove_sandbox<'a>(&'a self, id: &'a str) -> RuntimeFuture<'a, ()>;

    fn create_container<'a>(
        &'a self,
        sandbox_id: &'a str,
        config: &'a ContainerConfig,
        sandbox: &'a SandboxConfig,
    ) -> RuntimeFuture<'a, String>;
    fn start_container<'a>(&'a self, id: &'a str) -> RuntimeFuture<'a, ()>;
    /// Returns when the container has stopped; the timeout is the grace period plus the adapter's
    /// own.
    fn stop_container<'a>(&'a self, id: &'a str, grace: Duration) -> RuntimeFuture<'a, ()>;
    fn remove_container<'a>(&'a self, id: &'a str) -> RuntimeFuture<'a, ()>;
    fn update_container<'a>(
        &'a self,
        id: &'a str,
        resources: &'a LinuxResources,
    ) -> RuntimeFuture<'a, ()>;
    fn reopen_log<'a>(&'a self, id: &'a str) -> RuntimeFuture<'a, ()>;
    /// Runs a command; a zero timeout leaves it to the runtime (and the adapter's cap).
    fn exec_sync<'a>(
        &'a self,
        id: &'a str,
        command: &'a [String],
        limit: Duration,
    ) -> RuntimeFuture<'a, ExecOutput>;
    fn container_usage(&self) -> RuntimeFuture<'_, Vec<ContainerUsage>>;

    /// None where the runtime does not have it.
    fn image<'a>(&'a self, image: &'a ImageSpec) -> RuntimeFuture<'a, Option<ImageRecord>>;
    fn images(&self) -> RuntimeFuture<'_, Vec<ImageRecord>>;
    /// Returns the image ref of the pulled image.
    fn pull_image<'a>(&'a self, request: &'a PullRequest) -> RuntimeFuture<'a, String>;
    fn remove_image<'a>(&'a self, image: &'a ImageSpec) -> RuntimeFuture<'a, ()>;
    /// Filesystems of images, then those of containers.
    fn image_filesystems(&self) -> RuntimeFuture<'_, (Vec<FilesystemUsage>, Vec<FilesystemUsage>)>;

    /// `Unimplemented` where the runtime does not report it.
    fn cgroup_driver(&self) -> RuntimeFuture<'_, CgroupDriver>;
    fn handlers(&self) -> RuntimeFuture<'_, Vec<HandlerFeatures>>;
    fn set_pod_cidr<'a>(&'a self, cidr: &'a str) -> RuntimeFuture<'a, ()>;
}
