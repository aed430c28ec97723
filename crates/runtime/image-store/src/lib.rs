//! The images of the embedded runtime: content by digest, names, import, snapshots, writable views.
//!
//! A [`Store`] is one folder of this machine. The rules it keeps: what has a final name is whole
//! and was verified; whatever is being made lives under another name until it is; several
//! processes may use one store at once; killing any of them at any instant leaves a store that
//! [`Store::sweep`] cleans and [`Store::verify`] finds whole. Bytes that others wrote (archives,
//! layers, manifests) are read under [`Limits`] and never decide where something is written
//! outside the layer's own folder.
//!
//! Blocking throughout: callers run it in a helper process or a blocking task. It knows nothing of
//! CRI, registries or clocks; content from a registry arrives through [`Source`].

mod archive;
mod assemble;
mod collect;
mod compression;
mod content;
mod digest;
mod durable;
mod error;
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
