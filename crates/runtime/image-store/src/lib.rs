//! The images of the embedded runtime: content by digest, names, import, snapshots, writable views.
//!
//! A [`ImageStore`] is one directory. Its rules: a file with a final name is complete and verified;
//! unfinished files have other names; several processes may use one store at once; after a kill at
//! any time [`ImageStore::sweep`] cleans up and [`ImageStore::verify`] finds no defect. Untrusted
//! bytes (archives, layers, manifests) are read under [`Limits`] and cannot cause a write outside
//! the layer's own directory.
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

pub use archive::{TarEntries, TarEntry, TarEntryKind};
pub use assemble::{ContentSource, ImageNaming};
pub use collect::{Collected, StoreDefect, Swept, Thoroughness};
pub use compression::{Compression, LayerDecoder};
pub use content::{ContentStore, Ingest, IngestStart};
pub use digest::Digest;
pub use error::{Error, Result};
pub use import::{ImportOptions, Imported};
pub use index::{LayerRecord, StoredImage};
pub use limits::Limits;
pub use mount::{detached_overlay, mount_overlay, unmount};
pub use platform::Platform;
pub use progress::{NoProgress, ProgressListener, ProgressStep};
pub use reference::{ImageReference, ReferenceError};
pub use spec::{
    ContainerConfig, Descriptor, ImageConfig, ImageDocument, ImageHistory, ImageManifest, Index,
    PlatformField,
};
pub use store::ImageStore;
pub use unpack::unpack_layer;
pub use usage::Usage;
pub use view::{ImageView, OverlayOptions, Upper};
pub use volume::copy_volume;
