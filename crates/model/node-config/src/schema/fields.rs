//! The tables: all fields of `KubeletConfiguration` v1beta1, in the order of the published type.
//!
//! A row mirrors the published Go type: a pointer is `explicit` (or `optional` when nothing ever
//! fills it), a plain value is `plain`, a plain value that is printed even when empty is `always`.
//! Defaults that depend on other fields or on feature gates are in `defaults`.

use super::DefaultRule::{self, Bool as YesNo, Float, Int, Text as TextDefault, TextList, Zero};
use super::FieldKind::{
    Bool, Duration, DurationOrNanoseconds, Float as Fraction, Int32, Int64, List, Map, Object,
    Quantity, Text, Time, Uint32,
};
use super::{FieldKind, Presence, SchemaField};

const fn plain(name: &'static str, kind: FieldKind, default: DefaultRule) -> SchemaField {
    SchemaField { name, kind, presence: Presence::ZeroIsAbsent, default }
}

/// Structs and durations have no empty form for `omitempty`, so they are printed even when zero.
const fn always(name: &'static str, kind: FieldKind, default: DefaultRule) -> SchemaField {
    SchemaField { name, kind, presence: Presence::Always, default }
}

const fn explicit(name: &'static str, kind: FieldKind, default: DefaultRule) -> SchemaField {
    SchemaField { name, kind, presence: Presence::Explicit, default }
}

const fn optional(name: &'static str, kind: FieldKind, default: DefaultRule) -> SchemaField {
    SchemaField { name, kind, presence: Presence::Optional, default }
}

const TEXTS: FieldKind = List(&Text);
const TEXT_MAP: FieldKind = Map(&Text);

