//! `cargo xtask conformance node` and `node-over-cri`: upstream's node suite with the reference
//! kubelet or the agent, over containerd or `keelson cri`; the results, alone or side by side.
//!
//! `bed run -- node-specs run SETTINGS` runs the suite inside a bed (`SETTINGS`: [`RunSettings`] as
//! JSON). Outside one: `node-specs compare REFERENCE OURS LIST`, and `node-specs record RESULTS DIR NAME
//! ORIGIN`, which writes the record and the page beside its directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use node_testkit::bed::{self, Bed};
use node_testkit::start::{Containerd, ContainerdOptions, Mirror, RegistryOptions, RegistryServer};
use node_testkit::{images, parts, start};
use real_tests::embedded::{Embedded, EmbeddedOptions, RuntimePrograms};
use real_tests::node_specs::record::{self, RunRecord};
use real_tests::node_specs::results::{Results, SpecComparison};
use real_tests::node_specs::{
    AgentUnderTest, RunSettings, RuntimeUnderTest, images as spec_images, run,
};

fn main() -> Result<()> {
    let bed = bed::enter_role(None)?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match (words.as_slice(), bed) {
        (["compare", reference, ours, list], _) => compare(reference, ours, list),
        (["record", results, dir, name, origin], _) => {
            record(Path::new(results), Path::new(dir), name, origin)
        }
        (["run", settings], Some(bed)) => {
            run_suite(&bed, &serde_json::from_str(settings).context("SETTINGS")?)
        }
        _ => bail!("to be run in a bed: cargo xtask conformance node"),
    }
}

fn run_suite(bed: &Bed, settings: &RunSettings) -> Result<()> {
    let kept = Results::read(&settings.results).unwrap_or_default();
    let focus = match (&settings.focus, settings.rerun_failed) {
        (_, true) => Some(kept.focus_on_failed().context("no spec failed in the kept results")?),
        (focus, false) => focus.clone(),
    };
    let kubelet = match settings.agent {
        AgentUnderTest::Reference => parts::program("kubelet", "kubelet")?,
        AgentUnderTest::Keelson => settings.keelson.clone(),
    };
    let labels = settings.labels.clone().unwrap_or_else(|| run::QUICK.to_owned());
    let suite = run::Suite { kubelet, labels, focus, at_once: settings.at_once };
    let found = over_runtime(bed, settings, &suite)?;
    let results = if settings.rerun_failed { kept.updated_by(found) } else { found };
    results.write(&settings.results)?;
    println!("{results}");
    Ok(())
}

fn over_runtime(bed: &Bed, settings: &RunSettings, suite: &run::Suite) -> Result<Results> {
    let registry = RegistryServer::start(bed, RegistryOptions::default())?;
    let all = spec_images::all()?;
    for image in &all {
        images::push(registry.address(), image)?;
    }
    let mirrors = vec![Mirror { of: "registry.k8s.io".to_owned(), at: registry.url() }];
    match settings.runtime {
        RuntimeUnderTest::Containerd => {
            let sandbox_image = Some(images::PAUSE.to_owned());
            let options = ContainerdOptions {
                mirrors,
                test_handler: true,
                sandbox_image,
                ..ContainerdOptions::default()
            };
            let containerd = Containerd::start(bed, &options)?;
            for image in &all {
                containerd.import(&image.oci_archive()?)?;
            }
            run::run(bed, &containerd.endpoint(), suite)
        }
        RuntimeUnderTest::Keelson => {
            let cni = Some(start::BRIDGE.to_owned());
            let options = EmbeddedOptions { cni, mirrors, ..EmbeddedOptions::default() };
            let server =
                Embedded::start(bed, &RuntimePrograms::beside(&settings.keelson), &options)?;
            for image in &all {
                server.import(&image.oci_archive()?)?;
            }
            run::run(bed, &server.endpoint(), suite)
        }
    }
}

fn compare(reference: &str, ours: &str, list: &str) -> Result<()> {
    let (reference, ours) = (Results::read(Path::new(reference))?, Results::read(Path::new(ours))?);
    let comparison = SpecComparison { reference: &reference, ours: &ours };
    println!("{comparison}");
    let list = fs::read_to_string(list).with_context(|| list.to_owned())?;
    let wrong = comparison.unexplained(&list);
    if !wrong.is_empty() {
        bail!("{} specs are not as the list says:\n{}", wrong.len(), wrong.join("\n"));
    }
    Ok(())
}

/// Writes `DIR/NAME.tsv`, and `DIR.md` from every record in `DIR`.
fn record(results: &Path, dir: &Path, name: &str, origin: &str) -> Result<()> {
    let newest = RunRecord::of(&Results::read(results)?, origin);
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    let file = dir.join(format!("{name}.tsv"));
    fs::write(&file, newest.text()).with_context(|| file.display().to_string())?;
    let mut records = BTreeMap::new();
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        let Some(name) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        records.insert(name.to_owned(), RunRecord::parse(&text));
    }
    let page = dir.with_extension("md");
    fs::write(&page, record::page(&records)).with_context(|| page.display().to_string())
}
