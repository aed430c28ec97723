//! `cargo xtask bench pods`: static pods under the agent and under the reference kubelet, on one
//! containerd in one bed. Measures memory from smaps, CPU time from the scheduler, and times from
//! the runtime's own records. Prints a table with ratios, since absolute times of one run mean
//! nothing elsewhere. A broken promise of SPECIFICATION.md is an error.
//!
//! Runs inside a bed (`bed run -- pod-bench KEELSON [times|bursts]`; `times` measures only single
//! pods and crashes beside bare calls, `bursts` only many pods at once).

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use node_testkit::bed;
use node_testkit::start::{Containerd, ContainerdOptions};
use node_testkit::{images, parts};
use real_tests::cold_program;
use real_tests::promises::{BenchRow, BenchTable, PairedSamples, Promise};
use real_tests::standalone::agent::AgentKind;
use real_tests::standalone::measure::{
    self, BareRuntimeTimes, BenchImages, PodBenchResult, millis,
};
use real_tests::standalone::runtime::RuntimeObserver;

fn main() -> Result<()> {
    let bed = bed::enter_role(None)?.context("to be run in a bed: cargo xtask bench pods")?;
    let keelson = std::env::args().nth(1).context("usage: pod-bench KEELSON [times|bursts]")?;
    let containerd = Containerd::start(&bed, &ContainerdOptions::default())?;
    for image in
        [images::pause()?, images::pause()?.named(images::CONTAINERD_PAUSE), images::busybox()?]
    {
        containerd.import(&image.oci_archive()?)?;
    }
    let images = BenchImages { quiet: images::PAUSE.to_owned(), shell: images::BUSYBOX.to_owned() };
    let endpoint = containerd.endpoint();
    let runtime = RuntimeObserver::connect(&endpoint)?;
    for program in [PathBuf::from(&keelson), parts::program("kubelet", "kubelet")?] {
        cold_program::forget(&program)?;
    }
    let (ours, theirs) = (AgentKind::keelson(Path::new(&keelson)), AgentKind::reference()?);
    let mut table = BenchTable::default();
    let only = std::env::args().nth(2);
    if only.as_deref() == Some("times") {
        let bare = measure::times(&bed, &runtime, &ours, &endpoint, &images)?;
        print_beside_bare_calls(&mut table, &bare);
        return table.judge();
    }
    if only.is_none() {
        let ours = measure::agent(&bed, &runtime, &ours, &endpoint, &images)?;
        let theirs = measure::agent(&bed, &runtime, &theirs, &endpoint, &images)?;
        print_beside_the_reference(&mut table, &ours, &theirs);
        let bare = ours.bare.as_ref().context("the bare calls were not measured")?;
        print_beside_bare_calls(&mut table, bare);
    }
    let kinds = [&ours, &theirs];
    measure_bursts(&mut table, |pods, turns| {
        let plan = measure::BurstPlan { images: &images, pods, turns };
        measure::bursts(&bed, &runtime, kinds, &endpoint, plan)
    })?;
    table.judge()
}

fn print_beside_the_reference(
    table: &mut BenchTable,
    ours: &PodBenchResult,
    theirs: &PodBenchResult,
) {
    table.heading("", "reference");
    let kib = |kib: u64| kib as f64;
    for (at, pods) in [0, 30, 110].into_iter().enumerate() {
        let (mine, other) = (&ours.memory[at], &theirs.memory[at]);
        let pss = (kib(mine.pss), kib(other.pss));
        let dirty = (kib(mine.private_dirty), kib(other.private_dirty));
        let most = Promise::AtMost(1.0 / 8.0);
        table.row(&row(&format!("PSS, {pods} pods"), pss, "KiB", most));
        table.row(&row(&format!("Private_Dirty, {pods} pods"), dirty, "KiB", most));
    }
    for (at, pods) in [0, 30, 110].into_iter().enumerate() {
        let times = (millis(ours.idle_cpu[at]), millis(theirs.idle_cpu[at]));
        let name = format!("CPU time in an idle minute, {pods} pods");
        table.row(&row(&name, times, "ms", Promise::AtMost(1.0 / 10.0)));
    }
    for (name, mine, other) in [
        ("manifest to container started, median", ours.single, theirs.single),
        ("crash to restarted, median", ours.crash, theirs.crash),
        ("manifest removed to pod gone, median", ours.removal, theirs.removal),
    ] {
        table.row(&row(name, (millis(mine), millis(other)), "ms", Promise::None));
    }
}

/// Numbers of pods at once, and how many turns of each.
const BURSTS: [(usize, usize); 2] = [(30, 5), (110, 3)];

fn measure_bursts(
    table: &mut BenchTable,
    measure: impl Fn(usize, usize) -> Result<PairedSamples>,
) -> Result<()> {
    let measured = BURSTS.map(|(count, turns)| (count, measure(count, turns)));
    table.heading("", "reference");
    for (count, turns) in measured {
        table.turns(&format!("{count} at once"), &turns?, "ms", Promise::AtMost(1.0));
    }
    Ok(())
}

/// Beside the runtime's own share: the same calls without an agent, in turns with the agent's pods.
fn print_beside_bare_calls(table: &mut BenchTable, bare: &BareRuntimeTimes) {
    table.heading("", "bare calls");
    let most = Promise::AtMost(1.15);
    table.turns("one pod: sandbox, create, start", &bare.pod, "ms", most);
    table.turns("crash: told, create, start, and 8.7 ms", &bare.crash, "ms", most);
    let alone = &bare.create_and_start;
    table.turns("crash: create, start, and 8.7 ms", alone, "ms", Promise::None);
}

fn row(name: &str, (ours, theirs): (f64, f64), unit: &'static str, promise: Promise) -> BenchRow {
    BenchRow { name: name.to_owned(), ours, theirs, unit, promise }
}
