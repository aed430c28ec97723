//! The HTTP endpoints that the node serves.
//!
//! Rule: an endpoint turns requests into calls of ports and results back into bytes; it decides
//! nothing about pods. Every listener bounds its connections and the time a peer may take. The
//! health endpoint; the kubelet's ports, as yet without statistics; and a secure port and a local
//! socket for pages that other crates supply (the node controller's).

mod caller;
mod health_counts;
mod health_endpoint;
mod health_reply;
mod kubelet_port;
mod local_socket;
mod page;
mod review;
mod secure_port;
mod serving_certificate;
mod ttl_cache;

pub use caller::Caller;
pub use health_counts::HealthCheckCounts;
pub use health_endpoint::HttpHealthEndpoint;
pub use kubelet_port::{
    AuthorizationMode, DisabledHandler, KubeletPort, KubeletPortSettings, ListeningKubeletPort,
};
pub use local_socket::{PageRequestError, PageSocket, PageSocketError, request_page};
pub use page::{Page, PageRequest, Pages};
pub use review::{ReviewTimes, Reviews};
pub use secure_port::{ListeningPort, SecurePort, SecurePortError};
pub use serving_certificate::{CertificateSource, TlsSettings};
