//! The tables: all fields of `KubeletConfiguration` v1beta1, in the order of the published type.
//!
//! A row mirrors the published Go type: a pointer is `explicit` (or `optional` when nothing ever
//! fills it), a plain value is `plain`, a plain value that is printed even when empty is `always`.
//! Defaults that depend on other fields or on feature gates are in `defaults`.

use super::DefaultRule::{self, Bool as YesNo, Float, Int, Text as Words, TextList, Zero};
use super::Kind::{
    Bool, Duration, DurationOrNanoseconds, Float as Fraction, Int32, Int64, List, Map, Object,
    Quantity, Text, Time, Uint32,
};
use super::{Field, Kind, Presence};

const fn plain(name: &'static str, kind: Kind, default: DefaultRule) -> Field {
    Field { name, kind, presence: Presence::ZeroIsAbsent, default }
}

/// Structs and durations have no empty form for `omitempty`, so they are printed even when zero.
const fn always(name: &'static str, kind: Kind, default: DefaultRule) -> Field {
    Field { name, kind, presence: Presence::Always, default }
}

const fn explicit(name: &'static str, kind: Kind, default: DefaultRule) -> Field {
    Field { name, kind, presence: Presence::Explicit, default }
}

const fn optional(name: &'static str, kind: Kind, default: DefaultRule) -> Field {
    Field { name, kind, presence: Presence::Optional, default }
}

const TEXTS: Kind = List(&Text);
const TEXT_MAP: Kind = Map(&Text);

pub const KUBELET_CONFIGURATION: &[Field] = &[
    explicit("enableServer", Bool, YesNo(true)),
    plain("staticPodPath", Text, Zero),
    plain("podLogsDir", Text, Words("/var/log/pods")),
    always("syncFrequency", Duration, Words("1m0s")),
    always("fileCheckFrequency", Duration, Words("20s")),
    always("httpCheckFrequency", Duration, Words("20s")),
    plain("staticPodURL", Text, Zero),
    plain("staticPodURLHeader", Map(&TEXTS), Zero),
    plain("address", Text, Words("0.0.0.0")),
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
    plain("healthzBindAddress", Text, Words("127.0.0.1")),
    explicit("oomScoreAdj", Int32, Int(-999)),
    plain("clusterDomain", Text, Zero),
    plain("clusterDNS", TEXTS, Zero),
    always("streamingConnectionIdleTimeout", Duration, Words("4h0m0s")),
    always("nodeStatusUpdateFrequency", Duration, Words("10s")),
    always("nodeStatusReportFrequency", Duration, Words("5m0s")),
    plain("nodeLeaseDurationSeconds", Int32, Int(40)),
    always("imageMinimumGCAge", Duration, Words("2m0s")),
    always("imageMaximumGCAge", Duration, Zero),
    explicit("imageGCHighThresholdPercent", Int32, Int(85)),
    explicit("imageGCLowThresholdPercent", Int32, Int(80)),
    always("volumeStatsAggPeriod", Duration, Words("1m0s")),
    plain("kubeletCgroups", Text, Zero),
    plain("systemCgroups", Text, Zero),
    plain("cgroupRoot", Text, Zero),
    explicit("cgroupsPerQOS", Bool, YesNo(true)),
    plain("cgroupDriver", Text, Words("cgroupfs")),
    plain("cpuManagerPolicy", Text, Words("none")),
    optional("singleProcessOOMKill", Bool, Zero),
    plain("cpuManagerPolicyOptions", TEXT_MAP, Zero),
    always("cpuManagerReconcilePeriod", Duration, Words("10s")),
    plain("memoryManagerPolicy", Text, Words("None")),
    plain("topologyManagerPolicy", Text, Words("none")),
    plain("topologyManagerScope", Text, Words("container")),
    plain("topologyManagerPolicyOptions", TEXT_MAP, Zero),
    plain("qosReserved", TEXT_MAP, Zero),
    always("runtimeRequestTimeout", Duration, Words("2m0s")),
    plain("hairpinMode", Text, Words("promiscuous-bridge")),
    plain("maxPods", Int32, Int(110)),
    plain("podCIDR", Text, Zero),
    explicit("podPidsLimit", Int64, Int(-1)),
    explicit("resolvConf", Text, Words("/etc/resolv.conf")),
    plain("runOnce", Bool, Zero),
    explicit("cpuCFSQuota", Bool, YesNo(true)),
    explicit("cpuCFSQuotaPeriod", Duration, Words("100ms")),
    explicit("nodeStatusMaxImages", Int32, Int(50)),
    plain("maxOpenFiles", Int64, Int(1_000_000)),
    plain("contentType", Text, Words("application/vnd.kubernetes.protobuf")),
    explicit("kubeAPIQPS", Int32, Int(50)),
    plain("kubeAPIBurst", Int32, Int(100)),
    explicit("serializeImagePulls", Bool, YesNo(true)),
    optional("maxParallelImagePulls", Int32, Zero),
    plain("evictionHard", TEXT_MAP, Zero),
    plain("evictionSoft", TEXT_MAP, Zero),
    plain("evictionSoftGracePeriod", TEXT_MAP, Zero),
    always("evictionPressureTransitionPeriod", Duration, Words("5m0s")),
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
    plain("containerLogMaxSize", Text, Words("10Mi")),
    explicit("containerLogMaxFiles", Int32, Int(5)),
    explicit("containerLogMaxWorkers", Int32, Int(1)),
    explicit("containerLogMonitorInterval", Duration, Words("10s")),
    plain("configMapAndSecretChangeDetectionStrategy", Text, Words("Watch")),
    plain("systemReserved", TEXT_MAP, Zero),
    plain("kubeReserved", TEXT_MAP, Zero),
    plain("reservedSystemCPUs", Text, Zero),
    plain("showHiddenMetricsForVersion", Text, Zero),
    plain("systemReservedCgroup", Text, Zero),
    plain("kubeReservedCgroup", Text, Zero),
    plain("enforceNodeAllocatable", TEXTS, TextList(&["pods"])),
    plain("allowedUnsafeSysctls", TEXTS, Zero),
    plain("volumePluginDir", Text, Words("/usr/libexec/kubernetes/kubelet-plugins/volume/exec/")),
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
    plain("memoryReservationPolicy", Text, Words("None")),
    plain("registerWithTaints", List(&Object(TAINT)), Zero),
    explicit("registerNode", Bool, YesNo(true)),
    optional("tracing", Object(TRACING), Zero),
    explicit("localStorageCapacityIsolation", Bool, YesNo(true)),
    always("containerRuntimeEndpoint", Text, Words("unix:///run/containerd/containerd.sock")),
    plain("imageServiceEndpoint", Text, Zero),
    explicit("failCgroupV1", Bool, YesNo(true)),
    optional("userNamespaces", Object(&[optional("idsPerPod", Int64, Zero)]), Zero),
];

