//! Warnings about the machine itself, emitted once when the agent starts.
//!
//! Rule: warnings only, as events of the node; nothing is refused or delayed because of them.
//!
//! upstream: pkg/kubelet/kubelet_linux.go (cgroupVersionCheck), pkg/kubelet/network/dns/dns.go
//! (CheckLimitsForResolvConf)

use crate::pods::PodContext;
use container_setup::dns;
use container_setup::inputs::{NodeDns, SetupWarning};
use container_setup::resolv_conf;
use pod_lifecycle::EventType;
use std::sync::Arc;

const CGROUP_V1_MESSAGE: &str = "cgroup v1 detected. cgroup v1 support is deprecated and will be removed \
                           in a future release. Please migrate to cgroup v2. More information at \
                           https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1";

/// Returns once all checks have run.
pub(crate) async fn report_checks(context: Arc<PodContext>) {
    let emit_warning = |reason: &str, message: &str| {
        context.status_store.emit_node_event(
            EventType::Warning,
            reason,
            message,
            context.clock.now(),
        );
    };
    if !context.ports.cgroups.is_unified() {
        emit_warning("CgroupV1", CGROUP_V1_MESSAGE);
    }
    if let Some(warning) = resolver_file(&context).await {
        emit_warning(warning.reason, &warning.message);
    }
}

/// What is wrong with the file of `resolvConf`; None also if there is no file.
async fn resolver_file(context: &PodContext) -> Option<SetupWarning> {
    let path = context.settings.resolv_conf.as_str();
    if path.is_empty() {
        return None;
    }
    let read = match context.ports.texts.read(path).await {
        Ok(Some(text)) => resolv_conf::parse(text.as_bytes()).map_err(|error| error.to_string()),
        Ok(None) => Err(format!("open {path}: no such file or directory")),
        Err(error) => Err(error.to_string()),
    };
    match read {
        Ok(resolver) => {
            let dns = NodeDns { resolver: Some(resolver), ..context.settings.setup.dns.clone() };
            dns::check_node(&dns, path)
        }
        Err(message) => {
            Some(SetupWarning { about_node: true, reason: dns::LIMITS_REASON, message })
        }
    }
}
