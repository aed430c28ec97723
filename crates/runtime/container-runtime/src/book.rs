//! Every sandbox and container, in memory and on the disk.
//!
//! Rule: what memory says is on the disk already: a change is written first and seen afterwards.
//! Names are reserved before anything is made, so that two requests for the same pod do not make
//! two. Looking never waits for a disk.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pod_supervisor::protocol::ContainerState;
use tokio::sync::watch;

use crate::durable::Shelf;
use crate::failure::{Failure, Result, blocking};
use crate::identity;
use crate::records::{ContainerRecord, ContainerStage, SandboxRecord};
use crate::supervision::Supervisor;

/// One pod sandbox.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) id: String,
    record: Mutex<SandboxRecord>,
    /// One change at a time: making, stopping, removing.
    pub(crate) turn: tokio::sync::Mutex<()>,
    supervisor: Mutex<Option<Arc<Supervisor>>>,
}

/// What is being done to a container right now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activity {
    None,
    Starting,
    Removing,
}

/// One container.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) id: String,
    pub(crate) sandbox_id: String,
    record: Mutex<ContainerRecord>,
    activity: Mutex<Activity>,
    /// True once its exit is on the disk.
    ended: watch::Sender<bool>,
    /// The stop signal goes out once, however often a stop is asked for.
    pub(crate) stop_signalled: AtomicBool,
    /// A hold on the first process, so that the kernel can tell how it ended.
    held: Mutex<Option<OwnedFd>>,
    /// Serialises changes of the record.
    writing: tokio::sync::Mutex<()>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sandbox {
    pub(crate) fn new(record: SandboxRecord) -> Self {
        Self {
            id: record.id.clone(),
            record: Mutex::new(record),
            turn: tokio::sync::Mutex::default(),
            supervisor: Mutex::default(),
        }
    }

    pub(crate) fn record(&self) -> SandboxRecord {
        locked(&self.record).clone()
    }

    /// The supervisor, while there is a connection to one.
    pub(crate) fn supervisor(&self) -> Option<Arc<Supervisor>> {
        locked(&self.supervisor).clone()
    }

    pub(crate) fn set_supervisor(&self, supervisor: Option<Arc<Supervisor>>) {
        *locked(&self.supervisor) = supervisor;
    }

    /// Its supervisor, or why it cannot be asked.
    pub(crate) fn reachable(&self) -> Result<Arc<Supervisor>> {
        self.supervisor().ok_or_else(|| {
            Failure::plain(format!("sandbox {:?} has no running supervisor", self.id))
        })
    }
}

