//! Named tasks that live and end together.
//!
//! Rule: all tasks of the shell are spawned here. A task is made by a function that can make it
//! again: a panic is caught in that task and logged with the task's name, and the task restarts
//! after a growing delay. Ending the tree drops every task at its next await.
//!
//! Does not wait for a task's own clean-up beyond its drop, nor restart a task that returned.

use crate::back_off::ExponentialBackOff;
use std::any::Any;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::error;

const FIRST_RESTART: Duration = Duration::from_secs(1);
const LONGEST_RESTART: Duration = Duration::from_secs(60);
/// After this long without a panic, a task's next panic counts as the first one.
const PANIC_RESET: Duration = Duration::from_secs(300);

tokio::task_local! {
    static TASK_NAME: Arc<str>;
}

/// The name of the tree's task that runs on this thread, if any. For panic messages.
pub fn current_task() -> Option<Arc<str>> {
    TASK_NAME.try_with(Clone::clone).ok()
}

/// The task, with a name for panic messages.
pub(crate) fn named<Task: Future>(
    name: Arc<str>,
    task: Task,
) -> impl Future<Output = Task::Output> {
    TASK_NAME.scope(name, task)
}

/// Consecutive panics of each task, and when the last one was.
#[derive(Debug, Clone, Default)]
pub(crate) struct TaskFailures {
    panics: Arc<Mutex<BTreeMap<&'static str, (u32, Instant)>>>,
}

impl TaskFailures {
    /// The task with the most consecutive panics lately, and how many.
    pub(crate) fn worst(&self) -> Option<(&'static str, u32)> {
        let panics = self.lock();
        let lately = panics.iter().filter(|(_, (_, last))| last.elapsed() < PANIC_RESET);
        lately.max_by_key(|(_, (count, _))| *count).map(|(task, (count, _))| (*task, *count))
    }

    /// Counts a panic of `task`; returns how many there are now in a row.
    fn count(&self, task: &'static str) -> u32 {
        let mut panics = self.lock();
        let (count, last) = panics.entry(task).or_insert((0, Instant::now()));
        *count = if last.elapsed() < PANIC_RESET { count.saturating_add(1) } else { 1 };
        *last = Instant::now();
        *count
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, (u32, Instant)>> {
        // Entries are always consistent, so a panic elsewhere leaves nothing broken behind.
        self.panics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tasks of one agent. Dropping it ends them.
#[derive(Debug, Default)]
pub(crate) struct TaskTree {
    tasks: JoinSet<()>,
    failures: TaskFailures,
}

impl TaskTree {
    pub(crate) fn failures(&self) -> TaskFailures {
        self.failures.clone()
    }

    /// Starts the task that `make` makes, and again whenever it panics.
    pub(crate) fn start<Make, Task>(&mut self, name: &'static str, make: Make)
    where
        Make: FnMut() -> Task + Send + 'static,
        Task: Future<Output = ()> + Send + 'static,
    {
        let keep = keep_running(name, make, self.failures.clone());
        self.tasks.spawn(named(name.into(), keep));
    }

    /// Ends every task and waits until they are gone.
    pub(crate) async fn end(mut self) {
        self.tasks.shutdown().await;
    }
}

async fn keep_running<Make, Task>(name: &'static str, mut make: Make, failures: TaskFailures)
where
    Make: FnMut() -> Task + Send,
    Task: Future<Output = ()> + Send,
{
    let mut back_off = ExponentialBackOff::new(FIRST_RESTART, LONGEST_RESTART);
    while let Err(message) = run_once(&mut make).await {
        let in_a_row = failures.count(name);
        if in_a_row == 1 {
            back_off.reset();
        }
        let pause = back_off.pause();
        error!(
            task = name,
            panic = message,
            in_a_row,
            restart_in_seconds = pause.as_secs(),
            "Task panicked and will be started again"
        );
        tokio::time::sleep(pause).await;
    }
}

/// Runs a task once; a panic, also while it is made or dropped, becomes its message.
async fn run_once<Task>(make: &mut impl FnMut() -> Task) -> Result<(), String>
where
    Task: Future<Output = ()> + Send,
{
    let made = catch_unwind(AssertUnwindSafe(|| Box::pin(make())));
    let mut task: Pin<Box<Task>> = made.map_err(|payload| panic_message(&*payload))?;
    let outcome = poll_fn(|context| {
        // After a panic the task is only dropped, so its broken state is not used.
        match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(payload) => std::task::Poll::Ready(Err(panic_message(&*payload))),
        }
    })
    .await;
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(task)));
    outcome.and(dropped.map_err(|payload| panic_message(&*payload)))
}

/// The argument of `panic!`, if it was text.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

#[cfg(test)]
mod tests;
