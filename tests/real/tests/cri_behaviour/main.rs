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

/// One case may take this long; a runtime that hangs must not take the others with it.
const ONE_CASE: Duration = Duration::from_secs(60);
const ALL_CASES: Duration = Duration::from_secs(900);

#[test]
fn containerd_behaves() -> Result<()> {
    let archives = support::archives()?;
    BedTest::new().needs(Containerd::NEEDS).deadline(ALL_CASES).run(|bed| {
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
    BedTest::new().deadline(ALL_CASES).run(|bed| {
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
    BedTest::new().needs(&["runc"]).deadline(ALL_CASES).run(|bed| {
        // KEELSON_OCI_PROGRAM names another OCI runtime, such as crun; runsc needs arguments, too.
        let runc = match std::env::var_os("KEELSON_OCI_PROGRAM") {
            Some(program) => program.into(),
            None => parts::program("runc", "runc")?,
        };
        let words = std::env::var("KEELSON_OCI_ARGUMENTS").unwrap_or_default();
        let words: Vec<&str> = words.split_whitespace().collect();
        let keelson = server::CriServer::start_with(bed, &programs, |config, dir| {
            config["handlers"] = serde_json::json!([]);
            config["runtimes"] =
                serde_json::json!({ "oci": { "program": runc, "arguments": words } });
            config["deviceSpecifications"] = serde_json::json!([dir.join("cdi")]);
        })?;
        for archive in archives.of(bed)? {
            keelson.import(&archive)?;
        }
        run_all(bed, &keelson.socket(), CriImplementation::Keelson, cases::of_handlers())
    })
}

/// Runs the table; prints every case, and collects those that are not as listed.
fn run_all(
    bed: &Bed,
    socket: &std::path::Path,
    which: CriImplementation,
    cases: impl Iterator<Item = &'static CriCase>,
) -> Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let wanted = std::env::var("KEELSON_CASE").ok();
    let mut wrong = Vec::new();
    let mut passed = 0;
    for case in cases {
        if wanted.as_deref().is_some_and(|wanted| !case.name.contains(wanted)) {
            continue;
        }
        let begun = Instant::now();
        let outcome = runtime.block_on(async {
            let cri = Cri::connect(socket, bed.dir(), case.name).await?;
            let run = tokio::time::timeout(ONE_CASE, (case.run)(&cri)).await;
            let outcome = run.unwrap_or_else(|_| bail!("not done after {ONE_CASE:?}"));
            cri.clean().await;
            outcome
        });
        let listed = differences::listed(which, case.name);
        let took = begun.elapsed().as_millis();
        match (&outcome, listed) {
            (Ok(()), None) => passed += 1,
            (Err(error), Some((words, reason))) if format!("{error:#}").contains(words) => {
                println!("differs  {} ({took} ms): {error:#}; listed: {reason}", case.name);
                continue;
            }
            (Ok(()), Some(_)) => {
                wrong.push(format!("{}: listed as a difference, but is none", case.name));
            }
            (Err(error), Some((words, _))) => {
                wrong.push(format!("{}: differs otherwise than {words:?}: {error:#}", case.name));
            }
            (Err(error), None) => wrong.push(format!("{}: {error:#}", case.name)),
        }
        let word = if outcome.is_ok() { "passed" } else { "FAILED" };
        println!("{word}   {} ({took} ms)", case.name);
    }
    println!("{passed} cases passed");
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("{} cases are not as expected:\n{}", wrong.len(), wrong.join("\n"))
}
