//! Verbs of the embedded runtime as a CRI server: foreign gRPC libraries as its clients, and the
//! benchmark beside containerd.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use node_testkit::parts;

use crate::{release, workspace};

/// From the Python Package Index; `cargo xtask test` uses a hand-written client in tests/real
/// instead.
const PYTHON_PACKAGES: &[&str] = &["grpcio==1.85.1", "grpcio-tools==1.85.1"];

/// `keelson cri` beside containerd, with a release build.
pub(crate) fn bench() -> Result<()> {
    parts::command(&["containerd", "runc", "cni-plugins", "registry"])?;
    release::command()?;
    build()?;
    in_bed("cri-bench", "45m", &[release::binary()?.into_os_string()])
}

/// gRPC's C core sends its socket's path as authority; so does its Go library with a dialer.
pub(crate) fn foreign_grpc() -> Result<()> {
    build()?;
    let python = python()?;
    let root = workspace::root();
    let stubs = workspace::target_dir()?.join("foreign-grpc/stubs");
    std::fs::create_dir_all(&stubs).with_context(|| stubs.display().to_string())?;
    let proto = root.join("crates/wire/cri-wire/proto");
    let mut generate = Command::new(&python);
    generate.args(["-m", "grpc_tools.protoc"]).arg("-I").arg(&proto);
    generate.arg(format!("--python_out={}", stubs.display()));
    generate.arg(format!("--grpc_python_out={}", stubs.display()));
    workspace::run(generate.arg(proto.join("runtime-v1.proto")))?;
    let script = root.join("tests/real/src/foreign_grpc.py");
    let arguments = [workspace::built("keelson")?, go_client()?, python, script, stubs];
    in_bed("foreign-grpc", "5m", &arguments.map(OsString::from))
}

/// Our client with the Go library, in the version of the pinned Kubernetes. It is not a part,
/// because the cache key of a part does not cover our own sources.
fn go_client() -> Result<PathBuf> {
    let program = workspace::target_dir()?.join("foreign-grpc/go-client");
    let mut build = Command::new("go");
    build.args(["build", "-mod=readonly", "-buildvcs=false", "-o"]).arg(&program);
    build.arg("./clients/foreign-grpc").env("CGO_ENABLED", "0").env("GOWORK", "off");
    build.current_dir(workspace::root().join("tests/real-parts/kubernetes"));
    workspace::run(&mut build)?;
    Ok(program)
}

/// A Python with the packages, created once below the target directory.
fn python() -> Result<PathBuf> {
    let dir = workspace::target_dir()?.join("foreign-grpc/python");
    let python = dir.join("bin/python3");
    if !python.exists() {
        workspace::run(Command::new("python3").args(["-m", "venv"]).arg(&dir))?;
    }
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet"]).args(PYTHON_PACKAGES);
    workspace::run(&mut install)?;
    Ok(python)
}

pub(crate) fn build() -> Result<()> {
    workspace::run(&mut workspace::cargo(&["build", "--workspace", "--bins", "--quiet"]))?;
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let mut supervisor =
        workspace::cargo(&["build", "--package", "pod-supervisor", "--bin", "keelson-pod"]);
    supervisor.args(["--quiet", "--no-default-features", "--target", &target]);
    workspace::run(&mut supervisor)
}

pub(crate) fn in_bed(program: &str, deadline: &str, arguments: &[OsString]) -> Result<()> {
    let mut command = Command::new(workspace::built("bed")?);
    command.args(["run", "--name", program, "--deadline", deadline, "--"]);
    command.arg(workspace::built(program)?).args(arguments);
    workspace::run(command.current_dir(workspace::root()))
}
