//! Every metric that the agent counts, with its labels and bounds.
//!
//! Rule: names, labels and bounds are upstream's; the help is in our own words. [`ALL`] is what is
//! served; a test fails for a metric that is counted and not in it.

use super::Metric;
use ports::metrics::MetricKind::{Counter, Gauge, Histogram};

/// The bounds of most duration histograms.
pub(crate) const DEFAULT_BUCKETS: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// From a minute to four years.
const ROTATION_BUCKETS: &[f64] = &[
    60.0,
    3_600.0,
    14_400.0,
    86_400.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
    124_416_000.0,
];
const PULL_BUCKETS: &[f64] = &[
    1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0,
    1200.0, 1800.0, 2700.0, 3600.0,
];
const POD_START_BUCKETS: &[f64] = &[
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0,
    300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];

macro_rules! metrics {
    ($($name:ident = $kind:ident $text:literal $labels:tt $bounds:expr, $help:literal;)*) => {
        $(
            pub(crate) static $name: Metric = Metric {
                name: $text,
                help: $help,
                kind: $kind,
                labels: &$labels,
                bounds: $bounds,
            };
        )*

        pub(crate) static ALL: &[&Metric] = &[$(&$name),*];
    };
}

/// Served only where that certificate is renewed.
pub(crate) static OF_CLIENT_CERTIFICATE: &[&Metric] = &[&CLIENT_RENEW_ERRORS];
pub(crate) static OF_SERVING_CERTIFICATE: &[&Metric] = &[&SERVER_ROTATION, &SERVER_RENEW_ERRORS];

/// Those of [`ALL`] that every node serves.
pub(crate) fn of_every_node() -> Vec<&'static Metric> {
    let others = OF_CLIENT_CERTIFICATE.iter().chain(OF_SERVING_CERTIFICATE);
    let is_other = |metric: &Metric| others.clone().any(|other| other.name == metric.name);
    ALL.iter().copied().filter(|metric| !is_other(metric)).collect()
}

