//! Version, Status and RuntimeConfig.

use std::collections::BTreeMap;

use cri_wire::v1;
use pod_supervisor::kernel_features::KernelFeatures;
use serde_json::json;

use super::Runtime;
use crate::durable;
use crate::failure::{CriError, Result, blocking};
use crate::settings::{BUILT_IN_HANDLER_NAMES, CgroupDriver};

/// upstream: the value that every kubelet expects here.
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
        let kernel_features = self.kernel_features().await;
        let own = v1::RuntimeHandlerFeatures {
            recursive_read_only_mounts: kernel_features.recursive_read_only.is_ok(),
            user_namespaces: kernel_features.user_namespaces.is_ok(),
        };
        let handler = |name: &str, features: v1::RuntimeHandlerFeatures| v1::RuntimeHandler {
            name: name.to_owned(),
            features: Some(features),
        };
        let names = BUILT_IN_HANDLER_NAMES
            .into_iter()
            .chain(self.settings.handlers.iter().map(String::as_str));
        let mut runtime_handlers: Vec<_> = names.map(|name| handler(name, own)).collect();
        for (name, features) in self.handlers.features(&self.settings.runtimes).await {
            runtime_handlers.push(handler(&name, features));
        }
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

    async fn kernel_features(&self) -> &KernelFeatures {
        let try_out = || async {
            let (program, dir) = (self.program.clone(), self.settings.root.join("abilities"));
            let tried = blocking(move || {
                for name in ["lower", "upper", "work"] {
                    durable::make_dir(&dir.join(name))?;
                }
                let kernel_features = KernelFeatures::probe(&program, &dir);
                durable::remove_tree(&dir)?;
                Ok(kernel_features)
            });
            tried.await.unwrap_or_else(|failure| {
                let why = Err(failure.to_string());
                KernelFeatures { user_namespaces: why.clone(), recursive_read_only: why }
            })
        };
        let kernel_features = self.kernel_features.get_or_init(try_out).await;
        for (name, outcome) in [
            ("user namespaces", &kernel_features.user_namespaces),
            ("recursive read-only mounts", &kernel_features.recursive_read_only),
        ] {
            if let Err(why) = outcome {
                tracing::debug!(why, "this machine has no {name}");
            }
        }
        kernel_features
    }

    fn info(&self) -> BTreeMap<String, String> {
        let driver = match self.settings.cgroup_driver {
            CgroupDriver::Systemd => "systemd",
            CgroupDriver::Cgroupfs => "cgroupfs",
        };
        let config = json!({
            "root": self.settings.root,
            "state": self.settings.state,
            "cniConfigurations": self.settings.cni.configurations,
            "cniPlugins": self.settings.cni.plugins,
            "bridge": self.settings.built_in_network.bridge,
            "handlers": self.settings.handlers,
            "runtimes": self
                .settings
                .runtimes
                .iter()
                .map(|(name, runtime)| (name.clone(), json!(runtime.program)))
                .collect::<serde_json::Map<_, _>>(),
            "streams": self.settings.streams,
            "cgroupDriver": driver,
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

    /// An error if pods may not use this handler.
    pub(super) fn check_handler(&self, name: &str, pod: &v1::PodSandboxConfig) -> Result<()> {
        if self.settings.runtimes.contains_key(name) && has_user_namespace(pod) {
            return Err(CriError::plain(format!(
                "the runtime handler {name:?} does not support user namespaces"
            )));
        }
        let known = BUILT_IN_HANDLER_NAMES.contains(&name)
            || self.settings.runtimes.contains_key(name)
            || self.settings.handlers.iter().any(|handler| handler == name);
        if known {
            return Ok(());
        }
        Err(CriError::plain(format!("no runtime for {name:?} is configured")))
    }
}

fn has_user_namespace(pod: &v1::PodSandboxConfig) -> bool {
    let security = pod.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    let options = security.and_then(|security| security.namespace_options.as_ref());
    let user = options.and_then(|options| options.userns_options.as_ref());
    user.is_some_and(|user| user.mode() == v1::NamespaceMode::Pod)
}
