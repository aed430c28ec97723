//! Runtime handlers that are OCI runtimes of the host: the one that a pod uses, and its features.
//!
//! Rule: an OCI runtime is asked for its features once, with a timeout; one that does not report
//! any has none. A pod's user namespace is created by its supervisor and cannot be passed to such a
//! runtime. The pod of a container is passed in annotations.
//!
//! upstream: OCI runtime-spec features.md; containerd internal/cri/annotations/annotations.go

use std::collections::BTreeMap;
use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use container_create::spec::HandlerSpec;
use cri_wire::v1;
use serde::Deserialize;
use tokio::io::AsyncReadExt as _;

use super::Runtime;
use crate::records::StoredSandbox;
use crate::settings::OciRuntime;

const LIMIT: Duration = Duration::from_secs(10);
/// The features are a few kilobytes.
const MAX_ANSWER_SIZE: u64 = 1 << 20;

/// The known features of the OCI runtimes.
#[derive(Debug, Default)]
pub(crate) struct OciHandlers {
    cached: Mutex<BTreeMap<String, v1::RuntimeHandlerFeatures>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Features {
    #[serde(default)]
    mount_options: Vec<String>,
}

/// The features in the runtime's output.
fn features(text: &[u8]) -> v1::RuntimeHandlerFeatures {
    let features: Features = serde_json::from_slice(text).unwrap_or_default();
    v1::RuntimeHandlerFeatures {
        recursive_read_only_mounts: features.mount_options.iter().any(|option| option == "rro"),
        user_namespaces: false,
    }
}

/// Reads its output up to the limit; a runtime that writes more is ended by a broken pipe.
async fn features_output(runtime: &OciRuntime) -> std::io::Result<(ExitStatus, Vec<u8>)> {
    let mut child = tokio::process::Command::new(&runtime.program)
        .args(&runtime.arguments)
        .arg("features")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let mut text = Vec::new();
    if let Some(output) = child.stdout.take() {
        output.take(MAX_ANSWER_SIZE).read_to_end(&mut text).await?;
    }
    Ok((child.wait().await?, text))
}

async fn query_features(runtime: &OciRuntime) -> Option<Vec<u8>> {
    match tokio::time::timeout(LIMIT, features_output(runtime)).await {
        Ok(Ok((status, text))) if status.success() => Some(text),
        Ok(Ok((status, _))) => {
            tracing::warn!(program = %runtime.program.display(), %status, "features");
            None
        }
        Ok(Err(error)) => {
            tracing::warn!(program = %runtime.program.display(), %error, "features");
            None
        }
        Err(_) => {
            tracing::warn!(program = %runtime.program.display(), "features: no answer");
            None
        }
    }
}

impl OciHandlers {
    pub(super) async fn features(
        &self,
        runtimes: &BTreeMap<String, OciRuntime>,
    ) -> BTreeMap<String, v1::RuntimeHandlerFeatures> {
        let mut all = self.cached.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (name, runtime) in runtimes {
            if all.contains_key(name) {
                continue;
            }
            // A runtime that reported none is asked again the next time.
            let features_output = query_features(runtime).await;
            let cached = features(features_output.as_deref().unwrap_or_default());
            if features_output.is_some() {
                let mut all = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
                all.insert(name.clone(), cached);
            }
            all.insert(name.clone(), cached);
        }
        all
    }
}

impl Runtime {
    /// The OCI runtime of a pod's containers; none for the built-in handler.
    pub(super) fn handler_of(
        &self,
        sandbox: &StoredSandbox,
        container: &v1::ContainerConfig,
    ) -> Option<HandlerSpec> {
        let runtime = self.settings.runtimes.get(&sandbox.runtime_handler)?;
        Some(HandlerSpec {
            program: runtime.program.display().to_string(),
            arguments: runtime.arguments.clone(),
            annotations: annotations(sandbox, container),
            hostname: hostname(sandbox),
            ..HandlerSpec::default()
        })
    }
}

/// The hostname in the pod's UTS namespace.
fn hostname(sandbox: &StoredSandbox) -> String {
    let config = sandbox.config.clone().unwrap_or_default();
    let security = config.linux.and_then(|linux| linux.security_context).unwrap_or_default();
    match security.namespace_options.unwrap_or_default().network() {
        v1::NamespaceMode::Node => String::new(),
        _ => config.hostname,
    }
}

/// containerd's annotations of a container in a pod, except the container's type. To a runtime that
/// creates sandboxes of its own (runsc), "container" means that it has created one for the pod
/// before, under the sandbox's id. A pod's namespaces are created by its supervisor, never by such
/// a runtime, so it would look for that sandbox and fail; without the annotation each container is
/// a sandbox.
///
/// upstream: gVisor runsc/specutils/cri.go (IsRootContainer, SandboxID)
fn annotations(
    sandbox: &StoredSandbox,
    container: &v1::ContainerConfig,
) -> BTreeMap<String, String> {
    let config = sandbox.config.clone().unwrap_or_default();
    let pod = config.metadata.unwrap_or_default();
    let name = container.metadata.clone().unwrap_or_default().name;
    let image = container.image.clone().unwrap_or_default();
    let image = match image.user_specified_image {
        asked if asked.is_empty() => image.image,
        asked => asked,
    };
    [
        ("sandbox-id", sandbox.id.clone()),
        ("sandbox-name", pod.name),
        ("sandbox-namespace", pod.namespace),
        ("sandbox-uid", pod.uid),
        ("container-name", name),
        ("image-name", image),
    ]
    .into_iter()
    .map(|(name, value)| (format!("io.kubernetes.cri.{name}"), value))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn features_output_beyond_the_limit_is_not_kept() {
        let shell = |words: &str| OciRuntime {
            program: "/bin/sh".into(),
            arguments: vec!["-c".to_owned(), words.to_owned()],
        };
        let endless = features_output(&shell("exec yes")).await.expect("it runs");
        assert_eq!(endless.1.len() as u64, MAX_ANSWER_SIZE);
        assert!(!endless.0.success());
        assert_eq!(query_features(&shell("echo $0")).await.expect("an answer"), b"features\n");
        assert_eq!(query_features(&shell("echo no; exit 3")).await, None);
    }

    #[test]
    fn features_are_only_those_the_program_reports() {
        for (text, expected) in [
            (r#"{"mountOptions":["ro","rro"],"linux":{}}"#, true),
            (r#"{"mountOptions":["ro"]}"#, false),
            ("{}", false),
            ("nonsense", false),
        ] {
            let found = features(text.as_bytes());
            assert_eq!(found.recursive_read_only_mounts, expected, "{text}");
            assert!(!found.user_namespaces);
        }
    }

    #[test]
    fn a_container_has_annotations_of_its_pod() {
        let metadata = v1::PodSandboxMetadata {
            name: "web".into(),
            uid: "u-1".into(),
            namespace: "shop".into(),
            attempt: 2,
        };
        let config = v1::PodSandboxConfig { metadata: Some(metadata), ..Default::default() };
        let sandbox = StoredSandbox { id: "s1".into(), config: Some(config), ..Default::default() };
        let mut container = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: "main".into(), attempt: 0 }),
            image: Some(v1::ImageSpec { image: "sha256:1".into(), ..Default::default() }),
            ..Default::default()
        };
        let actual = annotations(&sandbox, &container);
        for (name, value) in [
            ("sandbox-id", "s1"),
            ("sandbox-name", "web"),
            ("sandbox-namespace", "shop"),
            ("sandbox-uid", "u-1"),
            ("container-name", "main"),
            ("image-name", "sha256:1"),
        ] {
            assert_eq!(actual.get(&format!("io.kubernetes.cri.{name}")).unwrap(), value, "{name}");
        }
        // The runtime would look for a sandbox of its own, and there is none.
        assert!(!actual.contains_key("io.kubernetes.cri.container-type"));
        container.image.as_mut().unwrap().user_specified_image = "shop/web:1".into();
        assert_eq!(annotations(&sandbox, &container)["io.kubernetes.cri.image-name"], "shop/web:1");
    }

