//! Handlers that are programs of the machine: which one a pod asked for, and what each can do.
//!
//! Rule: a program is asked for its features once, with a deadline; one that cannot say has none. A
//! user namespace of a pod is made by its supervisor and cannot be handed to such a program.
//!
//! upstream: OCI runtime-spec features.md

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use container_create::spec::HandlerSpec;
use cri_wire::v1;
use serde::Deserialize;

use super::Runtime;
use crate::records::SandboxRecord;
use crate::settings::OciRuntime;

const LIMIT: Duration = Duration::from_secs(10);

/// What is known of the handlers that are programs.
#[derive(Debug, Default)]
pub(crate) struct Handlers {
    known: Mutex<BTreeMap<String, v1::RuntimeHandlerFeatures>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Features {
    #[serde(default)]
    mount_options: Vec<String>,
}

/// What a program's own words mean here.
fn features(text: &[u8]) -> v1::RuntimeHandlerFeatures {
    let features: Features = serde_json::from_slice(text).unwrap_or_default();
    v1::RuntimeHandlerFeatures {
        recursive_read_only_mounts: features.mount_options.iter().any(|option| option == "rro"),
        user_namespaces: false,
    }
}

async fn ask(runtime: &OciRuntime) -> Option<Vec<u8>> {
    let asked = tokio::process::Command::new(&runtime.program)
        .args(&runtime.arguments)
        .arg("features")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    match tokio::time::timeout(LIMIT, asked).await {
        Ok(Ok(output)) if output.status.success() => Some(output.stdout),
        Ok(Ok(output)) => {
            tracing::warn!(program = %runtime.program.display(), status = %output.status, "features");
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

impl Handlers {
    pub(super) async fn features(
        &self,
        runtimes: &BTreeMap<String, OciRuntime>,
    ) -> BTreeMap<String, v1::RuntimeHandlerFeatures> {
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (name, runtime) in runtimes {
            if all.contains_key(name) {
                continue;
            }
            // One that could not say is asked again the next time.
            let said = ask(runtime).await;
            let known = features(said.as_deref().unwrap_or_default());
            if said.is_some() {
                let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                all.insert(name.clone(), known);
            }
            all.insert(name.clone(), known);
        }
        all
    }
}

impl Runtime {
    /// The program that makes a pod's containers; none where we do.
    pub(super) fn handler_of(&self, sandbox: &SandboxRecord) -> Option<HandlerSpec> {
        let runtime = self.settings.runtimes.get(&sandbox.runtime_handler)?;
        Some(HandlerSpec {
            program: runtime.program.display().to_string(),
            arguments: runtime.arguments.clone(),
            ..HandlerSpec::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_what_the_program_says_and_nothing_else() {
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

    #[tokio::test]
    async fn a_program_is_asked_once_and_one_that_is_missing_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("runtime");
        let script = "#!/bin/sh\necho x >> \"$0.asked\"\necho '{\"mountOptions\":[\"rro\"]}'\n";
        std::fs::write(&program, script).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        let at = |program: std::path::PathBuf| OciRuntime { program, arguments: Vec::new() };
        let runtimes = BTreeMap::from([
            ("here".to_owned(), at(program.clone())),
            ("missing".to_owned(), at(folder.path().join("missing"))),
        ]);
        let handlers = Handlers::default();
        for _ in 0..2 {
            let all = handlers.features(&runtimes).await;
            assert!(all["here"].recursive_read_only_mounts);
            assert!(!all["missing"].recursive_read_only_mounts);
        }
        let asked = std::fs::read_to_string(folder.path().join("runtime.asked")).unwrap();
        assert_eq!(asked, "x\n");
    }
}
