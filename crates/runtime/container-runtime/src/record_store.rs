//! The store of all sandboxes and containers, in memory and on disk.
//!
//! Rule: memory never has a change that is not on disk: a change is written first, then published.
//! Events that have already happened are the exception: they are true whether or not they can be
//! written, so on a full disk they are published, and written as soon as there is room. Names are
//! reserved before anything is created, so that two requests for the same pod do not create two.
//! Reads never wait for a disk.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pod_supervisor::protocol::ContainerState;
use tokio::sync::watch;

use crate::durable::{PersistentRecord, RecordDir};
use crate::failure::{CriError, Result, blocking};
use crate::identity;
use crate::records::{ContainerStage, StoredContainer, StoredSandbox};
use crate::supervision::{ExecWaiters, SupervisorConnection};

#[cfg(test)]
mod tests;

/// First pause before a failed write is retried.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// One pod sandbox.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) id: String,
    record: Mutex<StoredSandbox>,
    /// Serializes changes of the sandbox: create, stop, remove.
    pub(crate) exclusive_lock: tokio::sync::Mutex<()>,
    supervisor: Mutex<Option<Arc<SupervisorConnection>>>,
    /// Its supervisor has ended; nothing can be started in it.
    abandoned: AtomicBool,
    pub(crate) execs: ExecWaiters,
    /// The record on disk is older than the one in memory.
    unwritten: watch::Sender<bool>,
}

/// The operation in progress on a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContainerActivity {
    None,
    Starting,
    Removing,
}

/// One container.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) id: String,
    pub(crate) sandbox_id: String,
    record: Mutex<StoredContainer>,
    activity: Mutex<ContainerActivity>,
    /// True once its exit is in memory, and on disk unless that is full.
    ended: watch::Sender<bool>,
    /// The record on disk is older than the one in memory.
    unwritten: watch::Sender<bool>,
    /// The stop signal is sent once, however many stops are requested.
    pub(crate) stop_signalled: AtomicBool,
    /// The pidfd of the first process, by which its exit status can be read.
    held: Mutex<Option<OwnedFd>>,
    /// Serializes changes of the record.
    writing: tokio::sync::Mutex<()>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sandbox {
    pub(crate) fn new(record: StoredSandbox) -> Self {
        Self {
            id: record.id.clone(),
            record: Mutex::new(record),
            exclusive_lock: tokio::sync::Mutex::default(),
            supervisor: Mutex::default(),
            abandoned: AtomicBool::new(false),
            execs: ExecWaiters::default(),
            unwritten: watch::Sender::new(false),
        }
    }

    pub(crate) fn record(&self) -> StoredSandbox {
        locked(&self.record).clone()
    }

    /// The supervisor, if connected.
    pub(crate) fn supervisor(&self) -> Option<Arc<SupervisorConnection>> {
        locked(&self.supervisor).clone().filter(|supervisor| !supervisor.client.is_disconnected())
    }

    pub(crate) fn set_supervisor(&self, supervisor: Option<Arc<SupervisorConnection>>) {
        *locked(&self.supervisor) = supervisor;
    }

    /// From now on nothing can be started in it.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Its supervisor, or the reason why it cannot be called.
    pub(crate) fn require_supervisor(&self) -> Result<Arc<SupervisorConnection>> {
        self.supervisor().ok_or_else(|| {
            CriError::plain(format!("sandbox {:?} has no running supervisor", self.id))
        })
    }
}

