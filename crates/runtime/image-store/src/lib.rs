//! The images of the embedded runtime: content by digest, names, import, snapshots, writable views.
//!
//! A [`Store`] is one directory. Its rules: a file with a final name is complete and verified;
//! unfinished files have other names; several processes may use one store at once; after a kill at
//! any time [`Store::sweep`] cleans up and [`Store::verify`] finds no defect. Untrusted bytes
//! (archives, layers, manifests) are read under [`Limits`] and cannot cause a write outside the
//! layer's own directory.
//!
//! Blocking throughout: callers run it in a helper process or a blocking task. It knows nothing of
//! CRI or registries; content from a registry arrives through [`Source`].

mod archive;
mod assemble;
mod collect;
mod compression;
mod content;
mod digest;
mod durable;
mod error;
#[cfg(test)]
mod golden;
mod import;
mod index;
mod lease;
mod limits;
mod mount;
mod platform;
mod progress;
mod reference;
mod session;
mod snapshot;
mod spec;
mod store;
#[cfg(test)]
mod testing;
mod tree;
mod unpack;
mod usage;
mod view;
mod volume;

pub use archive::{Entries, Entry, EntryKind};
pub use assemble::{Naming, Source};
pub use collect::{Collected, Problem, Swept, Thoroughness};
pub use compression::{Compression, Decoder};
pub use content::{Begin, Content, Ingest};
pub use digest::Digest;
pub use error::{Error, Result};
pub use import::{ImportOptions, Imported};
pub use index::{ImageRecord, LayerRecord};
pub use limits::Limits;
pub use mount::{detached_overlay, mount_overlay, unmount};
pub use platform::Platform;
pub use progress::{Progress, Silent, Step};
pub use reference::{Reference, ReferenceError};
pub use spec::{
    ContainerConfig, Descriptor, Document, History, ImageConfig, Index, Manifest, PlatformField,
};
pub use store::Store;
pub use unpack::unpack_layer;
pub use usage::Usage;
pub use view::{OverlayOptions, Upper, View};
pub use volume::copy_volume;
