//! The behaviour of a CRI runtime: one table of cases, run on containerd and on the embedded
//! runtime.
//!
//! Rule: a case asserts what the CRI specification or containerd's behaviour demands, and is the
//! same for both. `differences.rs` lists where a runtime differs, with the reason and the text of
//! the error; a difference that is not listed fails, and so does a listed one that no longer occurs
//! or has another error.

mod cases;
mod differences;
mod registries;
mod server;
mod support;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use node_testkit::bed::{Bed, BedTest};
use node_testkit::start::{Containerd, ContainerdOptions};
use node_testkit::{images, parts};

use differences::CriImplementation;
use support::{Cri, CriCase};

/// The limit of one case, so that a runtime that hangs in it does not block the others.
const CASE_TIMEOUT: Duration = Duration::from_secs(60);
const ALL_CASES_DEADLINE: Duration = Duration::from_secs(900);

#[test]
fn containerd_behaves() -> Result<()> {
    let archives = support::archives()?;
    BedTest::new().needs(Containerd::NEEDS).deadline(ALL_CASES_DEADLINE).run(|bed| {
        bed.mount_odd_names()?;
        let options = ContainerdOptions {
            sandbox_image: Some(images::PAUSE.to_owned()),
            test_handler: true,
            ..ContainerdOptions::default()
        };
        let containerd = Containerd::start(bed, &options)?;
        for archive in archives.of(bed)? {
            containerd.import(&archive)?;
        }
        run_all(bed, &containerd.socket(), CriImplementation::Containerd, cases::all())
    })
}

#[test]
fn keelson_behaves() -> Result<()> {
    let archives = support::archives()?;
    let programs = server::build()?;
    BedTest::new().deadline(ALL_CASES_DEADLINE).run(|bed| {
        bed.mount_odd_names()?;
        let keelson = server::CriServer::start(bed, &programs)?;
        for archive in archives.of(bed)? {
            keelson.import(&archive)?;
        }
        let cases = cases::all().chain(cases::of_hostile());
        run_all(bed, &keelson.socket(), CriImplementation::Keelson, cases)
    })
}

#[test]
fn handlers_behave() -> Result<()> {
    let archives = support::archives()?;
    let programs = server::build()?;
    BedTest::new().needs(&["runc"]).deadline(ALL_CASES_DEADLINE).run(|bed| {
        // KEELSON_OCI_PROGRAM names another OCI runtime, such as crun; runsc needs arguments, too.
        let runc = match std::env::var_os("KEELSON_OCI_PROGRAM") {
            Some(program) => program.into(),
            None => parts::program("runc", "runc")?,
        };
        let arguments = std::env::var("KEELSON_OCI_ARGUMENTS").unwrap_or_default();
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        let keelson = server::CriServer::start_with(bed, &programs, |config, dir| {
            config["handlers"] = serde_json::json!([]);
            config["runtimes"] =
                serde_json::json!({ "oci": { "program": runc, "arguments": arguments } });
            config["deviceSpecifications"] = serde_json::json!([dir.join("cdi")]);
        })?;
        for archive in archives.of(bed)? {
            keelson.import(&archive)?;
        }
        run_all(bed, &keelson.socket(), CriImplementation::Keelson, cases::of_handlers())
    })
}

/// Runs and prints every case; fails with the cases whose outcome is not as expected.
fn run_all(
    bed: &Bed,
    socket: &std::path::Path,
    implementation: CriImplementation,
    cases: impl Iterator<Item = &'static CriCase>,
) -> Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let name_filter = std::env::var("KEELSON_CASE").ok();
    let mut unexpected = Vec::new();
    let mut passed = 0;
    for case in cases {
        if name_filter.as_deref().is_some_and(|part| !case.name.contains(part)) {
            continue;
        }
        let started = Instant::now();
        let outcome = runtime.block_on(async {
            let cri = Cri::connect(socket, bed.dir(), case.name).await?;
            let run = tokio::time::timeout(CASE_TIMEOUT, (case.run)(&cri)).await;
            let outcome = run.unwrap_or_else(|_| bail!("not done after {CASE_TIMEOUT:?}"));
            cri.clean().await;
            outcome
        });
        let listed = differences::listed(implementation, case.name);
        let took = started.elapsed().as_millis();
        match (&outcome, listed) {
            (Ok(()), None) => passed += 1,
            (Err(error), Some((expected, reason))) if format!("{error:#}").contains(expected) => {
                println!("differs  {} ({took} ms): {error:#}; listed: {reason}", case.name);
                continue;
            }
            (Ok(()), Some(_)) => {
                unexpected.push(format!("{}: listed as a difference, but it passed", case.name));
            }
            (Err(error), Some((expected, _))) => {
                unexpected.push(format!(
                    "{}: an error other than the listed {expected:?}: {error:#}",
                    case.name
                ));
            }
            (Err(error), None) => unexpected.push(format!("{}: {error:#}", case.name)),
        }
        let verdict = if outcome.is_ok() { "passed" } else { "FAILED" };
        println!("{verdict}   {} ({took} ms)", case.name);
    }
    println!("{passed} cases passed");
    if unexpected.is_empty() {
        return Ok(());
    }
    bail!("{} cases are not as expected:\n{}", unexpected.len(), unexpected.join("\n"))
}
