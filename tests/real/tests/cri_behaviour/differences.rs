//! Cases that a runtime fails, and why that is accepted.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CriImplementation {
    Containerd,
    Keelson,
}

/// A runtime, a case, its error there, and why that is accepted.
type Difference = (CriImplementation, &'static str, &'static str, &'static str);

/// A server's error for a call that its API does not have.
const UNKNOWN_CALL: &str = "unknown method Stream";
const OLDER: &str = "lists in parts came with the API of v1.36, after containerd 2.2";

const DIFFERENCES: &[Difference] = &[
    (
        CriImplementation::Containerd,
        "sandbox_resources_can_be_updated",
        "not implemented yet",
        "the v1.36 API has the call, containerd 2.2 has not",
    ),
    (
        CriImplementation::Containerd,
        "exec_at_its_limit_kills_the_whole_tree",
        "not done after",
        "containerd kills the command's first process and then waits for whoever holds its output",
    ),
    (
        CriImplementation::Containerd,
        "container_stop_sends_a_real_time_signal",
        "exit_code: 137",
        "containerd 2.2 says that it sends SIGTERM where the configuration names a real-time signal",
    ),
    (
        CriImplementation::Containerd,
        "checkpoint_is_not_implemented",
        "CRIU binary not found",
        "containerd has checkpoints by CRIU, a program that no bed has; the embedded runtime has none",
    ),
    (
        CriImplementation::Containerd,
        "device_of_the_machine_is_not_changed_by_a_command",
        "and is 20640 1000:1000",
        "runc 1.4 gives a command without input the machine's /dev/null, with its mode and its owner",
    ),
    (
        CriImplementation::Containerd,
        "device_of_the_machine_is_not_changed_in_a_user_namespace",
        "/dev/null of the machine was",
        "runc binds the machine's nodes there, whose times are set by whoever may write to them",
    ),
    (
        CriImplementation::Containerd,
        "oom_score_without_resources_is_zero",
        "the score is",
        "the container inherits what containerd gave its shim, which is not to be killed",
    ),
    (CriImplementation::Containerd, "stream_of_sandboxes", UNKNOWN_CALL, OLDER),
    (CriImplementation::Containerd, "stream_of_containers", UNKNOWN_CALL, OLDER),
    (CriImplementation::Containerd, "stream_of_many_containers_has_parts", UNKNOWN_CALL, OLDER),
    (CriImplementation::Containerd, "stream_of_container_stats", UNKNOWN_CALL, OLDER),
    (CriImplementation::Containerd, "stream_of_pod_stats", UNKNOWN_CALL, OLDER),
    (CriImplementation::Containerd, "stream_of_pod_metrics", UNKNOWN_CALL, OLDER),
    (CriImplementation::Containerd, "stream_of_images", UNKNOWN_CALL, OLDER),
];

/// The expected error of the case, and the reason.
pub(crate) fn listed(which: CriImplementation, case: &str) -> Option<(&'static str, &'static str)> {
    DIFFERENCES
        .iter()
        .find(|(runtime, name, ..)| *runtime == which && *name == case)
        .map(|(_, _, words, reason)| (*words, *reason))
}
