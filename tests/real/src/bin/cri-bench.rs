//! `cargo xtask bench cri`: `keelson cri` beside containerd and runc, by the same CRI calls in one
//! bed, one after the other. A table with ratios, since absolute times of one run mean nothing
//! elsewhere.
//!
//! Runs inside a bed (`bed run -- cri-bench KEELSON [small]`).

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use node_testkit::bed::{self, Bed};
use node_testkit::images;
use node_testkit::start::{
    BRIDGE, Containerd, ContainerdOptions, Mirror, Registry, RegistryOptions,
};
use real_tests::cri_bench::images::{large, lines};
use real_tests::cri_bench::measure::{self, Measured, Names, Size, Times};
use real_tests::embedded::{Embedded, EmbeddedOptions, Programs};

fn main() -> Result<()> {
    let bed = bed::enter_role(None)?.context("to be run in a bed: cargo xtask bench cri")?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (keelson, rest) = arguments.split_first().context("usage: cri-bench KEELSON [small]")?;
    let size =
        if rest.first().is_some_and(|word| word == "small") { Size::SMALL } else { Size::WHOLE };
    let registry = Registry::start(&bed, RegistryOptions::default())?;
    images::push_stack(registry.address(), &large(size.layers, size.layer_mebibytes)?)?;
    let mirrors = vec![Mirror { of: "registry.test".to_owned(), at: registry.url() }];
    let tasks =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let theirs = tasks.block_on(containerd(&bed, &mirrors, size))?;
    let ours = tasks.block_on(embedded(&bed, Path::new(keelson), &mirrors, size))?;
    print_table(&ours, &theirs);
    Ok(())
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

fn row(name: &str, ours: f64, theirs: f64, unit: &str) {
    println!("{name:<44} {ours:>11.1} {theirs:>11.1} {unit:<5} {:>7.3}", ours / theirs);
}

fn print_table(ours: &Measured, theirs: &Measured) {
    println!("{:<44} {:>11} {:>11} {:<5} {:>7}", "", "keelson", "containerd", "", "ratio");
    for (network, mine, other) in
        [("host network", &ours.host, &theirs.host), ("plugins", &ours.plugins, &theirs.plugins)]
    {
        print_times(network, mine, other);
    }
    let share =
        |measured: &Measured| millis(measured.plugins.sandbox) - millis(measured.host.sandbox);
    row("the plugins' share of a sandbox", share(ours), share(theirs), "ms");
    for (name, mine, other) in [
        ("server, no pods", ours.server_idle, theirs.server_idle),
        ("server, with pods", ours.server, theirs.server),
    ] {
        row(&format!("PSS, {name}"), mine.pss as f64, other.pss as f64, "KiB");
        let (mine, other) = (mine.private_dirty as f64, other.private_dirty as f64);
        row(&format!("Private_Dirty, {name}"), mine, other, "KiB");
    }
    let each = |measured: &Measured, sum: u64| sum as f64 / measured.pods as f64;
    let pods = ours.pods;
    let (mine, other) = (ours.per_pod, theirs.per_pod);
    row(
        &format!("PSS of supervisor or shim, each of {pods}"),
        each(ours, mine.pss),
        each(theirs, other.pss),
        "KiB",
    );
    row(
        &format!("Private_Dirty of the same, each of {pods}"),
        each(ours, mine.private_dirty),
        each(theirs, other.private_dirty),
        "KiB",
    );
    println!(
        "{:<44} {:>11.1} {:>11.1} KiB",
        "PSS of pause programs, each",
        each(ours, ours.pauses.pss),
        each(theirs, theirs.pauses.pss)
    );
    row("exec of true, median", millis(ours.exec), millis(theirs.exec), "ms");
    row("log of one container", ours.log_rate / 1e6, theirs.log_rate / 1e6, "MB/s");
    row("pull and unpack, median", millis(ours.pull), millis(theirs.pull), "ms");
}

fn print_times(network: &str, mine: &Times, other: &Times) {
    for (name, mine, other) in [
        ("sandbox+create+start, median", mine.whole, other.whole),
        ("  sandbox", mine.sandbox, other.sandbox),
        ("  create", mine.create, other.create),
        ("  start", mine.start, other.start),
        ("eight at once", mine.eight, other.eight),
        ("stop+remove, median", mine.removal, other.removal),
    ] {
        row(&format!("{network}: {name}"), millis(mine), millis(other), "ms");
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
