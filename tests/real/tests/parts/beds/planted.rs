//! The leftover check against planted things: one of every kind that a faulty bed would leave,
//! beside unrelated things of the machine.
//!
//! Rule: both are planted in a bed, where the check treats the bed as the machine; so nothing
//! planted can outlive the test.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};

use anyhow::{Context, Result, ensure};
use node_testkit::bed::test;
use real_tests::leftover_check::{LeftoverCheck, ROLE};

#[test]
fn the_leftover_check_finds_one_of_every_kind_and_nothing_of_others() -> Result<()> {
    node_testkit::leftovers::build_program()?;
    test(|_| {
        let leftover_check = LeftoverCheck::start()?;
        let mut noise = plant_noise()?;
        let found = leftover_check.current_leftovers()?;
        ensure!(found.is_empty(), "other people's things were counted:\n{found}");
        let mut part = plant_leftovers()?;
        let found = leftover_check.current_leftovers()?;
        for process in [&mut noise, &mut part] {
            process.kill()?;
            process.wait()?;
        }
        let expected = [
            "process: ",
            "mount: /run/containerd/left (tmpfs, tmpfs, /)",
            "mount: /run/netns/cni-left (nsfs, ",
            "cgroup: /sys/fs/cgroup",
            "link: cni0",
            "address: cni0 inet 10.88.0.1/16",
            "network namespace: cni-left",
            "nftables rule: table ip cni_left",
            "folder: /var/lib/containerd/left",
        ];
        for one in expected {
            ensure!(found.contains(one), "{one:?} not among:\n{found}");
        }
        for word in ["fresh", "br-other", "blue", "others", "other.scope"] {
            ensure!(!found.contains(word), "{word:?} is other people's:\n{found}");
        }
        Ok(())
    })
}

fn plant_noise() -> Result<Child> {
    mount_tmpfs("/var/tmp/fresh/tree/proc")?;
    run("ip", &["link", "add", "br-other", "type", "bridge"])?;
    run("ip", &["address", "add", "10.9.9.1/24", "dev", "br-other"])?;
    run("ip", &["netns", "add", "blue"])?;
    run("nft", &["add", "table", "inet", "others"])?;
    make_cgroup("other.scope")?;
    Ok(Command::new("sleep").arg("1000").env_remove(ROLE).spawn()?)
}

fn plant_leftovers() -> Result<Child> {
    mount_tmpfs("/run/containerd/left")?;
    run("ip", &["link", "add", "cni0", "type", "bridge"])?;
    run("ip", &["address", "add", "10.88.0.1/16", "dev", "cni0"])?;
    run("ip", &["netns", "add", "cni-left"])?;
    run("nft", &["add", "table", "ip", "cni_left"])?;
    make_cgroup("kubepods")?;
    fs::create_dir_all("/var/lib/containerd/left")?;
    // A part is known by its program's name alone.
    let program = std::env::temp_dir().join("containerd");
    let sleep = fs::canonicalize("/bin/sleep")?;
    fs::copy(&sleep, &program).with_context(|| sleep.display().to_string())?;
    Ok(Command::new(program).arg("1000").env_remove(ROLE).spawn()?)
}

fn mount_tmpfs(target: &str) -> Result<()> {
    fs::create_dir_all(target)?;
    run("mount", &["-t", "tmpfs", "tmpfs", target])
}

/// In the memory hierarchy, or in the unified one if it is the only one.
fn make_cgroup(name: &str) -> Result<()> {
    let memory = Path::new("/sys/fs/cgroup/memory");
    let top = if memory.exists() { memory } else { Path::new("/sys/fs/cgroup") };
    fs::create_dir(top.join(name)).with_context(|| format!("make cgroup {name}"))
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output().context(program.to_owned())?;
    ensure!(output.status.success(), "{program} {arguments:?}: {output:?}");
    Ok(())
}