metrics! {
    ACTIVE_PODS = Gauge "kubelet_active_pods" ["static"] &[],
        "Pods that count when a new one asks for room. static is true for pods that come from no API server.";
    ADMISSION_REJECTIONS = Counter "kubelet_admission_rejections_total" ["reason"] &[],
        "Pods that were refused, by reason.";
    CLIENT_RENEW_ERRORS = Counter "kubelet_certificate_manager_client_expiration_renew_errors" [] &[],
        "Attempts to renew the certificate for the API server that failed.";
    SERVER_ROTATION = Histogram "kubelet_certificate_manager_server_rotation_seconds" []
        ROTATION_BUCKETS,
        "Seconds that serving certificates lived before they were replaced.";
    CGROUP_VERSION = Gauge "kubelet_cgroup_version" [] &[],
        "Version of the machine's cgroups.";
    CONTAINERS_PER_POD = Histogram "kubelet_containers_per_pod_count" [] &[1.0, 2.0, 4.0, 8.0, 16.0],
        "How many containers pods have.";
    CREDENTIAL_PROGRAM_DURATION = Histogram "kubelet_credential_provider_plugin_duration"
        ["plugin_name"] DEFAULT_BUCKETS,
        "Seconds that runs of credential provider programs took, by program.";
    CREDENTIAL_PROGRAM_ERRORS = Counter "kubelet_credential_provider_plugin_errors_total"
        ["plugin_name"] &[],
        "Runs of credential provider programs that failed, by program.";
    DESIRED_PODS = Gauge "kubelet_desired_pods" ["static"] &[],
        "Pods that should run here. static is true for pods that come from no API server.";
    DEVICE_ALLOCATION_DURATION = Histogram "kubelet_device_plugin_alloc_duration_seconds"
        ["resource_name"] DEFAULT_BUCKETS,
        "Seconds that device plugins took to allocate devices, by resource.";
    DEVICE_REGISTRATIONS = Counter "kubelet_device_plugin_registration_total" ["resource_name"] &[],
        "Device plugins that were connected, by resource.";
    EVENTED_ERRORS = Counter "kubelet_evented_pleg_connection_error_count" [] &[],
        "How often the runtime's event stream was lost or refused.";
    EVENTED_LATENCY = Histogram "kubelet_evented_pleg_connection_latency_seconds" [] DEFAULT_BUCKETS,
        "Seconds from the creation of an event by the runtime to its receipt here.";
    EVENTED_SUCCESSES = Counter "kubelet_evented_pleg_connection_success_count" [] &[],
        "How often the runtime's event stream was opened.";
    ENSURE_IMAGE_REQUESTS = Counter "kubelet_image_manager_ensure_image_requests_total"
        ["present_locally", "pull_policy", "pull_required"] &[],
        "How often a container asked for its image.";
    IMAGE_PULL_DURATION = Histogram "kubelet_image_pull_duration_seconds"
        ["image_size_in_bytes"] PULL_BUCKETS,
        "Seconds that successful pulls took, waiting included, by size of the image.";
    HTTP_FALLBACKS = Counter "kubelet_lifecycle_handler_http_fallbacks_total" [] &[],
        "Hooks that asked over HTTPS, were answered in plain HTTP, and were asked again so.";
    MANAGED_EPHEMERAL = Gauge "kubelet_managed_ephemeral_containers" [] &[],
        "Containers that were added to pods of this agent for a while.";
    MIRROR_PODS = Gauge "kubelet_mirror_pods" [] &[],
        "Pods that stand for static pods at the API server.";
    NODE_NAME = Gauge "kubelet_node_name" ["node"] &[],
        "The node's name. The value is always 1.";
    ORPHANED_RUNTIME_PODS = Counter "kubelet_orphaned_runtime_pods_total" [] &[],
        "Pods that were found in the runtime without anybody wanting them.";
    DISCARDED_EVENTS = Counter "kubelet_pleg_discard_events" [] &[],
        "Events of the runtime that were thrown away unread. None ever is.";
    RELIST_LAST_SEEN = Gauge "kubelet_pleg_last_seen_seconds" [] &[],
        "When the runtime was last listed whole, in seconds since the epoch.";
    POD_RESOURCES_ALLOCATABLE = Counter "kubelet_pod_resources_endpoint_requests_get_allocatable"
        ["server_api_version"] &[],
        "Requests of the pod resources API for the allocatable resources, by version.";
    POD_RESOURCES_GET = Counter "kubelet_pod_resources_endpoint_requests_get"
        ["server_api_version"] &[],
        "Requests of the pod resources API for one pod, by version.";
    POD_RESOURCES_GET_ERRORS = Counter "kubelet_pod_resources_endpoint_errors_get"
        ["server_api_version"] &[],
        "Requests of the pod resources API for a pod that is not here, by version.";
    POD_RESOURCES_LIST = Counter "kubelet_pod_resources_endpoint_requests_list"
        ["server_api_version"] &[],
        "Requests of the pod resources API for all pods, by version.";
    POD_RESOURCES_REQUESTS = Counter "kubelet_pod_resources_endpoint_requests_total"
        ["server_api_version"] &[],
        "Requests of the pod resources API, by version.";
    POD_RELIST_DURATION = Histogram "kubelet_pleg_pod_relist_duration_seconds" [] DEFAULT_BUCKETS,
        "Seconds that looks at a single pod took.";
    RELIST_DURATION = Histogram "kubelet_pleg_relist_duration_seconds" [] DEFAULT_BUCKETS,
        "Seconds that listings of the whole runtime took; its count is how many there were.";
    RELIST_INTERVAL = Histogram "kubelet_pleg_relist_interval_seconds" [] DEFAULT_BUCKETS,
        "Seconds between listings of the whole runtime.";
    POD_START_DURATION = Histogram "kubelet_pod_start_duration_seconds" [] POD_START_BUCKETS,
        "Seconds from a pod's first being seen to its running.";
    POD_WORKER_DURATION = Histogram "kubelet_pod_worker_duration_seconds" ["operation_type"] DEFAULT_BUCKETS,
        "Seconds that it took to bring a pod in line, actions included, by what it was done for: create, update, sync, kill or terminated.";
    POD_WORKER_START_DURATION = Histogram "kubelet_pod_worker_start_duration_seconds" [] DEFAULT_BUCKETS,
        "Seconds from a pod's first being seen to its being worked on.";
    PREEMPTIONS = Counter "kubelet_preemptions" ["preemption_signal"] &[],
        "Pods that had to go for a critical one, by the resource that was lacking.";
    RESTARTED_PODS = Counter "kubelet_restarted_pods_total" ["static"] &[],
        "Pods that came again under the UID of one that was ending.";
    RUN_SANDBOX_DURATION = Histogram "kubelet_run_podsandbox_duration_seconds"
        ["runtime_handler"] DEFAULT_BUCKETS,
        "Seconds that starts of sandboxes took, by handler.";
    RUN_SANDBOX_ERRORS = Counter "kubelet_run_podsandbox_errors_total" ["runtime_handler"] &[],
        "Starts of sandboxes that failed, by handler.";
    RUNNING_CONTAINERS = Gauge "kubelet_running_containers" ["container_state"] &[],
        "Containers that the runtime has, by state.";
    RUNNING_PODS = Gauge "kubelet_running_pods" [] &[],
        "Pods whose sandbox runs.";
    SERVER_RENEW_ERRORS = Counter "kubelet_server_expiration_renew_errors" [] &[],
        "Attempts to renew the serving certificate that failed.";
    STARTED_CONTAINERS = Counter "kubelet_started_containers_total" ["container_type"] &[],
        "Starts of containers, also those that failed.";
    STARTED_CONTAINER_ERRORS = Counter "kubelet_started_containers_errors_total"
        ["code", "container_type"] &[],
        "Starts of containers that failed, by reason.";
    STARTED_PODS = Counter "kubelet_started_pods_total" [] &[],
        "Starts of sandboxes, also those that failed.";
    STARTED_POD_ERRORS = Counter "kubelet_started_pods_errors_total" [] &[],
        "Starts of sandboxes that failed.";
    STARTED_USER_NAMESPACED_PODS = Counter "kubelet_started_user_namespaced_pods_total" [] &[],
        "Starts of sandboxes with users of their own, also those that failed.";
    STARTED_USER_NAMESPACED_PODS_ERRORS = Counter "kubelet_started_user_namespaced_pods_errors_total"
        [] &[],
        "Starts of sandboxes with users of their own that failed.";
    WORKING_PODS = Gauge "kubelet_working_pods" ["config", "lifecycle", "static"] &[],
        "Pods that are being worked on, by what becomes of them and whether anybody wants them.";
}