impl Container {
    pub(crate) fn new(record: ContainerRecord) -> Self {
        let over = matches!(
            record.stage(),
            ContainerStage::Exited | ContainerStage::Unknown | ContainerStage::Removing
        );
        Self {
            id: record.id.clone(),
            sandbox_id: record.sandbox_id.clone(),
            record: Mutex::new(record),
            activity: Mutex::new(Activity::None),
            ended: watch::Sender::new(over),
            stop_signalled: AtomicBool::new(false),
            held: Mutex::default(),
            writing: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn record(&self) -> ContainerRecord {
        locked(&self.record).clone()
    }

    /// Holds the first process of a running container.
    pub(crate) fn hold(&self, state: &ContainerState) {
        *locked(&self.held) = pod_supervisor::afterwards::hold(state);
    }

    pub(crate) fn take_hold(&self) -> Option<OwnedFd> {
        locked(&self.held).take()
    }

    pub(crate) fn ended(&self) -> watch::Receiver<bool> {
        self.ended.subscribe()
    }
}

/// Holds an activity until it is dropped.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Container>);

impl Drop for Busy {
    fn drop(&mut self) {
        *locked(&self.0.activity) = Activity::None;
    }
}

/// Begins an activity, unless `check` says why not. Nothing else begins meanwhile.
pub(crate) fn begin(
    container: &Arc<Container>,
    activity: Activity,
    check: impl FnOnce(Activity, ContainerStage) -> Result<()>,
) -> Result<Busy> {
    let mut now = locked(&container.activity);
    check(*now, locked(&container.record).stage())?;
    *now = activity;
    Ok(Busy(Arc::clone(container)))
}

#[derive(Debug, Default)]
struct Entries {
    sandboxes: BTreeMap<String, Arc<Sandbox>>,
    containers: BTreeMap<String, Arc<Container>>,
    /// Who has a name, by kind and name.
    names: BTreeMap<String, String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Book {
    sandboxes: Shelf,
    containers: Shelf,
    entries: Arc<Mutex<Entries>>,
}

impl Book {
    /// Reads what was written before. What does not read is told and set aside.
    pub(crate) fn open(root: &Path) -> Result<Self> {
        let book = Self {
            sandboxes: Shelf::open(&root.join("sandboxes"))?,
            containers: Shelf::open(&root.join("containers"))?,
            entries: Arc::default(),
        };
        let sandboxes = book.sandboxes.all::<SandboxRecord>()?;
        let containers = book.containers.all::<ContainerRecord>()?;
        for sentence in sandboxes.spoiled.iter().chain(&containers.spoiled) {
            tracing::error!("{sentence}");
        }
        let mut entries = locked(&book.entries);
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
        Ok(book)
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

    /// Takes a name for `id`, until [`Book::release`] or the end of what has it.
    pub(crate) fn reserve(&self, name: &str, id: &str) -> Result<()> {
        let mut entries = locked(&self.entries);
        if let Some(other) = entries.names.get(name) {
            let shown = name.split_once('/').map_or(name, |(_, shown)| shown);
            return Err(Failure::new(
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

    pub(crate) async fn add_sandbox(&self, record: SandboxRecord) -> Result<Arc<Sandbox>> {
        let (shelf, written) = (self.sandboxes.clone(), record.clone());
        blocking(move || shelf.put(&written.id, &written)).await?;
        let sandbox = Arc::new(Sandbox::new(record));
        locked(&self.entries).sandboxes.insert(sandbox.id.clone(), Arc::clone(&sandbox));
        Ok(sandbox)
    }

    pub(crate) async fn add_container(&self, record: ContainerRecord) -> Result<Arc<Container>> {
        let (shelf, written) = (self.containers.clone(), record.clone());
        blocking(move || shelf.put(&written.id, &written)).await?;
        let container = Arc::new(Container::new(record));
        locked(&self.entries).containers.insert(container.id.clone(), Arc::clone(&container));
        Ok(container)
    }

    /// Changes a sandbox; whoever calls holds its turn.
    pub(crate) async fn change_sandbox(
        &self,
        sandbox: &Sandbox,
        change: impl FnOnce(&mut SandboxRecord),
    ) -> Result<SandboxRecord> {
        let mut record = sandbox.record();
        change(&mut record);
        let (shelf, written) = (self.sandboxes.clone(), record.clone());
        blocking(move || shelf.put(&written.id, &written)).await?;
        locked(&sandbox.record).clone_from(&record);
        Ok(record)
    }

    /// Changes a container, unless `change` says that there is nothing to change.
    pub(crate) async fn change_container(
        &self,
        container: &Container,
        change: impl FnOnce(&mut ContainerRecord) -> bool,
    ) -> Result<Option<ContainerRecord>> {
        let _turn = container.writing.lock().await;
        let mut record = container.record();
        if !change(&mut record) {
            return Ok(None);
        }
        let (shelf, written) = (self.containers.clone(), record.clone());
        blocking(move || shelf.put(&written.id, &written)).await?;
        locked(&container.record).clone_from(&record);
        if matches!(record.stage(), ContainerStage::Exited | ContainerStage::Unknown) {
            container.take_hold();
            container.ended.send_replace(true);
        }
        Ok(Some(record))
    }

    pub(crate) async fn remove_sandbox(&self, id: &str) -> Result<()> {
        let (shelf, name) = (self.sandboxes.clone(), id.to_owned());
        blocking(move || shelf.take_away(&name)).await?;
        locked(&self.entries).sandboxes.remove(id);
        self.release(id);
        Ok(())
    }

    pub(crate) async fn remove_container(&self, id: &str) -> Result<()> {
        let (shelf, name) = (self.containers.clone(), id.to_owned());
        blocking(move || shelf.take_away(&name)).await?;
        locked(&self.entries).containers.remove(id);
        self.release(id);
        Ok(())
    }
}

/// upstream: containerd internal/cri/server/helpers.go (makeSandboxName)
pub(crate) fn sandbox_name(record: &SandboxRecord) -> String {
    let metadata = record.config.clone().unwrap_or_default().metadata.unwrap_or_default();
    format!(
        "sandbox/{}_{}_{}_{}",
        metadata.name, metadata.namespace, metadata.uid, metadata.attempt
    )
}

pub(crate) fn container_name(record: &ContainerRecord, sandbox: Option<&SandboxRecord>) -> String {
    let own = record.config.clone().unwrap_or_default().metadata.unwrap_or_default();
    let pod = sandbox.and_then(|record| record.config.clone()).unwrap_or_default();
    let pod = pod.metadata.unwrap_or_default();
    format!("container/{}_{}_{}_{}_{}", own.name, pod.name, pod.namespace, pod.uid, own.attempt)
}
