//! Test images on real parts: containerd imports and runs them, a registry stores and serves them.
//!
//! The rule: an image counts as good when containerd unpacked it and a container ran from it; being
//! listed is not enough.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::images::{self, TestImage};
use node_testkit::start::{Containerd, ContainerdOptions, RegistryOptions, RegistryServer};

fn ctr(containerd: &Containerd, arguments: &[&str]) -> Result<String> {
    let mut all = vec!["--namespace", "k8s.io"];
    all.extend_from_slice(arguments);
    containerd.run_ctr(&all)
}

/// Runs one command in a new container and returns what it printed.
fn run_in(containerd: &Containerd, image: &str, command: &[&str]) -> Result<String> {
    let mut arguments = vec!["run", "--rm", image, "one-command"];
    arguments.extend_from_slice(command);
    ctr(containerd, &arguments)
}

#[test]
fn archives_are_imported_listed_and_run() -> Result<()> {
    // Made before the bed: the pause program may need its compiler's target from the network.
    let pause = images::pause()?;
    let busybox = images::busybox()?;
    let hub_busybox = images::busybox()?.named(images::DOCKER_HUB_BUSYBOX);
    // Stands for agnhost itself, whose build is worth minutes: what is tried is the image around it.
    let agnhost = images::agnhost(&PathBuf::from("/bin/busybox"))?;
    let archives = [
        (&pause, pause.oci_archive()?),
        (&busybox, busybox.docker_archive()?),
        (&hub_busybox, hub_busybox.oci_archive()?),
        (&agnhost, agnhost.oci_archive()?),
    ];
    BedTest::new().deadline(Duration::from_secs(180)).needs(Containerd::NEEDS).run(|bed| {
        let containerd = Containerd::start(bed, &ContainerdOptions::default())?;
        for (_, archive) in &archives {
            containerd.import(archive)?;
        }
        let listed = ctr(&containerd, &["images", "list", "--quiet"])?;
        for (image, _) in &archives {
            ensure!(
                listed.lines().any(|line| line == image.name()),
                "{} is not among the images:\n{listed}",
                image.name()
            );
        }
        let check = "set -e; stat -c %a /tmp; id -u; [ -x /usr/bin/env ]; ls / | head -n 3 | wc -l";
        for image in [&busybox, &hub_busybox] {
            let output = run_in(&containerd, image.name(), &["sh", "-c", check])?;
            ensure!(output == "1777\n0\n3\n", "{} said {output:?}", image.name());
        }
        let users = "id -u user-defined-in-image; id -G user-defined-in-image";
        let output = run_in(&containerd, agnhost.name(), &["sh", "-c", users])?;
        ensure!(output == "1000\n1000 50000\n", "agnhost's users: {output:?}");
        ends_by_term(&containerd, &pause)
    })
}

/// The pause program is PID 1 of its container, where only a process that handles SIGTERM ends by
/// it.
fn ends_by_term(containerd: &Containerd, pause: &TestImage) -> Result<()> {
    ctr(containerd, &["run", "--detach", pause.name(), "pausing"])?;
    let state = || -> Result<String> {
        let tasks = ctr(containerd, &["tasks", "list"])?;
        let line = tasks.lines().find(|line| line.starts_with("pausing "));
        Ok(line.with_context(|| format!("no such task in:\n{tasks}"))?.to_owned())
    };
    ensure!(state()?.ends_with("RUNNING"), "pause does not run: {}", state()?);
    ctr(containerd, &["tasks", "kill", "--signal", "SIGTERM", "pausing"])?;
    let until = Instant::now() + Duration::from_secs(10);
    while !state()?.ends_with("STOPPED") {
        ensure!(Instant::now() < until, "pause did not end by TERM: {}", state()?);
        sleep(Duration::from_millis(50));
    }
    ctr(containerd, &["tasks", "delete", "pausing"])?;
    ctr(containerd, &["containers", "delete", "pausing"])?;
    Ok(())
}

#[test]
fn images_are_pushed_listed_and_pulled() -> Result<()> {
    let busybox = images::busybox()?;
    let parts = [Containerd::NEEDS, RegistryServer::NEEDS].concat();
    BedTest::new().deadline(Duration::from_secs(120)).needs(&parts).run(|bed| {
        let registry = RegistryServer::start(bed, RegistryOptions::default())?;
        let digest = images::push(registry.address(), &busybox)?;
        let again = images::push(registry.address(), &busybox)?;
        ensure!(digest == again, "pushed twice, and the digests differ: {digest}, {again}");

        let name = busybox.reference()?;
        let held = images::repositories(registry.address())?;
        ensure!(held == [name.repository], "the registry holds {held:?}");
        let tags = images::tags(registry.address(), name.repository)?;
        ensure!(tags == [name.tag], "the repository has the tags {tags:?}");

        let containerd = Containerd::start(bed, &ContainerdOptions::default())?;
        let local = format!("{}/{}:{}", registry.address(), name.repository, name.tag);
        ctr(&containerd, &["images", "pull", "--plain-http", &local])?;
        let listed = ctr(&containerd, &["images", "list", &format!("name=={local}")])?;
        ensure!(listed.contains(&digest), "pulled something else than {digest}:\n{listed}");
        let output = run_in(&containerd, &local, &["echo", "pulled"])?;
        ensure!(output == "pulled\n", "the pulled image said {output:?}");
        Ok(())
    })
}
