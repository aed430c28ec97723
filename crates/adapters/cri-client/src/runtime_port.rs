//! The client as the port for the runtime's version and status.
//!
//! Rule: translation only. Does not judge what a condition means.

use cri_wire::v1;
use ports::PortFuture;
use ports::container_runtime::{
    ContainerRuntime, ContainerRuntimeError, RuntimeCondition, RuntimeStatus, RuntimeVersion,
};

use crate::client::CriClient;

/// The version that upstream sends as its own; runtimes ignore it.
// upstream: pkg/kubelet/kuberuntime/kuberuntime_manager.go
const CALLER_INTERFACE_VERSION: &str = "0.1.0";

impl ContainerRuntime for CriClient {
    fn version(&self) -> PortFuture<'_, Result<RuntimeVersion, ContainerRuntimeError>> {
        Box::pin(async move {
            let request = v1::VersionRequest { version: CALLER_INTERFACE_VERSION.to_owned() };
            let answer = CriClient::version(self, request).await?;
            Ok(RuntimeVersion {
                runtime_name: answer.runtime_name,
                runtime_version: answer.runtime_version,
                interface_version: answer.runtime_api_version,
            })
        })
    }

    fn status(&self) -> PortFuture<'_, Result<RuntimeStatus, ContainerRuntimeError>> {
        Box::pin(async move {
            let answer = CriClient::status(self, v1::StatusRequest { verbose: false }).await?;
            let strict_supplemental_groups =
                answer.features.is_some_and(|features| features.supplemental_groups_policy);
            let conditions = answer.status.unwrap_or_default().conditions;
            let conditions = conditions.into_iter().map(|condition| RuntimeCondition {
                kind: condition.r#type.into(),
                met: condition.status,
                reason: condition.reason,
                message: condition.message,
            });
            Ok(RuntimeStatus { conditions: conditions.collect(), strict_supplemental_groups })
        })
    }
}
