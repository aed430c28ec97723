//! The version output of this binary.
//!
//! Rule: to scripts that ask a kubelet for its version it answers in a kubelet's format, with the
//! release of Kubernetes whose behaviour it has.

use node_config::flags::{KUBERNETES_VERSION, VersionRequest};

/// The line of `keelson version`.
pub(crate) fn own() -> String {
    format!("keelson {} (Kubernetes {KUBERNETES_VERSION}, CRI v1)\n", env!("CARGO_PKG_VERSION"))
}

/// The answer to `kubelet --version` and `--version=raw`.
pub(crate) fn kubelet(request: VersionRequest, reported: Option<&str>) -> String {
    let version = reported.unwrap_or(KUBERNETES_VERSION);
    match request {
        VersionRequest::Plain => format!("Kubernetes {version}\n"),
        VersionRequest::Raw => {
            let mut numbers = version.trim_start_matches('v').split('.');
            let major = numbers.next().unwrap_or_default();
            let minor = numbers.next().unwrap_or_default();
            let architecture = match std::env::consts::ARCH {
                "x86_64" => "amd64",
                "aarch64" => "arm64",
                other => other,
            };
            format!(
                "version.Info{{Major:{major:?}, Minor:{minor:?}, GitVersion:{version:?}, \
                 Compiler:\"rustc\", Platform:\"{}/{architecture}\", Keelson:{:?}}}\n",
                std::env::consts::OS,
                env!("CARGO_PKG_VERSION"),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelets_version_is_one_line_that_scripts_know() {
        assert_eq!(kubelet(VersionRequest::Plain, None), "Kubernetes v1.36.3\n");
        assert_eq!(kubelet(VersionRequest::Plain, Some("v1.36.9")), "Kubernetes v1.36.9\n");
        let raw = kubelet(VersionRequest::Raw, None);
        assert!(
            raw.starts_with(
                "version.Info{Major:\"1\", Minor:\"36\", GitVersion:\"v1.36.3\", Compiler:"
            ),
            "{raw}"
        );
    }
}
