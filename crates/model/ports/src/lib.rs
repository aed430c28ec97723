//! Every trait that the shell calls and an adapter or a fake implements.
//!
//! Rule: types and signatures only. No transport, no async runtime and no clock, so that the
//! agent's own tests compile without a gRPC or HTTP stack. One file per port; an error has one
//! variant for each thing that a caller can do differently.

pub mod api_pod;
pub mod api_time;
pub mod certificates;
pub mod cloud_provider;
pub mod cluster_api;
pub mod cluster_objects;
pub mod container_runtime;
pub mod credential_programs;
pub mod event_sink;
pub mod health;
pub mod host_addresses;
pub mod host_text_files;
pub mod kubelet_endpoint;
pub mod local_api;
pub mod local_plugins;
pub mod local_runtime;
pub mod log_files;
pub mod machine_facts;
pub mod metrics;
pub mod node_object;
pub mod periodic_tasks;
pub mod plugins;
pub mod pod_contents;
pub mod pod_host;
pub mod pod_runtime;
pub mod pod_sources;
pub mod probing;
pub mod pull_records;
pub mod runtime_objects;
pub mod service_notifier;
pub mod shutdown_request;

use std::future::Future;
use std::pin::Pin;

pub use api_pod::ApiPod;
pub use api_time::ApiTime;
pub use certificates::{
    CertificateFacts, CertificateStore, CertificateStoreError, CertificateTemplate, SigningRequest,
};
pub use cloud_provider::{CloudError, CloudInstance, CloudNodeName, CloudProvider};
pub use cluster_api::{ClusterApi, ClusterApiError, FeedEvent, ObjectFeed, ObjectWatch};
pub use container_runtime::ContainerRuntime;
pub use credential_programs::{CredentialProgramError, CredentialPrograms};
pub use event_sink::{EventSink, NodeEventRecord, PodEventRecord};
pub use health::{HealthCheck, HealthChecks, HealthEndpoint, HealthEndpointError};
pub use host_addresses::HostAddresses;
pub use host_text_files::HostTextFiles;
pub use kubelet_endpoint::{KubeletApi, KubeletEndpoint, KubeletEndpointError};
pub use local_api::{LocalApi, LocalEndpoint};
pub use local_runtime::LocalRuntime;
pub use log_files::LogFiles;
pub use machine_facts::{MachineFacts, MachineInfo};
pub use metrics::{MetricFamily, MetricSource};
pub use periodic_tasks::PeriodicTasks;
pub use pod_contents::{
    ContentData, ContentError, ContentKind, ContentName, ContentObject, ContentWatch, IssuedToken,
    PodContents, TokenDemand,
};
pub use pod_runtime::{PodRuntime, RuntimeSignals};
pub use pull_records::{PullRecordKind, PullRecords};
pub use service_notifier::{ServiceNotifier, ServiceNotifierError, ServiceState};
pub use shutdown_request::{ShutdownReason, ShutdownRequests};

/// The future that an asynchronous port returns: boxed, so that the traits are dyn-compatible.
pub type PortFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
