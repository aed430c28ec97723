//! What the runtime is and whether it works: Version, Status, RuntimeConfig.

use std::collections::BTreeMap;

use cri_wire::v1;
use serde_json::json;

use super::Runtime;
use crate::failure::{Failure, Result};
use crate::settings::CgroupDriver;

/// upstream: what every kubelet expects here.
const KUBERNETES_API_VERSION: &str = "0.1.0";

impl Runtime {
    pub fn version(&self) -> v1::VersionResponse {
        v1::VersionResponse {
            version: KUBERNETES_API_VERSION.to_owned(),
            runtime_name: "keelson".to_owned(),
            runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
            runtime_api_version: "v1".to_owned(),
        }
    }

    pub async fn status(&self, verbose: bool) -> v1::StatusResponse {
        let condition = |kind: &str| v1::RuntimeCondition {
            r#type: kind.to_owned(),
            status: true,
            ..Default::default()
        };
        let mut network = condition("NetworkReady");
        if let Err(why) = self.network.readiness().await {
            network.status = false;
            network.reason = "NetworkPluginNotReady".to_owned();
            network.message = format!("Network plugin returns error: {why}");
        }
        let handler = |name: &str| v1::RuntimeHandler {
            name: name.to_owned(),
            features: Some(v1::RuntimeHandlerFeatures {
                recursive_read_only_mounts: true,
                user_namespaces: true,
            }),
        };
        let names =
            ["", "keelson"].into_iter().chain(self.settings.handlers.iter().map(String::as_str));
        let mut runtime_handlers: Vec<_> = names.map(handler).collect();
        runtime_handlers.sort_by(|one, other| one.name.cmp(&other.name));
        v1::StatusResponse {
            status: Some(v1::RuntimeStatus {
                conditions: vec![condition("RuntimeReady"), network],
            }),
            info: if verbose { self.info() } else { BTreeMap::new() },
            runtime_handlers,
            features: Some(v1::RuntimeFeatures {
                supplemental_groups_policy: true,
                user_namespaces_host_network: false,
            }),
        }
    }

    fn info(&self) -> BTreeMap<String, String> {
        let config = json!({
            "root": self.settings.root,
            "state": self.settings.state,
            "cniConfigurations": self.settings.cni.configurations,
            "cniPlugins": self.settings.cni.plugins,
            "bridge": self.settings.built_in_network.bridge,
            "handlers": self.settings.handlers,
            "streams": self.settings.streams,
        });
        BTreeMap::from([("config".to_owned(), config.to_string())])
    }

    pub fn runtime_config(&self) -> v1::RuntimeConfigResponse {
        let driver = match self.settings.cgroup_driver {
            CgroupDriver::Systemd => v1::CgroupDriver::Systemd,
            CgroupDriver::Cgroupfs => v1::CgroupDriver::Cgroupfs,
        };
        v1::RuntimeConfigResponse {
            linux: Some(v1::LinuxRuntimeConfiguration { cgroup_driver: driver.into() }),
        }
    }

    /// Whether pods may ask for this handler.
    pub(super) fn check_handler(&self, name: &str) -> Result<()> {
        let known = name.is_empty()
            || name == "keelson"
            || self.settings.handlers.iter().any(|handler| handler == name);
        if known {
            return Ok(());
        }
        Err(Failure::plain(format!("no runtime for {name:?} is configured")))
    }
}
