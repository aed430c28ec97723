//! The embedded container runtime: CRI v1 on top of image-store and pod-supervisor, with a network
//! of its own.
//!
//! [`Runtime`] is the server: [`Runtime::open`] recovers the state that an earlier process left,
//! [`Runtime::serve`] answers on a socket, [`Runtime::routes`] is the same service for a client in
//! this process. It knows nothing of kubelets; pods outlive it.

mod clock;
pub mod crash_points;
mod durable;
mod events;
mod failure;
mod filters;
mod identity;
mod images;
mod names;
mod network;
mod record_store;
mod records;
mod runtime;
mod serve;
mod service;
mod settings;
mod signals;
mod specification;
mod streams;
mod supervision;

pub use failure::{CriError, Result};
pub use images::{PullProgress, RuntimeImages};
pub use network::{NetworkTrialError, try_built_in_network};
pub use runtime::Runtime;
pub use settings::{CgroupDriver, RegistrySettings, RuntimeSettings};
// The user tables of an image, for fuzzing.
pub use specification::{ResolvedUser, UserTables, resolve_identity};
