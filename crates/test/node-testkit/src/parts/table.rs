//! The table of parts: what each is built from and with which flags.
//!
//! Rule: everything that shapes the resulting programs is in this table or in the part's go.mod and
//! go.sum; all of it goes into the key under which the result is kept. No versions stand here.

use anyhow::{Context, Result};

use super::{modules_dir, pin};

/// One part.
#[derive(Debug)]
pub struct RealPart {
    pub name: &'static str,
    /// The directory of its Go module under `tests/real-parts`.
    pub dir: &'static str,
    /// The required module whose version is the part's version.
    pub module: &'static str,
    /// Its programs: file name, and the Go package it is built from.
    pub programs: &'static [(&'static str, &'static str)],
    pub how: GoBuildMode,
    pub cgo: bool,
    pub tags: &'static [&'static str],
    /// Link flags beside `-s -w`; `{version}` stands for the version with its `v`.
    pub link_flags: &'static str,
    /// The Debian packages that building needs, beside Go.
    pub debian_packages: &'static [&'static str],
}

/// Which of Go's verbs makes the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoBuildMode {
    /// `go build`
    Program,
    /// `go test -c`
    TestProgram,
}

/// What Kubernetes' programs call themselves; unset, they answer v0.0.0.
const KUBERNETES_VERSION: &str = "-X k8s.io/component-base/version.gitVersion={version}";

const KUBERNETES: &str = "k8s.io/kubernetes";

/// A part from the Kubernetes module.
const fn kubernetes(
    name: &'static str,
    programs: &'static [(&'static str, &'static str)],
) -> RealPart {
    RealPart {
        name,
        dir: "kubernetes",
        module: KUBERNETES,
        programs,
        how: GoBuildMode::Program,
        cgo: false,
        tags: &[],
        link_flags: KUBERNETES_VERSION,
        debian_packages: &[],
    }
}

/// A part whose module directory has the part's name.
const fn own_module(
    name: &'static str,
    module: &'static str,
    programs: &'static [(&'static str, &'static str)],
) -> RealPart {
    RealPart {
        name,
        dir: name,
        module,
        programs,
        how: GoBuildMode::Program,
        cgo: false,
        tags: &[],
        link_flags: "",
        debian_packages: &[],
    }
}

/// Every part, the quick ones first.
pub const TABLE: &[RealPart] = &[
    RealPart {
        link_flags: "-X github.com/containerd/containerd/v2/version.Version={version}",
        ..own_module(
            "containerd",
            "github.com/containerd/containerd/v2",
            &[
                ("containerd", "github.com/containerd/containerd/v2/cmd/containerd"),
                (
                    "containerd-shim-runc-v2",
                    "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
                ),
                ("ctr", "github.com/containerd/containerd/v2/cmd/ctr"),
            ],
        )
    },
    // What nodes had before there was a stream of events.
    RealPart {
        link_flags: "-X github.com/containerd/containerd/version.Version={version}",
        ..own_module(
            "containerd-1.6",
            "github.com/containerd/containerd",
            &[
                ("containerd", "github.com/containerd/containerd/cmd/containerd"),
                (
                    "containerd-shim-runc-v2",
                    "github.com/containerd/containerd/cmd/containerd-shim-runc-v2",
                ),
                ("ctr", "github.com/containerd/containerd/cmd/ctr"),
            ],
        )
    },
    RealPart {
        // Static, so that the same program runs in the cgroup v2 machine.
        cgo: true,
        tags: &["seccomp", "netgo", "osusergo"],
        link_flags: "-X main.version={version} -extldflags -static",
        debian_packages: &["gcc", "libc6-dev", "libseccomp-dev", "pkg-config"],
        ..own_module(
            "runc",
            "github.com/opencontainers/runc",
            &[("runc", "github.com/opencontainers/runc")],
        )
    },
    own_module(
        "cni-plugins",
        "github.com/containernetworking/plugins",
        &[
            ("bridge", "github.com/containernetworking/plugins/plugins/main/bridge"),
            ("loopback", "github.com/containernetworking/plugins/plugins/main/loopback"),
            ("host-local", "github.com/containernetworking/plugins/plugins/ipam/host-local"),
            ("portmap", "github.com/containernetworking/plugins/plugins/meta/portmap"),
        ],
    ),
    own_module("etcd", "go.etcd.io/etcd/server/v3", &[("etcd", "go.etcd.io/etcd/server/v3")]),
    own_module(
        "registry",
        "github.com/distribution/distribution/v3",
        &[("registry", "github.com/distribution/distribution/v3/cmd/registry")],
    ),
    own_module(
        "csi-sanity",
        "github.com/kubernetes-csi/csi-test/v5",
        &[("csi-sanity", "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity")],
    ),
    RealPart {
        module: "github.com/onsi/ginkgo/v2",
        link_flags: "",
        ..kubernetes("ginkgo", &[("ginkgo", "github.com/onsi/ginkgo/v2/ginkgo")])
    },
    kubernetes("kubectl", &[("kubectl", "k8s.io/kubernetes/cmd/kubectl")]),
    kubernetes(
        "kube-controller-manager",
        &[("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager")],
    ),
    kubernetes("kube-scheduler", &[("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler")]),
    kubernetes("kube-apiserver", &[("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver")]),
    kubernetes("kubelet", &[("kubelet", "k8s.io/kubernetes/cmd/kubelet")]),
    kubernetes(
        "sample-device-plugin",
        &[("sample-device-plugin", "k8s.io/kubernetes/test/images/sample-device-plugin")],
    ),
    kubernetes("agnhost", &[("agnhost", "k8s.io/kubernetes/test/images/agnhost")]),
    RealPart {
        how: GoBuildMode::TestProgram,
        ..kubernetes("e2e-node-test", &[("e2e_node.test", "k8s.io/kubernetes/test/e2e_node")])
    },
];

/// Looks a part up by name.
pub(super) fn find(name: &str) -> Result<&'static RealPart> {
    TABLE.iter().find(|part| part.name == name).with_context(|| {
        let known: Vec<_> = TABLE.iter().map(|part| part.name).collect();
        format!("there is no part {name:?}; there are: {}", known.join(", "))
    })
}

impl RealPart {
    /// The pinned version, as `v1.2.3`.
    ///
    /// # Errors
    /// When the go.mod cannot be read or does not require the module.
    pub fn version(&self) -> Result<String> {
        pin::required_version(&modules_dir()?.join(self.dir).join("go.mod"), self.module)
    }

    /// The whole `-ldflags` value.
    pub(super) fn linker_arguments(&self, version: &str) -> String {
        format!("-s -w {}", self.link_flags.replace("{version}", version)).trim_end().to_owned()
    }
}