pub const KUBELET_CONFIGURATION: &[SchemaField] = &[
    explicit("enableServer", Bool, YesNo(true)),
    plain("staticPodPath", Text, Zero),
    plain("podLogsDir", Text, TextDefault("/var/log/pods")),
    always("syncFrequency", Duration, TextDefault("1m0s")),
    always("fileCheckFrequency", Duration, TextDefault("20s")),
    always("httpCheckFrequency", Duration, TextDefault("20s")),
    plain("staticPodURL", Text, Zero),
    plain("staticPodURLHeader", Map(&TEXTS), Zero),
    plain("address", Text, TextDefault("0.0.0.0")),
    plain("port", Int32, Int(10250)),
    plain("readOnlyPort", Int32, Zero),
    plain("tlsCertFile", Text, Zero),
    plain("tlsPrivateKeyFile", Text, Zero),
    plain("tlsCipherSuites", TEXTS, Zero),
    plain("tlsCurvePreferences", List(&Int32), Zero),
    plain("tlsMinVersion", Text, Zero),
    plain("rotateCertificates", Bool, Zero),
    plain("serverTLSBootstrap", Bool, Zero),
    always("authentication", Object(AUTHENTICATION), Zero),
    always("authorization", Object(AUTHORIZATION), Zero),
    explicit("registryPullQPS", Int32, Int(5)),
    plain("registryBurst", Int32, Int(10)),
    plain("imagePullCredentialsVerificationPolicy", Text, Zero),
    plain("preloadedImagesVerificationAllowlist", TEXTS, Zero),
    explicit("eventRecordQPS", Int32, Int(50)),
    plain("eventBurst", Int32, Int(100)),
    explicit("enableDebuggingHandlers", Bool, YesNo(true)),
    plain("enableContentionProfiling", Bool, Zero),
    explicit("healthzPort", Int32, Int(10248)),
    plain("healthzBindAddress", Text, TextDefault("127.0.0.1")),
    explicit("oomScoreAdj", Int32, Int(-999)),
    plain("clusterDomain", Text, Zero),
    plain("clusterDNS", TEXTS, Zero),
    always("streamingConnectionIdleTimeout", Duration, TextDefault("4h0m0s")),
    always("nodeStatusUpdateFrequency", Duration, TextDefault("10s")),
    always("nodeStatusReportFrequency", Duration, TextDefault("5m0s")),
    plain("nodeLeaseDurationSeconds", Int32, Int(40)),
    always("imageMinimumGCAge", Duration, TextDefault("2m0s")),
    always("imageMaximumGCAge", Duration, Zero),
    explicit("imageGCHighThresholdPercent", Int32, Int(85)),
    explicit("imageGCLowThresholdPercent", Int32, Int(80)),
    always("volumeStatsAggPeriod", Duration, TextDefault("1m0s")),
    plain("kubeletCgroups", Text, Zero),
    plain("systemCgroups", Text, Zero),
    plain("cgroupRoot", Text, Zero),
    explicit("cgroupsPerQOS", Bool, YesNo(true)),
    plain("cgroupDriver", Text, TextDefault("cgroupfs")),
    plain("cpuManagerPolicy", Text, TextDefault("none")),
    optional("singleProcessOOMKill", Bool, Zero),
    plain("cpuManagerPolicyOptions", TEXT_MAP, Zero),
    always("cpuManagerReconcilePeriod", Duration, TextDefault("10s")),
    plain("memoryManagerPolicy", Text, TextDefault("None")),
    plain("topologyManagerPolicy", Text, TextDefault("none")),
    plain("topologyManagerScope", Text, TextDefault("container")),
    plain("topologyManagerPolicyOptions", TEXT_MAP, Zero),
    plain("qosReserved", TEXT_MAP, Zero),
    always("runtimeRequestTimeout", Duration, TextDefault("2m0s")),
    plain("hairpinMode", Text, TextDefault("promiscuous-bridge")),
    plain("maxPods", Int32, Int(110)),
    plain("podCIDR", Text, Zero),
    explicit("podPidsLimit", Int64, Int(-1)),
    explicit("resolvConf", Text, TextDefault("/etc/resolv.conf")),
    plain("runOnce", Bool, Zero),
    explicit("cpuCFSQuota", Bool, YesNo(true)),
    explicit("cpuCFSQuotaPeriod", Duration, TextDefault("100ms")),
    explicit("nodeStatusMaxImages", Int32, Int(50)),
    plain("maxOpenFiles", Int64, Int(1_000_000)),
    plain("contentType", Text, TextDefault("application/vnd.kubernetes.protobuf")),
    explicit("kubeAPIQPS", Int32, Int(50)),
    plain("kubeAPIBurst", Int32, Int(100)),
    explicit("serializeImagePulls", Bool, YesNo(true)),
    optional("maxParallelImagePulls", Int32, Zero),
    plain("evictionHard", TEXT_MAP, Zero),
    plain("evictionSoft", TEXT_MAP, Zero),
    plain("evictionSoftGracePeriod", TEXT_MAP, Zero),
    always("evictionPressureTransitionPeriod", Duration, TextDefault("5m0s")),
    plain("evictionMaxPodGracePeriod", Int32, Zero),
    plain("evictionMinimumReclaim", TEXT_MAP, Zero),
    explicit("mergeDefaultEvictionSettings", Bool, YesNo(false)),
    plain("podsPerCore", Int32, Zero),
    explicit("enableControllerAttachDetach", Bool, YesNo(true)),
    plain("protectKernelDefaults", Bool, Zero),
    explicit("makeIPTablesUtilChains", Bool, YesNo(true)),
    explicit("iptablesMasqueradeBit", Int32, Int(14)),
    explicit("iptablesDropBit", Int32, Int(15)),
    plain("featureGates", Map(&Bool), Zero),
    explicit("failSwapOn", Bool, YesNo(true)),
    always("memorySwap", Object(&[plain("swapBehavior", Text, Zero)]), Zero),
    plain("containerLogMaxSize", Text, TextDefault("10Mi")),
    explicit("containerLogMaxFiles", Int32, Int(5)),
    explicit("containerLogMaxWorkers", Int32, Int(1)),
    explicit("containerLogMonitorInterval", Duration, TextDefault("10s")),
    plain("configMapAndSecretChangeDetectionStrategy", Text, TextDefault("Watch")),
    plain("systemReserved", TEXT_MAP, Zero),
    plain("kubeReserved", TEXT_MAP, Zero),
    plain("reservedSystemCPUs", Text, Zero),
    plain("showHiddenMetricsForVersion", Text, Zero),
    plain("systemReservedCgroup", Text, Zero),
    plain("kubeReservedCgroup", Text, Zero),
    plain("enforceNodeAllocatable", TEXTS, TextList(&["pods"])),
    plain("allowedUnsafeSysctls", TEXTS, Zero),
    plain(
        "volumePluginDir",
        Text,
        TextDefault("/usr/libexec/kubernetes/kubelet-plugins/volume/exec/"),
    ),
    plain("providerID", Text, Zero),
    plain("kernelMemcgNotification", Bool, Zero),
    always("logging", Object(LOGGING), Zero),
    explicit("enableSystemLogHandler", Bool, YesNo(true)),
    explicit("enableSystemLogQuery", Bool, Zero),
    always("shutdownGracePeriod", Duration, Zero),
    always("shutdownGracePeriodCriticalPods", Duration, Zero),
    plain("shutdownGracePeriodByPodPriority", List(&Object(PRIORITY_GRACE_PERIOD)), Zero),
    always(
        "crashLoopBackOff",
        Object(&[optional("maxContainerRestartPeriod", Duration, Zero)]),
        Zero,
    ),
    plain("reservedMemory", List(&Object(MEMORY_RESERVATION)), Zero),
    explicit("enableProfilingHandler", Bool, YesNo(true)),
    explicit("enableDebugFlagsHandler", Bool, YesNo(true)),
    explicit("seccompDefault", Bool, YesNo(false)),
    optional("memoryThrottlingFactor", Fraction, Float(0.9)),
    plain("memoryReservationPolicy", Text, TextDefault("None")),
    plain("registerWithTaints", List(&Object(TAINT)), Zero),
    explicit("registerNode", Bool, YesNo(true)),
    optional("tracing", Object(TRACING), Zero),
    explicit("localStorageCapacityIsolation", Bool, YesNo(true)),
    always("containerRuntimeEndpoint", Text, TextDefault("unix:///run/containerd/containerd.sock")),
    plain("imageServiceEndpoint", Text, Zero),
    explicit("failCgroupV1", Bool, YesNo(true)),
    optional("userNamespaces", Object(&[optional("idsPerPod", Int64, Zero)]), Zero),
];