impl Container {
    pub(crate) fn new(record: StoredContainer) -> Self {
        let over = matches!(
            record.stage(),
            ContainerStage::Exited | ContainerStage::Unknown | ContainerStage::Removing
        );
        Self {
            id: record.id.clone(),
            sandbox_id: record.sandbox_id.clone(),
            record: Mutex::new(record),
            activity: Mutex::new(ContainerActivity::None),
            ended: watch::Sender::new(over),
            unwritten: watch::Sender::new(false),
            stop_signalled: AtomicBool::new(false),
            held: Mutex::default(),
            writing: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn record(&self) -> StoredContainer {
        locked(&self.record).clone()
    }

    /// Opens a pidfd of a running container's first process.
    pub(crate) fn open_pidfd(&self, state: &ContainerState) {
        *locked(&self.held) = pod_supervisor::orphans::open_pidfd(state);
    }

    pub(crate) fn take_pidfd(&self) -> Option<OwnedFd> {
        locked(&self.held).take()
    }

    pub(crate) fn ended(&self) -> watch::Receiver<bool> {
        self.ended.subscribe()
    }

    /// The record on disk is older than the one in memory.
    pub(crate) fn is_unwritten(&self) -> bool {
        *self.unwritten.borrow()
    }

    /// Waits until the record is on disk or the container is removed.
    pub(crate) async fn written(&self) {
        let _ = self.unwritten.subscribe().wait_for(|unwritten| !unwritten).await;
    }

    fn apply_record(&self, record: &StoredContainer) {
        locked(&self.record).clone_from(record);
        if matches!(record.stage(), ContainerStage::Exited | ContainerStage::Unknown) {
            self.take_pidfd();
            self.ended.send_replace(true);
        }
    }
}

/// The activity ends when this is dropped.
#[derive(Debug)]
pub(crate) struct ActivityGuard(Arc<Container>);

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        *locked(&self.0.activity) = ContainerActivity::None;
    }
}

/// Starts an activity, unless `check` returns an error. Only one activity at a time.
pub(crate) fn begin_activity(
    container: &Arc<Container>,
    activity: ContainerActivity,
    check: impl FnOnce(ContainerActivity, ContainerStage) -> Result<()>,
) -> Result<ActivityGuard> {
    let mut now = locked(&container.activity);
    check(*now, locked(&container.record).stage())?;
    *now = activity;
    Ok(ActivityGuard(Arc::clone(container)))
}

#[derive(Debug, Default)]
struct StoreEntries {
    sandboxes: BTreeMap<String, Arc<Sandbox>>,
    containers: BTreeMap<String, Arc<Container>>,
    /// The id that holds each name; names begin with the kind.
    names: BTreeMap<String, String>,
}

#[derive(Debug, Clone)]
pub(crate) struct RecordStore {
    sandboxes: RecordDir,
    containers: RecordDir,
    entries: Arc<Mutex<StoreEntries>>,
}

impl RecordStore {
    /// Reads the records. Those that cannot be read are logged and set aside.
    pub(crate) fn open(root: &Path) -> Result<Self> {
        let record_store = Self {
            sandboxes: RecordDir::open(&root.join("sandboxes"))?,
            containers: RecordDir::open(&root.join("containers"))?,
            entries: Arc::default(),
        };
        let sandboxes = record_store.sandboxes.all::<StoredSandbox>()?;
        let containers = record_store.containers.all::<StoredContainer>()?;
        for sentence in sandboxes.unreadable.iter().chain(&containers.unreadable) {
            tracing::error!("{sentence}");
        }
        let mut entries = locked(&record_store.entries);
        for (id, record) in sandboxes.records {
            entries.names.insert(sandbox_name(&record), id.clone());
            entries.sandboxes.insert(id, Arc::new(Sandbox::new(record)));
        }
        for (id, record) in containers.records {
            let sandbox = entries.sandboxes.get(&record.sandbox_id).map(|sandbox| sandbox.record());
            entries.names.insert(container_name(&record, sandbox.as_ref()), id.clone());
            entries.containers.insert(id, Arc::new(Container::new(record)));
        }
        drop(entries);
        Ok(record_store)
    }

    pub(crate) fn sandbox(&self, id: &str) -> Result<Arc<Sandbox>> {
        identity::find("sandbox", &locked(&self.entries).sandboxes, id)
            .map(|(_, it)| Arc::clone(it))
    }

    pub(crate) fn container(&self, id: &str) -> Result<Arc<Container>> {
        identity::find("container", &locked(&self.entries).containers, id)
            .map(|(_, it)| Arc::clone(it))
    }

