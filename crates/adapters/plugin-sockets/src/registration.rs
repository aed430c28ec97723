//! Calls of the registration service that a plugin serves at its socket in `plugins_registry`.
//!
//! upstream: pkg/kubelet/pluginmanager/operationexecutor/operation_generator.go

use std::time::Duration;

use plugin_wire::MESSAGE_SIZE_LIMIT;
use plugin_wire::registration::registration_client::RegistrationClient;
use plugin_wire::registration::{InfoRequest, RegistrationStatus};
use ports::plugins::{PluginDescription, PluginFuture, PluginRegistration};

use crate::call::SocketCall;

#[cfg(test)]
mod tests;

const INFO_LIMIT: Duration = Duration::from_secs(1);
const NOTIFY_LIMIT: Duration = Duration::from_secs(5);
/// Of each text that a plugin gives about itself.
const MAX_TEXT_BYTES: usize = 4096;
const MAX_VERSIONS: usize = 64;

/// Calls plugins by their sockets.
#[derive(Clone, Copy, Debug, Default)]
pub struct RegistrationSockets;

impl PluginRegistration for RegistrationSockets {
    fn introduction<'a>(&'a self, socket: &'a str) -> PluginFuture<'a, PluginDescription> {
        Box::pin(async move {
            let call = SocketCall { name: "GetInfo", socket, limit: INFO_LIMIT };
            let send = |channel, request| async move {
                let client = RegistrationClient::new(channel);
                client.max_decoding_message_size(MESSAGE_SIZE_LIMIT).get_info(request).await
            };
            let info = call.make(InfoRequest {}, send).await?;
            let texts = [&info.r#type, &info.name, &info.endpoint];
            if texts.into_iter().chain(&info.supported_versions).any(|it| it.len() > MAX_TEXT_BYTES)
                || info.supported_versions.len() > MAX_VERSIONS
            {
                return Err(call.bad_answer(format!(
                    "a text of more than {MAX_TEXT_BYTES} bytes, or more than {MAX_VERSIONS} versions"
                )));
            }
            let endpoint = Some(info.endpoint).filter(|it| !it.is_empty());
            Ok(PluginDescription {
                plugin_type: info.r#type,
                name: info.name,
                endpoint: endpoint.unwrap_or_else(|| socket.to_owned()),
                versions: info.supported_versions,
            })
        })
    }

    fn notify<'a>(&'a self, socket: &'a str, result: Result<(), &'a str>) -> PluginFuture<'a, ()> {
        Box::pin(async move {
            let call = SocketCall { name: "NotifyRegistrationStatus", socket, limit: NOTIFY_LIMIT };
            let send = |channel, request| async move {
                let client = RegistrationClient::new(channel);
                let mut client = client.max_decoding_message_size(MESSAGE_SIZE_LIMIT);
                client.notify_registration_status(request).await
            };
            let status = RegistrationStatus {
                plugin_registered: result.is_ok(),
                error: result.err().unwrap_or_default().to_owned(),
            };
            call.make(status, send).await.map(drop)
        })
    }
}
