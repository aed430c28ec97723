//! Notification at the end of a periodic task.
//!
//! Rule: called after a periodic task has done its work, so that an otherwise idle process can
//! release the memory that it needed. The call never blocks.

pub trait PeriodicTasks: Send + Sync {
    fn ended(&self);
}