const AUTHENTICATION: &[SchemaField] = &[
    always("x509", Object(&[plain("clientCAFile", Text, Zero)]), Zero),
    always(
        "webhook",
        Object(&[
            explicit("enabled", Bool, YesNo(true)),
            always("cacheTTL", Duration, TextDefault("2m0s")),
        ]),
        Zero,
    ),
    always("anonymous", Object(&[explicit("enabled", Bool, YesNo(false))]), Zero),
];

const AUTHORIZATION: &[SchemaField] = &[
    plain("mode", Text, TextDefault("Webhook")),
    always(
        "webhook",
        Object(&[
            always("cacheAuthorizedTTL", Duration, TextDefault("5m0s")),
            always("cacheUnauthorizedTTL", Duration, TextDefault("30s")),
        ]),
        Zero,
    ),
];

const LOGGING: &[SchemaField] = &[
    plain("format", Text, TextDefault("text")),
    always("flushFrequency", DurationOrNanoseconds, TextDefault("5s")),
    always("verbosity", Uint32, Zero),
    plain("vmodule", List(&Object(MODULE_VERBOSITY)), Zero),
    always(
        "options",
        Object(&[
            always("text", Object(OUTPUT_ROUTING), Zero),
            always("json", Object(OUTPUT_ROUTING), Zero),
        ]),
        Zero,
    ),
];

const MODULE_VERBOSITY: &[SchemaField] =
    &[always("filePattern", Text, Zero), always("verbosity", Uint32, Zero)];

const OUTPUT_ROUTING: &[SchemaField] =
    &[plain("splitStream", Bool, Zero), always("infoBufferSize", Quantity, Zero)];

const PRIORITY_GRACE_PERIOD: &[SchemaField] =
    &[always("priority", Int32, Zero), always("shutdownGracePeriodSeconds", Int64, Zero)];

const MEMORY_RESERVATION: &[SchemaField] =
    &[always("numaNode", Int32, Zero), always("limits", Map(&Quantity), Zero)];

const TAINT: &[SchemaField] = &[
    always("key", Text, Zero),
    plain("value", Text, Zero),
    always("effect", Text, Zero),
    optional("timeAdded", Time, Zero),
];

const TRACING: &[SchemaField] =
    &[optional("endpoint", Text, Zero), optional("samplingRatePerMillion", Int32, Zero)];