    pub(crate) fn sandboxes(&self) -> Vec<Arc<Sandbox>> {
        locked(&self.entries).sandboxes.values().cloned().collect()
    }

    pub(crate) fn containers(&self) -> Vec<Arc<Container>> {
        locked(&self.entries).containers.values().cloned().collect()
    }

    pub(crate) fn containers_of(&self, sandbox: &str) -> Vec<Arc<Container>> {
        let entries = locked(&self.entries);
        entries.containers.values().filter(|it| it.sandbox_id == sandbox).cloned().collect()
    }

    /// Reserves a name for `id`, until [`RecordStore::release`] or until its sandbox or container
    /// is removed.
    pub(crate) fn reserve(&self, name: &str, id: &str) -> Result<()> {
        let mut entries = locked(&self.entries);
        if let Some(other) = entries.names.get(name) {
            let shown = name.split_once('/').map_or(name, |(_, shown)| shown);
            return Err(CriError::new(
                tonic::Code::FailedPrecondition,
                format!("name {shown:?} is reserved for {other:?}"),
            ));
        }
        entries.names.insert(name.to_owned(), id.to_owned());
        Ok(())
    }

    pub(crate) fn release(&self, id: &str) {
        locked(&self.entries).names.retain(|_, owner| owner != id);
    }

    pub(crate) async fn add_sandbox(&self, record: StoredSandbox) -> Result<Arc<Sandbox>> {
        let (record_dir, written) = (self.sandboxes.clone(), record.clone());
        blocking(move || record_dir.put(&written.id, &written)).await?;
        let sandbox = Arc::new(Sandbox::new(record));
        locked(&self.entries).sandboxes.insert(sandbox.id.clone(), Arc::clone(&sandbox));
        Ok(sandbox)
    }

    pub(crate) async fn add_container(&self, record: StoredContainer) -> Result<Arc<Container>> {
        let (record_dir, written) = (self.containers.clone(), record.clone());
        blocking(move || record_dir.put(&written.id, &written)).await?;
        let container = Arc::new(Container::new(record));
        locked(&self.entries).containers.insert(container.id.clone(), Arc::clone(&container));
        Ok(container)
    }

    /// Changes a sandbox; the caller holds its turn.
    pub(crate) async fn change_sandbox(
        &self,
        sandbox: &Arc<Sandbox>,
        change: impl FnOnce(&mut StoredSandbox),
    ) -> Result<StoredSandbox> {
        let mut record = sandbox.record();
        change(&mut record);
        let outcome = put(&self.sandboxes, &record.id, record.clone()).await;
        let already_true = record.is_already_true();
        if let (Err(failure), false) = (&outcome, already_true) {
            return Err(failure.clone());
        }
        locked(&sandbox.record).clone_from(&record);
        if note_write_outcome(&sandbox.unwritten, &sandbox.id, outcome) {
            self.write_sandbox_later(sandbox);
        }
        Ok(record)
    }

    fn write_sandbox_later(&self, sandbox: &Arc<Sandbox>) {
        let (record_dir, sandbox) = (self.sandboxes.clone(), Arc::clone(sandbox));
        tokio::spawn(async move {
            for pause in pauses() {
                tokio::time::sleep(pause).await;
                let _guard = sandbox.exclusive_lock.lock().await;
                // Written by a later change, or removed.
                if !*sandbox.unwritten.borrow() {
                    return;
                }
                if put(&record_dir, &sandbox.id, sandbox.record()).await.is_ok() {
                    sandbox.unwritten.send_replace(false);
                    return;
                }
            }
        });
    }

