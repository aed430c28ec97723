//! The port to the records of image pulls: which are in flight, and with whose credentials an image
//! was pulled to this machine.
//!
//! Rule: a record is found by its subject (an image's name or the runtime's image ref), not by the
//! name of its file; a write or a removal is atomic, and durable when it returns. An adapter does
//! not interpret a record.

use crate::pod_host::{HostFuture, LoadedRecords};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PullRecordKind {
    /// A pull was started; the subject is the image as the pod names it.
    Intent,
    /// An image was pulled; the subject is its image ref in the runtime.
    Pulled,
}

pub trait PullRecords: Send + Sync {
    /// `None` if there is no such record.
    fn read<'a>(
        &'a self,
        kind: PullRecordKind,
        subject: &'a str,
    ) -> HostFuture<'a, Option<Vec<u8>>>;
    /// All records of a kind, by file name.
    fn all(&self, kind: PullRecordKind) -> HostFuture<'_, LoadedRecords>;
    fn save<'a>(
        &'a self,
        kind: PullRecordKind,
        subject: &'a str,
        content: Vec<u8>,
    ) -> HostFuture<'a, ()>;
    /// The SHA-256 of a text, in hex: a record holds credentials by it only.
    fn digest(&self, text: &[u8]) -> String;
    fn remove<'a>(&'a self, kind: PullRecordKind, subject: &'a str) -> HostFuture<'a, ()>;
}