    #[test]
    fn a_pod_has_its_own_hostname_unless_on_the_host_network() {
        let of = |network: v1::NamespaceMode| {
            let options = v1::NamespaceOption { network: network.into(), ..Default::default() };
            let security = v1::LinuxSandboxSecurityContext {
                namespace_options: Some(options),
                ..Default::default()
            };
            let linux = v1::LinuxPodSandboxConfig {
                security_context: Some(security),
                ..Default::default()
            };
            let config = v1::PodSandboxConfig {
                hostname: "web".into(),
                linux: Some(linux),
                ..Default::default()
            };
            hostname(&StoredSandbox { config: Some(config), ..Default::default() })
        };
        assert_eq!(of(v1::NamespaceMode::Pod), "web");
        assert_eq!(of(v1::NamespaceMode::Node), "");
        assert_eq!(hostname(&StoredSandbox::default()), "");
    }

    #[tokio::test]
    async fn features_are_queried_once_and_a_missing_program_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("runtime");
        let script = "#!/bin/sh\necho x >> \"$0.asked\"\necho '{\"mountOptions\":[\"rro\"]}'\n";
        std::fs::write(&program, script).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        let at = |program: std::path::PathBuf| OciRuntime { program, arguments: Vec::new() };
        let runtimes = BTreeMap::from([
            ("here".to_owned(), at(program.clone())),
            ("missing".to_owned(), at(dir.path().join("missing"))),
        ]);
        let handlers = OciHandlers::default();
        for _ in 0..2 {
            let all = handlers.features(&runtimes).await;
            assert!(all["here"].recursive_read_only_mounts);
            assert!(!all["missing"].recursive_read_only_mounts);
        }
        let asked = std::fs::read_to_string(dir.path().join("runtime.asked")).unwrap();
        assert_eq!(asked, "x\n");
    }
}
