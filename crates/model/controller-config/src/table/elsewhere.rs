//! Flags and sections of kube-controller-manager that have no effect here, and why.
//!
//! The rule it keeps: they are accepted, checked for their form, and warned about, so that a unit
//! file written for kube-controller-manager works. Rows only, in the order of names.

use node_config::flags::Kind;

use super::{Field, Row, Why};

const fn of(name: &'static str, kind: Kind, controller: &'static str) -> Row {
    let field = Field::Unused(kind, Why::Controller(controller));
    Row { name, field, path: "", default: "", help: "" }
}

const fn no(name: &'static str, kind: Kind, because: &'static str) -> Row {
    let field = Field::Unused(kind, Why::Because(because));
    Row { name, field, path: "", default: "", help: "" }
}

pub(super) static ELSEWHERE: &[Row] = &[
    no("allow-metric-labels", Kind::Pairs, "labels are not limited by lists here"),
    no("allow-metric-labels-manifest", Kind::Text, "labels are not limited by lists here"),
    no("allow-untagged-cloud", Kind::Bool, "upstream ignores it too"),
    of(
        "attach-detach-reconcile-sync-period",
        Kind::Duration,
        "persistentvolume-attach-detach-controller",
    ),
    no(
        "authentication-tolerate-lookup-failure",
        Kind::Bool,
        "such a failure never stops this program: it retries, and admits no client meanwhile",
    ),
    no("cluster-name", Kind::Text, "no cloud of ours needs a prefix"),
    of("cluster-signing-cert-file", Kind::Text, "certificatesigningrequest-signing-controller"),
    of("cluster-signing-duration", Kind::Duration, "certificatesigningrequest-signing-controller"),
    of("cluster-signing-key-file", Kind::Text, "certificatesigningrequest-signing-controller"),
    of(
        "cluster-signing-kube-apiserver-client-cert-file",
        Kind::Text,
        "certificatesigningrequest-signing-controller",
    ),
    of(
        "cluster-signing-kube-apiserver-client-key-file",
        Kind::Text,
        "certificatesigningrequest-signing-controller",
    ),
    of(
        "cluster-signing-kubelet-client-cert-file",
        Kind::Text,
        "certificatesigningrequest-signing-controller",
    ),
    of(
        "cluster-signing-kubelet-client-key-file",
        Kind::Text,
        "certificatesigningrequest-signing-controller",
    ),
    of(
        "cluster-signing-kubelet-serving-cert-file",
        Kind::Text,
        "certificatesigningrequest-signing-controller",
    ),
    of(
        "cluster-signing-kubelet-serving-key-file",
        Kind::Text,
        "certificatesigningrequest-signing-controller",
    ),
    of(
        "cluster-signing-legacy-unknown-cert-file",
        Kind::Text,
        "certificatesigningrequest-signing-controller",
    ),
    of(
        "cluster-signing-legacy-unknown-key-file",
        Kind::Text,
        "certificatesigningrequest-signing-controller",
    ),
    of("concurrent-cron-job-syncs", Kind::Int32, "cronjob-controller"),
    of("concurrent-daemonset-syncs", Kind::Int32, "daemonset-controller"),
    of("concurrent-deployment-syncs", Kind::Int32, "deployment-controller"),
    of("concurrent-device-taint-eviction-syncs", Kind::Int32, "device-taint-eviction-controller"),
    of("concurrent-endpoint-syncs", Kind::Int32, "endpoints-controller"),
    of("concurrent-ephemeralvolume-syncs", Kind::Int32, "ephemeral-volume-controller"),
    of("concurrent-gc-syncs", Kind::Int32, "garbage-collector-controller"),
    of(
        "concurrent-horizontal-pod-autoscaler-syncs",
        Kind::Int32,
        "horizontal-pod-autoscaler-controller",
    ),
    of("concurrent-job-syncs", Kind::Int32, "job-controller"),
    of("concurrent-namespace-syncs", Kind::Int32, "namespace-controller"),
    of("concurrent-rc-syncs", Kind::Int32, "replicationcontroller-controller"),
    of("concurrent-replicaset-syncs", Kind::Int32, "replicaset-controller"),
    of("concurrent-resource-quota-syncs", Kind::Int32, "resourcequota-controller"),
    of("concurrent-resourceclaim-syncs", Kind::Int32, "resourceclaim-controller"),
    of("concurrent-service-endpoint-syncs", Kind::Int32, "endpointslice-controller"),
    of("concurrent-service-syncs", Kind::Int32, "service-lb-controller"),
    of("concurrent-serviceaccount-token-syncs", Kind::Int32, "serviceaccount-controller"),
    of("concurrent-statefulset-syncs", Kind::Int32, "statefulset-controller"),
    of("concurrent-ttl-after-finished-syncs", Kind::Int32, "ttl-after-finished-controller"),
    of(
        "concurrent-validating-admission-policy-status-syncs",
        Kind::Int32,
        "validatingadmissionpolicy-status-controller",
    ),
    no("configure-cloud-routes", Kind::Bool, "routes are not configured here"),
    no("contention-profiling", Kind::Bool, "there is no profiling port"),
    no("controller-start-interval", Kind::Duration, "controllers start together"),
    of(
        "disable-attach-detach-reconcile-sync",
        Kind::Bool,
        "persistentvolume-attach-detach-controller",
    ),
    of("disable-force-detach-on-timeout", Kind::Bool, "persistentvolume-attach-detach-controller"),
    no("disable-http2-serving", Kind::Bool, "the secure port speaks HTTP/1.1 only"),
    no("disabled-metrics", Kind::TextList, "metrics cannot be turned off one by one"),
    no("emulated-version", Kind::TextList, "no other version is emulated"),
    of("enable-dynamic-provisioning", Kind::Bool, "persistentvolume-binder-controller"),
    of("enable-garbage-collector", Kind::Bool, "garbage-collector-controller"),
    of("enable-hostpath-provisioner", Kind::Bool, "persistentvolume-binder-controller"),
    no("enable-leader-migration", Kind::Bool, "the lease is our own, so nothing migrates"),
    of("endpoint-updates-batch-period", Kind::Duration, "endpoints-controller"),
    of("endpointslice-updates-batch-period", Kind::Duration, "endpointslice-controller"),
    no("external-cloud-volume-plugin", Kind::Text, "volumes are not handled here"),
    of("flex-volume-plugin-dir", Kind::Text, "persistentvolume-binder-controller"),
    of(
        "horizontal-pod-autoscaler-cpu-initialization-period",
        Kind::Duration,
        "horizontal-pod-autoscaler-controller",
    ),
    of(
        "horizontal-pod-autoscaler-downscale-stabilization",
        Kind::Duration,
        "horizontal-pod-autoscaler-controller",
    ),
    of(
        "horizontal-pod-autoscaler-initial-readiness-delay",
        Kind::Duration,
        "horizontal-pod-autoscaler-controller",
    ),
    of(
        "horizontal-pod-autoscaler-sync-period",
        Kind::Duration,
        "horizontal-pod-autoscaler-controller",
    ),
    of("horizontal-pod-autoscaler-tolerance", Kind::Float, "horizontal-pod-autoscaler-controller"),
    no("http2-max-streams-per-connection", Kind::Int, "the secure port speaks HTTP/1.1 only"),
    no("kube-api-content-type", Kind::Text, "the API server is spoken to in JSON"),
    no("leader-migration-config", Kind::Text, "the lease is our own, so nothing migrates"),
    of(
        "legacy-service-account-token-clean-up-period",
        Kind::Duration,
        "legacy-serviceaccount-token-cleaner-controller",
    ),
    no("log-flush-frequency", Kind::Duration, "every line is written at once"),
    no("log-json-info-buffer-size", Kind::Quantity, "every line is written at once"),
    no("log-text-info-buffer-size", Kind::Quantity, "every line is written at once"),
    of("max-endpoints-per-slice", Kind::Int32, "endpointslice-controller"),
    no("min-compatibility-version", Kind::TextList, "no other version is emulated"),
    no("min-resync-period", Kind::Duration, "nothing is listed again without need"),
    of(
        "mirroring-concurrent-service-endpoint-syncs",
        Kind::Int32,
        "endpointslice-mirroring-controller",
    ),
    of(
        "mirroring-endpointslice-updates-batch-period",
        Kind::Duration,
        "endpointslice-mirroring-controller",
    ),
    of("mirroring-max-endpoints-per-subset", Kind::Int32, "endpointslice-mirroring-controller"),
    of("namespace-sync-period", Kind::Duration, "namespace-controller"),
    no("node-sync-period", Kind::Duration, "upstream ignores it too"),
    no("permit-address-sharing", Kind::Bool, "the port is not shared"),
    no("permit-port-sharing", Kind::Bool, "the port is not shared"),
    no("profiling", Kind::Bool, "there is no profiling port"),
    of("pv-recycler-increment-timeout-nfs", Kind::Int32, "persistentvolume-binder-controller"),
    of("pv-recycler-minimum-timeout-hostpath", Kind::Int32, "persistentvolume-binder-controller"),
    of("pv-recycler-minimum-timeout-nfs", Kind::Int32, "persistentvolume-binder-controller"),
    of(
        "pv-recycler-pod-template-filepath-hostpath",
        Kind::Text,
        "persistentvolume-binder-controller",
    ),
    of("pv-recycler-pod-template-filepath-nfs", Kind::Text, "persistentvolume-binder-controller"),
    of("pv-recycler-timeout-increment-hostpath", Kind::Int32, "persistentvolume-binder-controller"),
    of("pvclaimbinder-sync-period", Kind::Duration, "persistentvolume-binder-controller"),
    no(
        "requestheader-allowed-names",
        Kind::TextList,
        "identities from request headers are not taken here",
    ),
    no(
        "requestheader-client-ca-file",
        Kind::Text,
        "identities from request headers are not taken here",
    ),
    no(
        "requestheader-extra-headers-prefix",
        Kind::TextList,
        "identities from request headers are not taken here",
    ),
    no(
        "requestheader-group-headers",
        Kind::TextList,
        "identities from request headers are not taken here",
    ),
    no(
        "requestheader-uid-headers",
        Kind::TextList,
        "identities from request headers are not taken here",
    ),
    no(
        "requestheader-username-headers",
        Kind::TextList,
        "identities from request headers are not taken here",
    ),
    of("resource-quota-sync-period", Kind::Duration, "resourcequota-controller"),
    of("root-ca-file", Kind::Text, "serviceaccount-controller"),
    no("route-reconciliation-period", Kind::Duration, "routes are not configured here"),
    of("service-account-private-key-file", Kind::Text, "serviceaccount-controller"),
    no("show-hidden-metrics-for-version", Kind::Text, "there are no hidden metrics"),
    no("tls-curve-preferences", Kind::TextList, "curves cannot be chosen"),
    no("tls-sni-cert-key", Kind::Text, "the secure port has one certificate"),
    no(
        "use-service-account-credentials",
        Kind::Bool,
        "there is one client for all controllers here",
    ),
];