const AUTHENTICATION: &[Field] = &[
    always("x509", Object(&[plain("clientCAFile", Text, Zero)]), Zero),
    always(
        "webhook",
        Object(&[
            explicit("enabled", Bool, YesNo(true)),
            always("cacheTTL", Duration, Words("2m0s")),
        ]),
        Zero,
    ),
    always("anonymous", Object(&[explicit("enabled", Bool, YesNo(false))]), Zero),
];

const AUTHORIZATION: &[Field] = &[
    plain("mode", Text, Words("Webhook")),
    always(
        "webhook",
        Object(&[
            always("cacheAuthorizedTTL", Duration, Words("5m0s")),
            always("cacheUnauthorizedTTL", Duration, Words("30s")),
        ]),
        Zero,
    ),
];

const LOGGING: &[Field] = &[
    plain("format", Text, Words("text")),
    always("flushFrequency", DurationOrNanoseconds, Words("5s")),
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

const MODULE_VERBOSITY: &[Field] =
    &[always("filePattern", Text, Zero), always("verbosity", Uint32, Zero)];

const OUTPUT_ROUTING: &[Field] =
    &[plain("splitStream", Bool, Zero), always("infoBufferSize", Quantity, Zero)];

const PRIORITY_GRACE_PERIOD: &[Field] =
    &[always("priority", Int32, Zero), always("shutdownGracePeriodSeconds", Int64, Zero)];

const MEMORY_RESERVATION: &[Field] =
    &[always("numaNode", Int32, Zero), always("limits", Map(&Quantity), Zero)];

const TAINT: &[Field] = &[
    always("key", Text, Zero),
    plain("value", Text, Zero),
    always("effect", Text, Zero),
    optional("timeAdded", Time, Zero),
];

const TRACING: &[Field] =
    &[optional("endpoint", Text, Zero), optional("samplingRatePerMillion", Int32, Zero)];
