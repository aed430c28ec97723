//! Flags, KubeletConfiguration, drop-ins and CredentialProviderConfig become one validated, immutable `NodeConfig`.
//!
//! Pure: bytes and arguments in, values and findings out. Reading files is left to the caller.

pub mod assemble;
pub mod change;
pub mod credential_provider;
pub mod effective;
pub mod feature_gates;
pub mod findings;
pub mod flags;
pub mod kubelet_configuration;
pub mod node_config;
pub mod schema;
pub mod validation;

pub use ::document;
pub use ::document::diagnostic;
pub use assemble::{ConfigFiles, DropInOrder, SourceFile, drop_in_order};
pub use diagnostic::{Diagnostic, Origin, Severity};
pub use effective::EffectiveConfig;
pub use kubelet_configuration::KubeletConfiguration;
pub use node_config::{LoadedNodeConfig, NodeConfig, load};
