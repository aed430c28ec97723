//! The seam to what is written down about pulls: which are under way, and with whose logins an
//! image came onto this machine.
//!
//! Rule: a record is found again by its subject (an image's name or the runtime's word for it),
//! whatever its file is called; a write is durable and whole when it returns, a removal likewise.
//! Knows nothing of what is in a record.

use crate::pod_host::{HostFuture, LoadedRecords};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PullRecordKind {
    /// A pull has begun; the subject is the image as the pod names it.
    Intent,
    /// An image was pulled; the subject is what the runtime calls it.
    Pulled,
}

pub trait PullRecords: Send + Sync {
    /// None where there is no such record.
    fn read<'a>(
        &'a self,
        kind: PullRecordKind,
        subject: &'a str,
    ) -> HostFuture<'a, Option<Vec<u8>>>;
    /// All of a kind, by the names of their files.
    fn all(&self, kind: PullRecordKind) -> HostFuture<'_, LoadedRecords>;
    fn save<'a>(
        &'a self,
        kind: PullRecordKind,
        subject: &'a str,
        content: Vec<u8>,
    ) -> HostFuture<'a, ()>;
    fn remove<'a>(&'a self, kind: PullRecordKind, subject: &'a str) -> HostFuture<'a, ()>;
}