    /// Changes a container, unless `change` returns false. A container that was removed meanwhile
    /// is not written again.
    pub(crate) async fn change_container(
        &self,
        container: &Arc<Container>,
        change: impl FnOnce(&mut StoredContainer) -> bool,
    ) -> Result<Option<StoredContainer>> {
        let _guard = container.writing.lock().await;
        let held = locked(&self.entries).containers.get(&container.id).cloned();
        if !held.is_some_and(|held| Arc::ptr_eq(&held, container)) {
            return Err(CriError::not_found(format!(
                "container {:?} has been removed meanwhile",
                container.id
            )));
        }
        let mut record = container.record();
        if !change(&mut record) {
            return Ok(None);
        }
        let outcome = put(&self.containers, &record.id, record.clone()).await;
        let already_true = record.is_already_true();
        if let (Err(failure), false) = (&outcome, already_true) {
            return Err(failure.clone());
        }
        let first = note_write_outcome(&container.unwritten, &container.id, outcome);
        container.apply_record(&record);
        if first {
            self.write_container_later(container);
        }
        Ok(Some(record))
    }

    fn write_container_later(&self, container: &Arc<Container>) {
        let (record_dir, container) = (self.containers.clone(), Arc::clone(container));
        tokio::spawn(async move {
            for pause in pauses() {
                tokio::time::sleep(pause).await;
                let _guard = container.writing.lock().await;
                // Written by a later change, or removed.
                if !container.is_unwritten() {
                    return;
                }
                if put(&record_dir, &container.id, container.record()).await.is_ok() {
                    container.unwritten.send_replace(false);
                    return;
                }
            }
        });
    }

    pub(crate) async fn remove_sandbox(&self, id: &str) -> Result<()> {
        let (record_dir, name) = (self.sandboxes.clone(), id.to_owned());
        blocking(move || record_dir.remove(&name)).await?;
        if let Some(sandbox) = locked(&self.entries).sandboxes.remove(id) {
            sandbox.unwritten.send_replace(false);
        }
        self.release(id);
        Ok(())
    }

    pub(crate) async fn remove_container(&self, id: &str) -> Result<()> {
        let (record_dir, name) = (self.containers.clone(), id.to_owned());
        let container = locked(&self.entries).containers.get(id).cloned();
        let _guard = match &container {
            Some(container) => Some(container.writing.lock().await),
            None => None,
        };
        blocking(move || record_dir.remove(&name)).await?;
        if let Some(container) = locked(&self.entries).containers.remove(id) {
            container.unwritten.send_replace(false);
        }
        self.release(id);
        Ok(())
    }
}

async fn put<T: PersistentRecord + Send + 'static>(
    record_dir: &RecordDir,
    id: &str,
    record: T,
) -> Result<()> {
    let (record_dir, id) = (record_dir.clone(), id.to_owned());
    blocking(move || record_dir.put(&id, &record)).await
}

/// Updates the `unwritten` flag; true if the write failed and no retry is under way yet.
fn note_write_outcome(unwritten: &watch::Sender<bool>, id: &str, outcome: Result<()>) -> bool {
    let Err(failure) = outcome else {
        unwritten.send_replace(false);
        return false;
    };
    tracing::error!(id, %failure, "a record cannot be written; retrying");
    !unwritten.send_replace(true)
}

fn pauses() -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(FIRST_PAUSE), |pause| Some((*pause * 2).min(MAX_PAUSE)))
}

/// upstream: containerd internal/cri/server/helpers.go (makeSandboxName)
pub(crate) fn sandbox_name(record: &StoredSandbox) -> String {
    let metadata = record.config.clone().unwrap_or_default().metadata.unwrap_or_default();
    format!(
        "sandbox/{}_{}_{}_{}",
        metadata.name, metadata.namespace, metadata.uid, metadata.attempt
    )
}

pub(crate) fn container_name(record: &StoredContainer, sandbox: Option<&StoredSandbox>) -> String {
    let own = record.config.clone().unwrap_or_default().metadata.unwrap_or_default();
    let pod = sandbox.and_then(|record| record.config.clone()).unwrap_or_default();
    let pod = pod.metadata.unwrap_or_default();
    format!("container/{}_{}_{}_{}_{}", own.name, pod.name, pod.namespace, pod.uid, own.attempt)
}
