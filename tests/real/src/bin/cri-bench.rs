//! `cargo xtask bench cri`: `keelson cri` beside containerd and runc, by the same CRI calls in one
//! bed, one after the other. A table with ratios, since absolute times of one run mean nothing
//! elsewhere. A promise of SPECIFICATION.md that is not kept is an error.
//!
//! Runs inside a bed (`bed run -- cri-bench KEELSON [small]`).

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use node_testkit::bed::{self, Bed};
use node_testkit::start::{
    BRIDGE, Containerd, ContainerdOptions, Mirror, Registry, RegistryOptions,
};
use node_testkit::{images, parts};
use real_tests::cold_program;
use real_tests::cri_bench::images::{large, lines};
use real_tests::cri_bench::measure::{self, Measured, Names, Size, Times};
use real_tests::embedded::{Embedded, EmbeddedOptions, Programs};
use real_tests::promises::{Promise, Row, Table};

fn main() -> Result<()> {
    let bed = bed::enter_role(None)?.context("to be run in a bed: cargo xtask bench cri")?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (keelson, rest) = arguments.split_first().context("usage: cri-bench KEELSON [small]")?;
    let size =
        if rest.first().is_some_and(|word| word == "small") { Size::SMALL } else { Size::WHOLE };
    for program in ["containerd", "containerd-shim-runc-v2"] {
        cold_program::forget(&parts::program("containerd", program)?)?;
    }
    cold_program::forget(Path::new(keelson))?;
    let registry = Registry::start(&bed, RegistryOptions::default())?;
    images::push_stack(registry.address(), &large(size.layers, size.layer_mebibytes)?)?;
    let mirrors = vec![Mirror { of: "registry.test".to_owned(), at: registry.url() }];
    let tasks =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let theirs = tasks.block_on(containerd(&bed, &mirrors, size))?;
    let ours = tasks.block_on(embedded(&bed, Path::new(keelson), &mirrors, size))?;
    let mut table = Table::default();
    print(&mut table, &ours, &theirs);
    table.judge()
}

async fn containerd(bed: &Bed, mirrors: &[Mirror], size: Size) -> Result<Measured> {
    let options = ContainerdOptions {
        mirrors: mirrors.to_vec(),
        sandbox_image: Some(images::PAUSE.to_owned()),
        ..ContainerdOptions::default()
    };
    let containerd = Containerd::start(bed, &options)?;
    for image in [images::pause()?, images::busybox()?, lines()?] {
        containerd.import(&image.oci_archive()?)?;
    }
    let names = Names { server: "containerd", per_pod: "containerd-shim" };
    let logs = bed.make_folder("logs-containerd")?;
    measure::runtime(&containerd.socket(), &logs, names, size).await
}

async fn embedded(bed: &Bed, keelson: &Path, mirrors: &[Mirror], size: Size) -> Result<Measured> {
    let options = EmbeddedOptions {
        cni: Some(BRIDGE.to_owned()),
        mirrors: mirrors.to_vec(),
        quiet: true,
        ..EmbeddedOptions::default()
    };
    let server = Embedded::start(bed, &Programs::beside(keelson), &options)?;
    for image in [images::pause()?, images::busybox()?, lines()?] {
        server.import(&image.oci_archive()?)?;
    }
    let names = Names { server: "keelson", per_pod: "keelson-pod" };
    let logs = bed.make_folder("logs-keelson")?;
    measure::runtime(&server.socket(), &logs, names, size).await
}

fn print(table: &mut Table, ours: &Measured, theirs: &Measured) {
    table.heading("", "containerd");
    let third = Promise::AtMost(1.0 / 3.0);
    print_times(table, ("host network", third), &ours.host, &theirs.host);
    // Most of this is the plugins' own time, the same for both: shown, and promised without it.
    print_times(table, ("plugins", Promise::None), &ours.plugins, &theirs.plugins);
    let share =
        |measured: &Measured| millis(measured.plugins.sandbox) - millis(measured.host.sandbox);
    let mut row = |name: &str, ours: f64, theirs: f64, unit, promise| {
        table.row(&Row { name: name.to_owned(), ours, theirs, unit, promise });
    };
    row("the plugins' share of a sandbox", share(ours), share(theirs), "ms", Promise::None);
    let server = Promise::AtMost(1.0 / 6.0);
    for (name, mine, other) in [
        ("server, no pods", ours.server_idle, theirs.server_idle),
        ("server, with pods", ours.server, theirs.server),
    ] {
        row(&format!("PSS, {name}"), mine.pss as f64, other.pss as f64, "KiB", server);
        let (mine, other) = (mine.private_dirty as f64, other.private_dirty as f64);
        row(&format!("Private_Dirty, {name}"), mine, other, "KiB", server);
    }
    let each = |measured: &Measured, sum: u64| sum as f64 / measured.pods as f64;
    let per_pod = Promise::AtMost(1.0 / 4.0);
    for (name, mine, other, promise) in [
        ("PSS of supervisor or shim", ours.per_pod.pss, theirs.per_pod.pss, per_pod),
        (
            "Private_Dirty of the same",
            ours.per_pod.private_dirty,
            theirs.per_pod.private_dirty,
            per_pod,
        ),
        ("PSS of pause programs", ours.pauses.pss, theirs.pauses.pss, Promise::None),
    ] {
        let name = format!("{name}, each of {}", ours.pods);
        row(&name, each(ours, mine), each(theirs, other), "KiB", promise);
    }
    row("exec of true, median", millis(ours.exec), millis(theirs.exec), "ms", third);
    let thrice = Promise::AtLeast(3.0);
    row("log of one container", ours.log_rate / 1e6, theirs.log_rate / 1e6, "MB/s", thrice);
    let no_slower = Promise::AtMost(1.0);
    row("pull and unpack, median", millis(ours.pull), millis(theirs.pull), "ms", no_slower);
}

fn print_times(
    table: &mut Table,
    (network, promise): (&str, Promise),
    mine: &Times,
    other: &Times,
) {
    for (name, mine, other, promise) in [
        ("sandbox+create+start, median", mine.whole, other.whole, promise),
        ("  sandbox", mine.sandbox, other.sandbox, Promise::None),
        ("  create", mine.create, other.create, Promise::None),
        ("  start", mine.start, other.start, Promise::None),
        ("eight at once", mine.eight, other.eight, promise),
        ("stop+remove, median", mine.removal, other.removal, Promise::None),
    ] {
        let name = format!("{network}: {name}");
        table.row(&Row { name, ours: millis(mine), theirs: millis(other), unit: "ms", promise });
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
