//! Flags and sections of kube-controller-manager that have no effect here, and why.
//!
//! The rule it keeps: they are accepted, checked for their form, and warned about, so that a unit
//! file written for kube-controller-manager works. Rows only, in the order of names.

use node_config::flags::FlagKind;

use super::{ControllerFlag, SettingField, UnusedReason};

const fn of(name: &'static str, kind: FlagKind, controller: &'static str) -> ControllerFlag {
    let field = SettingField::Unused(kind, UnusedReason::Controller(controller));
    ControllerFlag { name, field, path: "", default: "", help: "" }
}

const fn no(name: &'static str, kind: FlagKind, because: &'static str) -> ControllerFlag {
    let field = SettingField::Unused(kind, UnusedReason::Because(because));
    ControllerFlag { name, field, path: "", default: "", help: "" }
}

pub(super) static IN_KUBE_CONTROLLER_MANAGER: &[ControllerFlag] = &[
    no("allow-metric-labels", FlagKind::Pairs, "labels are not limited by lists here"),
    no("allow-metric-labels-manifest", FlagKind::Text, "labels are not limited by lists here"),
    no("allow-untagged-cloud", FlagKind::Bool, "upstream ignores it too"),
    of(
        "attach-detach-reconcile-sync-period",
        FlagKind::Duration,
        "persistentvolume-attach-detach-controller",
    ),
    no(
        "authentication-tolerate-lookup-failure",
        FlagKind::Bool,
        "such a failure never stops this program: it retries, and admits no client meanwhile",
    ),
    no("cluster-name", FlagKind::Text, "no cloud of ours needs a prefix"),
    of("cluster-signing-cert-file", FlagKind::Text, "certificatesigningrequest-signing-controller"),
    of(
        "cluster-signing-duration",
        FlagKind::Duration,
        "certificatesigningrequest-signing-controller",
    ),
    of("cluster-signing-key-file", FlagKind::Text, "certificatesigningrequest-signing-controller"),
    of(
        "cluster-signing-kube-apiserver-client-cert-file",
        FlagKind::Text,
        "certificatesigningrequest-signing-controller",
    ),
    of(
        "cluster-signing-kube-apiserver-client-key-file",
        FlagKind::Text,
        "certificatesigningrequest-signing-controller",
    ),
    of(
        "cluster-signing-kubelet-client-cert-file",
        FlagKind::Text,
        "certificatesigningrequest-signing-controller",
    ),
    of(
        "cluster-signing-kubelet-client-key-file",
        FlagKind::Text,
        "certificatesigningrequest-signing-controller",
    ),
    of(
        "cluster-signing-kubelet-serving-cert-file",
        FlagKind::Text,
        "certificatesigningrequest-signing-controller",
    ),
    of(
        "cluster-signing-kubelet-serving-key-file",
        FlagKind::Text,
        "certificatesigningrequest-signing-controller",
    ),
    of(
        "cluster-signing-legacy-unknown-cert-file",
        FlagKind::Text,
        "certificatesigningrequest-signing-controller",
    ),
    of(
        "cluster-signing-legacy-unknown-key-file",
        FlagKind::Text,
        "certificatesigningrequest-signing-controller",
    ),
    of("concurrent-cron-job-syncs", FlagKind::Int32, "cronjob-controller"),
    of("concurrent-daemonset-syncs", FlagKind::Int32, "daemonset-controller"),
    of("concurrent-deployment-syncs", FlagKind::Int32, "deployment-controller"),
    of(
        "concurrent-device-taint-eviction-syncs",
        FlagKind::Int32,
        "device-taint-eviction-controller",
    ),
    of("concurrent-endpoint-syncs", FlagKind::Int32, "endpoints-controller"),
    of("concurrent-ephemeralvolume-syncs", FlagKind::Int32, "ephemeral-volume-controller"),
    of("concurrent-gc-syncs", FlagKind::Int32, "garbage-collector-controller"),
    of(
        "concurrent-horizontal-pod-autoscaler-syncs",
        FlagKind::Int32,
        "horizontal-pod-autoscaler-controller",
    ),
    of("concurrent-job-syncs", FlagKind::Int32, "job-controller"),
    of("concurrent-namespace-syncs", FlagKind::Int32, "namespace-controller"),
    of("concurrent-rc-syncs", FlagKind::Int32, "replicationcontroller-controller"),
    of("concurrent-replicaset-syncs", FlagKind::Int32, "replicaset-controller"),
    of("concurrent-resource-quota-syncs", FlagKind::Int32, "resourcequota-controller"),
    of("concurrent-resourceclaim-syncs", FlagKind::Int32, "resourceclaim-controller"),
    of("concurrent-service-endpoint-syncs", FlagKind::Int32, "endpointslice-controller"),
    of("concurrent-service-syncs", FlagKind::Int32, "service-lb-controller"),
    of("concurrent-serviceaccount-token-syncs", FlagKind::Int32, "serviceaccount-controller"),
    of("concurrent-statefulset-syncs", FlagKind::Int32, "statefulset-controller"),
    of("concurrent-ttl-after-finished-syncs", FlagKind::Int32, "ttl-after-finished-controller"),
    of(
        "concurrent-validating-admission-policy-status-syncs",
        FlagKind::Int32,
        "validatingadmissionpolicy-status-controller",
    ),
    no("configure-cloud-routes", FlagKind::Bool, "routes are not configured here"),
    no("contention-profiling", FlagKind::Bool, "there is no profiling port"),
    no("controller-start-interval", FlagKind::Duration, "controllers start together"),
    of(
        "disable-attach-detach-reconcile-sync",
        FlagKind::Bool,
        "persistentvolume-attach-detach-controller",
    ),
    of(
        "disable-force-detach-on-timeout",
        FlagKind::Bool,
        "persistentvolume-attach-detach-controller",
    ),
    no("disable-http2-serving", FlagKind::Bool, "the secure port speaks HTTP/1.1 only"),
    no("disabled-metrics", FlagKind::TextList, "metrics cannot be turned off one by one"),
    no("emulated-version", FlagKind::TextList, "no other version is emulated"),
    of("enable-dynamic-provisioning", FlagKind::Bool, "persistentvolume-binder-controller"),
    of("enable-garbage-collector", FlagKind::Bool, "garbage-collector-controller"),
    of("enable-hostpath-provisioner", FlagKind::Bool, "persistentvolume-binder-controller"),
    no("enable-leader-migration", FlagKind::Bool, "the lease is our own, so nothing migrates"),
    of("endpoint-updates-batch-period", FlagKind::Duration, "endpoints-controller"),
    of("endpointslice-updates-batch-period", FlagKind::Duration, "endpointslice-controller"),
    no("external-cloud-volume-plugin", FlagKind::Text, "volumes are not handled here"),
    of("flex-volume-plugin-dir", FlagKind::Text, "persistentvolume-binder-controller"),
    of(
        "horizontal-pod-autoscaler-cpu-initialization-period",
        FlagKind::Duration,
        "horizontal-pod-autoscaler-controller",
    ),
    of(
        "horizontal-pod-autoscaler-downscale-stabilization",
        FlagKind::Duration,
        "horizontal-pod-autoscaler-controller",
    ),
    of(
        "horizontal-pod-autoscaler-initial-readiness-delay",
        FlagKind::Duration,
        "horizontal-pod-autoscaler-controller",
    ),
    of(
        "horizontal-pod-autoscaler-sync-period",
        FlagKind::Duration,
        "horizontal-pod-autoscaler-controller",
    ),
    of(
        "horizontal-pod-autoscaler-tolerance",
        FlagKind::Float,
        "horizontal-pod-autoscaler-controller",
    ),
    no("http2-max-streams-per-connection", FlagKind::Int, "the secure port speaks HTTP/1.1 only"),
    no("kube-api-content-type", FlagKind::Text, "the API server is spoken to in JSON"),
    no("leader-migration-config", FlagKind::Text, "the lease is our own, so nothing migrates"),
    of(
        "legacy-service-account-token-clean-up-period",
        FlagKind::Duration,
        "legacy-serviceaccount-token-cleaner-controller",
    ),
    no("log-flush-frequency", FlagKind::Duration, "every line is written at once"),
    no("log-json-info-buffer-size", FlagKind::Quantity, "every line is written at once"),
    no("log-text-info-buffer-size", FlagKind::Quantity, "every line is written at once"),
    of("max-endpoints-per-slice", FlagKind::Int32, "endpointslice-controller"),
    no("min-compatibility-version", FlagKind::TextList, "no other version is emulated"),
    no("min-resync-period", FlagKind::Duration, "nothing is listed again without need"),
    of(
        "mirroring-concurrent-service-endpoint-syncs",
        FlagKind::Int32,
        "endpointslice-mirroring-controller",
    ),
    of(
        "mirroring-endpointslice-updates-batch-period",
        FlagKind::Duration,
        "endpointslice-mirroring-controller",
    ),
    of("mirroring-max-endpoints-per-subset", FlagKind::Int32, "endpointslice-mirroring-controller"),
    of("namespace-sync-period", FlagKind::Duration, "namespace-controller"),
    no("node-sync-period", FlagKind::Duration, "upstream ignores it too"),
    no("permit-address-sharing", FlagKind::Bool, "the port is not shared"),
    no("permit-port-sharing", FlagKind::Bool, "the port is not shared"),
    no("profiling", FlagKind::Bool, "there is no profiling port"),
    of("pv-recycler-increment-timeout-nfs", FlagKind::Int32, "persistentvolume-binder-controller"),
    of(
        "pv-recycler-minimum-timeout-hostpath",
        FlagKind::Int32,
        "persistentvolume-binder-controller",
    ),
    of("pv-recycler-minimum-timeout-nfs", FlagKind::Int32, "persistentvolume-binder-controller"),
    of(
        "pv-recycler-pod-template-filepath-hostpath",
        FlagKind::Text,
        "persistentvolume-binder-controller",
    ),
    of(
        "pv-recycler-pod-template-filepath-nfs",
        FlagKind::Text,
        "persistentvolume-binder-controller",
    ),
    of(
        "pv-recycler-timeout-increment-hostpath",
        FlagKind::Int32,
        "persistentvolume-binder-controller",
    ),
    of("pvclaimbinder-sync-period", FlagKind::Duration, "persistentvolume-binder-controller"),
    no(
        "requestheader-allowed-names",
        FlagKind::TextList,
        "identities from request headers are not taken here",
    ),
    no(
        "requestheader-client-ca-file",
        FlagKind::Text,
        "identities from request headers are not taken here",
    ),
    no(
        "requestheader-extra-headers-prefix",
        FlagKind::TextList,
        "identities from request headers are not taken here",
    ),
    no(
        "requestheader-group-headers",
        FlagKind::TextList,
        "identities from request headers are not taken here",
    ),
    no(
        "requestheader-uid-headers",
        FlagKind::TextList,
        "identities from request headers are not taken here",
    ),
    no(
        "requestheader-username-headers",
        FlagKind::TextList,
        "identities from request headers are not taken here",
    ),
    of("resource-quota-sync-period", FlagKind::Duration, "resourcequota-controller"),
    of("root-ca-file", FlagKind::Text, "serviceaccount-controller"),
    no("route-reconciliation-period", FlagKind::Duration, "routes are not configured here"),
    of("service-account-private-key-file", FlagKind::Text, "serviceaccount-controller"),
    no("show-hidden-metrics-for-version", FlagKind::Text, "there are no hidden metrics"),
    no("tls-curve-preferences", FlagKind::TextList, "curves cannot be chosen"),
    no("tls-sni-cert-key", FlagKind::Text, "the secure port has one certificate"),
    no(
        "use-service-account-credentials",
        FlagKind::Bool,
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