/// The label for an image's size; `N/A` if it is not known.
/// upstream: pkg/kubelet/metrics/metrics.go (GetImageSizeBucket)
pub(crate) fn image_size(bytes: u64) -> &'static str {
    const MEGA: u64 = 1 << 20;
    const GIGA: u64 = 1 << 30;
    // Upper bounds, inclusive.
    const SIZES: [(u64, &str); 11] = [
        (10 * MEGA, "0-10MB"),
        (100 * MEGA, "10MB-100MB"),
        (500 * MEGA, "100MB-500MB"),
        (GIGA, "500MB-1GB"),
        (5 * GIGA, "1GB-5GB"),
        (10 * GIGA, "5GB-10GB"),
        (20 * GIGA, "10GB-20GB"),
        (30 * GIGA, "20GB-30GB"),
        (40 * GIGA, "30GB-40GB"),
        (60 * GIGA, "40GB-60GB"),
        (100 * GIGA, "60GB-100GB"),
    ];
    if bytes == 0 {
        return "N/A";
    }
    SIZES.iter().find(|(most, _)| bytes <= *most).map_or("GT100GB", |(_, label)| label)
}

/// The label for a rejection reason: reasons from outside must not create new label values without
/// end.
/// upstream: pkg/kubelet/kubelet.go (recordAdmissionRejection)
pub(crate) fn rejection(reason: &str) -> &str {
    const KNOWN: [&str; 21] = [
        "AppArmor",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "PodOSNotSupported",
        "InvalidNodeInfo",
        "InitContainerRestartPolicyForbidden",
        "SupplementalGroupsPolicyNotSupported",
        "UnexpectedAdmissionError",
        "UnknownReason",
        "UnexpectedPredicateFailureType",
        "OutOfcpu",
        "OutOfmemory",
        "OutOfephemeral-storage",
        "OutOfpods",
        "PodLevelResourcesNotSupported",
        "PodFeatureUnsupported",
        "node(s) had taints that the pod didn't tolerate",
        "Evicted",
        "SysctlForbidden",
        "TopologyAffinityError",
        "NodeShutdown",
        "VolumeAttachmentLimitExceeded",
    ];
    match reason {
        known if KNOWN.contains(&known) => known,
        resource if resource.starts_with("OutOf") => "OutOfExtendedResources",
        _ => "Other",
    }
}
