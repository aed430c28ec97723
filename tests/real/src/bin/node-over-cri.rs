//! `cargo xtask conformance node-over-cri`: upstream's node specs on containers under the reference
//! kubelet, over containerd and over `keelson cri`; the results side by side.
//!
//! Runs inside a bed for the one half or the other (`bed run -- node-over-cri keelson KEELSON OUT
//! [FOCUS]`), and outside one for the comparison (`node-over-cri compare REFERENCE OURS LIST`).

use std::path::Path;

use anyhow::{Context, Result, bail};
use node_testkit::bed::{self, Bed};
use node_testkit::start::{Containerd, ContainerdOptions, Mirror, Registry, RegistryOptions};
use node_testkit::{images, start};
use real_tests::embedded::{Embedded, EmbeddedOptions, Programs};
use real_tests::node_specs::results::{Comparison, Results};
use real_tests::node_specs::{images as spec_images, run};

const AT_ONCE: u32 = 8;

fn main() -> Result<()> {
    let bed = bed::enter_role(None)?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match (words.as_slice(), bed) {
        (["compare", reference, ours, list], _) => compare(reference, ours, list),
        ([runtime, keelson, out, focus @ ..], Some(bed)) => {
            let focus = focus.first().copied().unwrap_or(run::ON_CONTAINERS);
            let results = one_half(&bed, runtime, Path::new(keelson), focus)?;
            results.write(Path::new(out))?;
            eprintln!(
                "{} specs passed, {} failed",
                results.count("passed"),
                results.count("failed")
            );
            Ok(())
        }
        _ => bail!("to be run in a bed: cargo xtask conformance node-over-cri"),
    }
}

fn one_half(bed: &Bed, runtime: &str, keelson: &Path, focus: &str) -> Result<Results> {
    let registry = Registry::start(bed, RegistryOptions::default())?;
    let all = spec_images::all()?;
    for image in &all {
        images::push(registry.address(), image)?;
    }
    let mirrors = vec![Mirror { of: "registry.k8s.io".to_owned(), at: registry.url() }];
    match runtime {
        "containerd" => {
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
            run::run(bed, &containerd.endpoint(), focus, AT_ONCE)
        }
        "keelson" => {
            let cni = Some(start::BRIDGE.to_owned());
            let options = EmbeddedOptions { cni, mirrors, ..EmbeddedOptions::default() };
            let server = Embedded::start(bed, &Programs::beside(keelson), &options)?;
            for image in &all {
                server.import(&image.oci_archive()?)?;
            }
            run::run(bed, &server.endpoint(), focus, AT_ONCE)
        }
        other => bail!("there is no runtime {other:?}: expected containerd or keelson"),
    }
}

fn compare(reference: &str, ours: &str, list: &str) -> Result<()> {
    let (reference, ours) = (Results::read(Path::new(reference))?, Results::read(Path::new(ours))?);
    let comparison = Comparison { reference: &reference, ours: &ours };
    println!("{comparison}");
    let list = std::fs::read_to_string(list).with_context(|| list.to_owned())?;
    let wrong = comparison.unexplained(&list);
    if !wrong.is_empty() {
        bail!("{} specs are not as the list says:\n{}", wrong.len(), wrong.join("\n"));
    }
    Ok(())
}