/// Sections of `KubeControllerManagerConfiguration` that belong to controllers that do not run here.
pub(crate) static FOREIGN_SECTIONS: &[&str] = &[
    "AttachDetachController",
    "CSRSigningController",
    "CronJobController",
    "DaemonSetController",
    "DeploymentController",
    "DeprecatedController",
    "DeviceTaintEvictionController",
    "EndpointController",
    "EndpointSliceController",
    "EndpointSliceMirroringController",
    "EphemeralVolumeController",
    "GarbageCollectorController",
    "HPAController",
    "JobController",
    "LegacySATokenCleaner",
    "NamespaceController",
    "PersistentVolumeBinderController",
    "ReplicaSetController",
    "ReplicationController",
    "ResourceClaimController",
    "ResourceQuotaController",
    "SAController",
    "ServiceController",
    "StatefulSetController",
    "TTLAfterFinishedController",
    "ValidatingAdmissionPolicyStatusController",
];

/// Fields of the other sections that have no effect here, and why.
pub(crate) static UNUSED_FIELDS: &[(&str, &str)] = &[
    ("Generic.ClientConnection.acceptContentTypes", "the API server is spoken to in JSON"),
    ("Generic.ClientConnection.contentType", "the API server is spoken to in JSON"),
    ("Generic.ControllerStartInterval", "controllers start together"),
    ("Generic.Debugging", "there is no profiling port"),
    ("Generic.LeaderMigration", "the lease is our own, so nothing migrates"),
    ("Generic.LeaderMigrationEnabled", "the lease is our own, so nothing migrates"),
    ("Generic.MinResyncPeriod", "nothing is listed again without need"),
    ("Generic.Port", "upstream ignores it too; see --secure-port"),
    ("KubeCloudShared.AllowUntaggedCloud", "upstream ignores it too"),
    ("KubeCloudShared.ClusterName", "no cloud of ours needs a prefix"),
    ("KubeCloudShared.ConfigureCloudRoutes", "routes are not configured here"),
    ("KubeCloudShared.ExternalCloudVolumePlugin", "volumes are not handled here"),
    ("KubeCloudShared.NodeSyncPeriod", "upstream ignores it too"),
    ("KubeCloudShared.RouteReconciliationPeriod", "routes are not configured here"),
    (
        "KubeCloudShared.UseServiceAccountCredentials",
        "there is one client for all controllers here",
    ),
    (
        "NodeLifecycleController.PodEvictionTimeout",
        "upstream ignores it too: tolerations of the two NoExecute taints took its place",
    ),
];
