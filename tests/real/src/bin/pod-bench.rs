//! `cargo xtask bench pods`: static pods under the agent and under the reference kubelet, on one
//! containerd in one bed. Memory by smaps, CPU time by the scheduler, times by the runtime's own
//! records; a table with ratios, since absolute times of one run mean nothing elsewhere.
//!
//! Runs inside a bed (`bed run -- pod-bench KEELSON`).

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use node_testkit::bed;
use node_testkit::images;
use node_testkit::start::{Containerd, ContainerdOptions};
use real_tests::standalone::agent::Kind;
use real_tests::standalone::measure::{self, Bare, Images, Measured};
use real_tests::standalone::runtime::Runtime;

fn main() -> Result<()> {
    let bed = bed::enter_role(None)?.context("to be run in a bed: cargo xtask bench pods")?;
    let keelson = std::env::args().nth(1).context("usage: pod-bench KEELSON")?;
    let containerd = Containerd::start(&bed, &ContainerdOptions::default())?;
    for image in
        [images::pause()?, images::pause()?.named(images::CONTAINERD_PAUSE), images::busybox()?]
    {
        containerd.import(&image.oci_archive()?)?;
    }
    let images = Images { quiet: images::PAUSE.to_owned(), shell: images::BUSYBOX.to_owned() };
    let endpoint = containerd.endpoint();
    let runtime = Runtime::connect(&endpoint)?;
    let bare = measure::bare(&runtime, &bed, &images.quiet)?;
    let ours = Kind::keelson(Path::new(&keelson));
    let ours = measure::agent(&bed, &runtime, &ours, &endpoint, &images)?;
    let theirs = measure::agent(&bed, &runtime, &Kind::reference()?, &endpoint, &images)?;
    print_table(&ours, &theirs);
    print_bare(&ours, &theirs, &bare);
    Ok(())
}

fn print_table(ours: &Measured, theirs: &Measured) {
    let row = |name: &str, ours: f64, theirs: f64, unit: &str| {
        println!("{name:<40} {ours:>10.1} {theirs:>10.1} {unit:<4} {:>8.3}", ours / theirs);
    };
    println!("{:<40} {:>10} {:>10} {:<4} {:>8}", "", "keelson", "reference", "", "ratio");
    for (at, pods) in [0, 30, 110].into_iter().enumerate() {
        let (mine, other) = (&ours.memory[at], &theirs.memory[at]);
        row(&format!("PSS, {pods} pods"), mine.pss as f64, other.pss as f64, "KiB");
        let (mine, other) = (mine.private_dirty as f64, other.private_dirty as f64);
        row(&format!("Private_Dirty, {pods} pods"), mine, other, "KiB");
    }
    for (at, pods) in [0, 30, 110].into_iter().enumerate() {
        let (mine, other) = (millis(ours.idle_cpu[at]), millis(theirs.idle_cpu[at]));
        row(&format!("CPU time in an idle minute, {pods} pods"), mine, other, "ms");
    }
    for (name, mine, other) in [
        ("manifest to container started, median", ours.single, theirs.single),
        ("30 at once", ours.burst_30, theirs.burst_30),
        ("110 at once", ours.burst_110, theirs.burst_110),
        ("crash to restarted, median", ours.crash, theirs.crash),
        ("manifest removed to pod gone, median", ours.removal, theirs.removal),
    ] {
        row(name, millis(mine), millis(other), "ms");
    }
}

/// Beside the runtime's own share, without any agent.
fn print_bare(ours: &Measured, theirs: &Measured, bare: &Bare) {
    println!();
    println!(
        "{:<40} {:>10} {:>10} {:>10}",
        "beside the bare CRI calls", "bare ms", "keelson", "reference"
    );
    for (name, bare, mine, other) in [
        ("one pod: sandbox, create, start", bare.pod, ours.single, theirs.single),
        ("crash: create, start", bare.create_and_start, ours.crash, theirs.crash),
    ] {
        let ratio = |time: Duration| time.as_secs_f64() / bare.as_secs_f64();
        println!("{name:<40} {:>10.1} {:>10.3} {:>10.3}", millis(bare), ratio(mine), ratio(other));
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
