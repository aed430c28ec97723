//! Creates containers and enters them: namespaces, mounts, cgroups, privileges, then the program.
//!
//! Rule: everything here runs in a short-lived process with one thread; nothing that a container
//! can change is trusted (paths are opened beneath its root, `/proc` is a private mount,
//! descriptors are closed before its program is looked up). Makes no choices: [`spec`] is complete.

#![allow(unsafe_code, reason = "clone3, setns, mount_setattr, ioctl, execve have no safe wrappers")]

pub mod capability_names;
mod create;
mod device_filter;
mod devices;
mod enter;
mod error;
pub mod exchange;
mod groups;
pub mod hooks;
mod identity;
pub mod kernel_features;
mod mounts;
mod nodes;
mod null_device;
mod paths;
mod pod;
mod process_files;
mod program;
pub mod scopes;
pub mod spec;
mod sysctl;
pub mod system;
mod terminal;
mod user_namespace;

pub use create::{CreateInputs, create};
pub use enter::{ExecInputs, enter_container};
pub use error::{CreateError, CreateErrorKind};
pub use null_device::NullDevice;
pub use pod::{INIT_NAME, PodNamespaces, create_pod, run_init, unpin};
pub use process_files::ProcessFiles;
