//! The table: which field a running agent applies, and why or why not.
//!
//! The rule it keeps: rows are grouped by reason, a path is in one row only, and the longest path
//! that covers a field applies, so that one part of an object can differ from the rest.

use super::ChangeEffect::{self, Live, Restart};

const ROWS: &[(ChangeEffect, &[&str])] = &[
    (
        Live("the next round waits by the new period"),
        &[
            "containerLogMonitorInterval",
            "cpuManagerReconcilePeriod",
            "fileCheckFrequency",
            "httpCheckFrequency",
            "logging.flushFrequency",
            "nodeStatusReportFrequency",
            "nodeStatusUpdateFrequency",
            "syncFrequency",
            "volumeStatsAggPeriod",
        ],
    ),
    (Live("log lines are judged one by one"), &["logging.verbosity", "logging.vmodule"]),
    (
        Live("images are collected and pulled by the policy of the moment"),
        &[
            "imageGCHighThresholdPercent",
            "imageGCLowThresholdPercent",
            "imageMaximumGCAge",
            "imageMinimumGCAge",
            "imagePullCredentialsVerificationPolicy",
            "maxParallelImagePulls",
            "preloadedImagesVerificationAllowlist",
            "serializeImagePulls",
        ],
    ),
    (
        Live("each round of eviction reads its thresholds"),
        &[
            "evictionHard",
            "evictionMaxPodGracePeriod",
            "evictionMinimumReclaim",
            "evictionPressureTransitionPeriod",
            "evictionSoft",
            "evictionSoftGracePeriod",
            "mergeDefaultEvictionSettings",
        ],
    ),
    (
        Live("a rate limiter takes new numbers while it runs"),
        &[
            "eventBurst",
            "eventRecordQPS",
            "kubeAPIBurst",
            "kubeAPIQPS",
            "registryBurst",
            "registryPullQPS",
        ],
    ),
    (Live("the next wait is capped by it"), &["crashLoopBackOff"]),
    (Live("the next call has the new deadline"), &["runtimeRequestTimeout"]),
    (
        Live("log files are judged at every look"),
        &["containerLogMaxFiles", "containerLogMaxSize", "containerLogMaxWorkers"],
    ),
    (Live("the next report is made by it"), &["nodeLeaseDurationSeconds", "nodeStatusMaxImages"]),
    (Live("the next stream is opened with it"), &["streamingConnectionIdleTimeout"]),
    (
        Live("pods that start from now on get it"),
        &[
            "allowedUnsafeSysctls",
            "clusterDNS",
            "clusterDomain",
            "podPidsLimit",
            "resolvConf",
            "seccompDefault",
        ],
    ),
    (
        Restart("the server's sockets are open"),
        &[
            "address",
            "enableServer",
            "healthzBindAddress",
            "healthzPort",
            "port",
            "readOnlyPort",
            "tlsCertFile",
            "tlsCipherSuites",
            "tlsCurvePreferences",
            "tlsMinVersion",
            "tlsPrivateKeyFile",
        ],
    ),
    (
        Restart("the server's routes were made when it opened"),
        &[
            "enableContentionProfiling",
            "enableDebugFlagsHandler",
            "enableDebuggingHandlers",
            "enableProfilingHandler",
            "enableSystemLogHandler",
            "enableSystemLogQuery",
            "showHiddenMetricsForVersion",
        ],
    ),
    (
        Restart("open connections were let in by the old rules"),
        &["authentication", "authorization"],
    ),
    (
        Restart("clients and certificates of the API server are made once"),
        &["contentType", "rotateCertificates", "serverTLSBootstrap"],
    ),
    (
        Restart("pods of a source that goes away would look deleted"),
        &["staticPodPath", "staticPodURL", "staticPodURLHeader"],
    ),
    (Restart("running containers write to the old directory"), &["podLogsDir"]),
    (
        Restart("the connection to the runtime is open"),
        &["containerRuntimeEndpoint", "imageServiceEndpoint"],
    ),
    (
        Restart("the cgroups of running pods hang below it"),
        &["cgroupDriver", "cgroupRoot", "cgroupsPerQOS", "kubeletCgroups", "systemCgroups"],
    ),
    (
        Restart("the node's allocatable amounts and their cgroups are set up once"),
        &[
            "enforceNodeAllocatable",
            "kubeReserved",
            "kubeReservedCgroup",
            "qosReserved",
            "reservedSystemCPUs",
            "systemReserved",
            "systemReservedCgroup",
        ],
    ),
    (
        Restart("running pods hold what the old policy gave them"),
        &[
            "cpuManagerPolicy",
            "cpuManagerPolicyOptions",
            "memoryManagerPolicy",
            "reservedMemory",
            "topologyManagerPolicy",
            "topologyManagerPolicyOptions",
            "topologyManagerScope",
        ],
    ),
    (
        Restart("running containers got their limits by it"),
        &[
            "cpuCFSQuota",
            "cpuCFSQuotaPeriod",
            "memoryReservationPolicy",
            "memorySwap",
            "memoryThrottlingFactor",
            "singleProcessOOMKill",
        ],
    ),
    (
        Restart("id ranges of user namespaces were cut by it"),
        &["maxPods", "podsPerCore", "userNamespaces"],
    ),
    (Restart("the runtime was told the old range"), &["podCIDR"]),
    (Restart("the node registers once"), &["providerID", "registerNode", "registerWithTaints"]),
    (
        Restart("mounted volumes belong to the old arrangement"),
        &["enableControllerAttachDetach", "localStorageCapacityIsolation", "volumePluginDir"],
    ),
    (
        Restart("the machine is judged and prepared once"),
        &[
            "failCgroupV1",
            "failSwapOn",
            "hairpinMode",
            "iptablesDropBit",
            "iptablesMasqueradeBit",
            "kernelMemcgNotification",
            "makeIPTablesUtilChains",
            "maxOpenFiles",
            "oomScoreAdj",
            "protectKernelDefaults",
        ],
    ),
    (Restart("watches of the old kind are open"), &["configMapAndSecretChangeDetectionStrategy"]),
    (
        Restart("the lock that delays a shutdown was taken for the old periods"),
        &[
            "shutdownGracePeriod",
            "shutdownGracePeriodByPodPriority",
            "shutdownGracePeriodCriticalPods",
        ],
    ),
    (Restart("parts of the agent are chosen by it"), &["featureGates", "runOnce"]),
    (Restart("the streams of logs and traces are open"), &["logging", "tracing"]),
];

/// The effect of a change at this field path. A field that is not in the table needs a restart.
pub fn change_effect(path: &str) -> ChangeEffect {
    rows()
        .filter(|(row, _)| covers(row, path))
        .max_by_key(|(row, _)| row.len())
        .map_or(Restart("nobody has judged this field"), |(_, answer)| answer)
}

/// Every path of the table with its effect.
pub(super) fn rows() -> impl Iterator<Item = (&'static str, ChangeEffect)> {
    ROWS.iter().flat_map(|(answer, paths)| paths.iter().map(|path| (*path, *answer)))
}

fn covers(row: &str, path: &str) -> bool {
    path.strip_prefix(row).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}
