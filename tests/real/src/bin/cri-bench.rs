//! `cargo xtask bench cri`: `keelson cri` and containerd with runc under the same CRI calls in one
//! bed, running at the same time and measured in turns. Prints a table with ratios, since absolute
//! times mean nothing elsewhere. A broken promise of SPECIFICATION.md is an error.
//!
//! Runs inside a bed (`bed run -- cri-bench KEELSON [small]`).

use std::path::Path;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::{self, Bed};
use node_testkit::start::{
    BRIDGE, Containerd, ContainerdOptions, Mirror, RegistryOptions, RegistryServer,
};
use node_testkit::{images, parts};
use real_tests::cold_program;
use real_tests::cri_bench::calls::CriConnection;
use real_tests::cri_bench::images::{large, lines};
use real_tests::cri_bench::measure::{
    self, BenchSize, Both, CriBenchResult, MeasuredRuntime, RuntimeNames, Times,
};
use real_tests::cri_bench::memory::ProcessMemory;
use real_tests::cri_bench::plugins::TimedPlugins;
use real_tests::embedded::{Embedded, EmbeddedOptions, RuntimePrograms};
use real_tests::promises::{BenchRow, BenchTable, Promise};

fn main() -> Result<()> {
    let bed = bed::enter_role(None)?.context("to be run in a bed: cargo xtask bench cri")?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (keelson, rest) = arguments.split_first().context("usage: cri-bench KEELSON [small]")?;
    let size = if rest.first().is_some_and(|word| word == "small") {
        BenchSize::SMALL
    } else {
        BenchSize::WHOLE
    };
    for program in ["containerd", "containerd-shim-runc-v2"] {
        cold_program::forget(&parts::program("containerd", program)?)?;
    }
    cold_program::forget(Path::new(keelson))?;
    let registry = RegistryServer::start(&bed, RegistryOptions::default())?;
    images::push_stack(registry.address(), &large(size.layers, size.layer_mebibytes)?)?;
    let mirrors = vec![Mirror { of: "registry.test".to_owned(), at: registry.url() }];
    let plugins = timed_plugins(&bed)?;
    let tasks =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    // Both are up from the beginning to the end.
    let containerd = containerd(&bed, &mirrors)?;
    let server = embedded(&bed, Path::new(keelson), &mirrors)?;
    let measured = tasks.block_on(async {
        let ours = side(&bed, &server.socket(), OURS).await?;
        let theirs = side(&bed, &containerd.socket(), THEIRS).await?;
        measure::both(&Both { ours, theirs }, &plugins, size).await
    })?;
    let mut table = BenchTable::default();
    print(&mut table, &measured);
    table.judge()
}

/// Both runtimes find the plugins in the usual directory, each wrapped by a program that measures
/// it.
fn timed_plugins(bed: &Bed) -> Result<TimedPlugins> {
    let bridge = parts::program("cni-plugins", "bridge")?;
    let own = std::env::current_exe().context("find this program")?;
    TimedPlugins::install(
        bridge.parent().context("plugins lie in a folder")?,
        &bed.create_dir("plugins")?,
        &own.with_file_name("timed-plugin"),
    )
}

const OURS: RuntimeNames =
    RuntimeNames { server: "keelson", per_pod: "keelson-pod", group: "/bench-keelson" };
const THEIRS: RuntimeNames =
    RuntimeNames { server: "containerd", per_pod: "containerd-shim", group: "/bench-containerd" };

async fn side(bed: &Bed, socket: &Path, names: RuntimeNames) -> Result<MeasuredRuntime> {
    let logs = bed.create_dir(&format!("logs-{}", names.server))?;
    Ok(MeasuredRuntime {
        runtime: CriConnection::connect(socket, &logs, names.group).await?,
        names,
    })
}

fn containerd(bed: &Bed, mirrors: &[Mirror]) -> Result<Containerd> {
    let options = ContainerdOptions {
        mirrors: mirrors.to_vec(),
        sandbox_image: Some(images::PAUSE.to_owned()),
        ..ContainerdOptions::default()
    };
    let containerd = Containerd::start(bed, &options)?;
    for image in [images::pause()?, images::busybox()?, lines()?] {
        containerd.import(&image.oci_archive()?)?;
    }
    Ok(containerd)
}

