//! Starters of the real parts, for use inside a bed.
//!
//! Rule: a starter returns when its part answers, or fails with the end of the part's log. Each
//! part has its own directory in the bed; dropping the value stops it, and the bed's end kills it
//! in any case. Starters take no ports or paths from the host.

mod certificates;
mod containerd;
mod control_plane;
mod http;
mod process;
mod reference_kubelet;
mod registry;

pub use certificates::{CertificateAuthority, CertificateSubject, KeyAndCertificate};
pub use containerd::{BRIDGE, Containerd, ContainerdGeneration, ContainerdOptions, Mirror};
pub use control_plane::{ControlPlane, SavedData};
pub use http::{PlainHttpResponse, get};
pub use process::RunningPart;
pub use reference_kubelet::{KubeletOptions, ReferenceKubelet};
pub use registry::{PASSWORD, RegistryOptions, RegistryServer, USER};
