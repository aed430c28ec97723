//! The pods that the tests of logs, streams and commands use.

use super::*;
use ports::local_api::{LocalContainer, LocalPod};
use tokio::sync::watch;

/// One pod `ns/web` with a running container `main` (with a terminal), which has an earlier life,
/// and others that are not running.
pub(super) struct OnePod {
    pub(super) log_dir: String,
    /// The version, and whether the container runs.
    pub(super) state: watch::Sender<(u64, bool)>,
}

impl OnePod {
    pub(super) fn new(log_dir: &Path) -> Arc<Self> {
        let log_dir = log_dir.display().to_string();
        Arc::new(Self { log_dir, state: watch::Sender::new((1, true)) })
    }

    pub(super) fn end_container(&self) {
        self.state.send_modify(|(version, runs)| (*version, *runs) = (*version + 1, false));
    }

    fn life(&self, id: &str, attempt: u32, state: &str) -> LocalContainer {
        LocalContainer {
            name: "main".into(),
            id: id.into(),
            attempt,
            state: state.into(),
            log_path: format!("{}/{attempt}.log", self.log_dir),
            ..LocalContainer::default()
        }
    }

    fn web(&self) -> LocalPod {
        let status = json!({"containerStatuses": [
            {"name": "main", "containerID": "containerd://now", "state": {"running": {}},
             "lastState": {"terminated": {"containerID": "containerd://before"}}},
            {"name": "pulling", "state": {"waiting": {"reason": "ErrImagePull"}}},
            {"name": "lost", "state": {"terminated": {"containerID": "containerd://lost"}}},
        ]});
        let spec = json!({"containers": [
            {"name": "main", "tty": true}, {"name": "pulling"}, {"name": "lost"},
        ]});
        let state = if self.state.borrow().1 { "running" } else { "exited" };
        LocalPod {
            uid: "uid-1".into(),
            namespace: "ns".into(),
            name: "web".into(),
            source: "api".into(),
            containers: vec![self.life("now", 1, state), self.life("before", 0, "exited")],
            object: json!({"spec": spec, "status": status}),
            ..LocalPod::default()
        }
    }
}

impl LocalApi for OnePod {
    fn node(&self) -> LocalNode {
        LocalNode::default()
    }
    fn pods(&self) -> LocalPods {
        LocalPods { node: self.node(), pods: vec![self.web()] }
    }
    fn pod(&self, uid: &str) -> Option<LocalPodDetail> {
        let detail = || LocalPodDetail { pod: self.web(), ..LocalPodDetail::default() };
        (uid == "uid-1").then(detail)
    }
    fn stop<'a>(&'a self, _: &'a str) -> PortFuture<'a, Result<LocalStopAccepted, LocalApiError>> {
        unreachable!("the port stops nothing")
    }
    fn changed(&self, since: u64) -> PortFuture<'_, u64> {
        let mut state = self.state.subscribe();
        Box::pin(async move {
            let newer = state.wait_for(|(version, _)| *version > since).await;
            newer.expect("the sender lives").0
        })
    }
}