fn embedded(bed: &Bed, keelson: &Path, mirrors: &[Mirror]) -> Result<Embedded> {
    let options = EmbeddedOptions {
        cni: Some(own_network()?),
        mirrors: mirrors.to_vec(),
        quiet: true,
        ..EmbeddedOptions::default()
    };
    let server = Embedded::start(bed, &RuntimePrograms::beside(keelson), &options)?;
    for image in [images::pause()?, images::busybox()?, lines()?] {
        server.import(&image.oci_archive()?)?;
    }
    Ok(server)
}

/// containerd's network with another name, bridge and range: the same work, and nothing shared.
fn own_network() -> Result<String> {
    let mut text = BRIDGE.to_owned();
    for (theirs, ours) in
        [("\"bed\"", "\"bed-keelson\""), ("pods0", "pods1"), ("10.88.0.0/16", "10.89.0.0/16")]
    {
        ensure!(text.contains(theirs), "the bed's network has no {theirs}");
        text = text.replace(theirs, ours);
    }
    Ok(text)
}

fn print(table: &mut BenchTable, measured: &CriBenchResult) {
    table.heading("", "containerd");
    let third = Promise::AtMost(1.0 / 3.0);
    print_times(table, ("host network", third), &measured.host);
    // With the plugins' own time, the same for both; without it is what is promised.
    let plugins = &measured.plugins;
    print_times(table, ("plugins", Promise::None), plugins);
    for (name, turns, promise) in [
        ("their own time of it", &plugins.of_plugins, Promise::None),
        ("all without it, median", &plugins.rest, third),
        ("their own time of one in eight", &plugins.of_plugins_among_eight, Promise::None),
        ("one in eight without it", &plugins.rest_among_eight, third),
    ] {
        table.turns(&format!("plugins: {name}"), turns, "ms", promise);
    }
    let mut row = |name: &str, (ours, theirs): (f64, f64), unit, promise| {
        table.row(&BenchRow { name: name.to_owned(), ours, theirs, unit, promise });
    };
    let pss = |both: Both<ProcessMemory>| (both.ours.pss as f64, both.theirs.pss as f64);
    let dirty = |both: Both<ProcessMemory>| {
        (both.ours.private_dirty as f64, both.theirs.private_dirty as f64)
    };
    let server = Promise::AtMost(1.0 / 6.0);
    for (name, memory) in
        [("server, no pods", measured.server_idle), ("server, with pods", measured.server)]
    {
        row(&format!("PSS, {name}"), pss(memory), "KiB", server);
        row(&format!("Private_Dirty, {name}"), dirty(memory), "KiB", server);
    }
    let per_pod = Promise::AtMost(1.0 / 4.0);
    let pods = measured.pods as f64;
    for (name, (ours, theirs), promise) in [
        ("PSS of supervisor or shim", pss(measured.per_pod), per_pod),
        ("Private_Dirty of the same", dirty(measured.per_pod), per_pod),
        ("PSS of pause programs", pss(measured.pauses), Promise::None),
    ] {
        let name = format!("{name}, each of {pods}");
        row(&name, (ours / pods, theirs / pods), "KiB", promise);
    }
    table.turns("exec of true, median", &measured.exec, "ms", third);
    table.turns("log of one container", &measured.log_rate, "MB/s", Promise::AtLeast(3.0));
    table.turns("pull and unpack, median", &measured.pull, "ms", Promise::AtMost(1.0));
}

fn print_times(table: &mut BenchTable, (network, promise): (&str, Promise), times: &Times) {
    for (name, turns, promise) in [
        ("sandbox+create+start, median", &times.whole, promise),
        ("  sandbox", &times.sandbox, Promise::None),
        ("  create", &times.create, Promise::None),
        ("  start", &times.start, Promise::None),
        ("eight at once", &times.eight, promise),
        ("stop+remove, median", &times.removal, Promise::None),
    ] {
        table.turns(&format!("{network}: {name}"), turns, "ms", promise);
    }
}
