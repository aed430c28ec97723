//! A containerd with images, the built agent, and pods by a few words.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use node_testkit::bed::Bed;
use node_testkit::start::{Containerd, ContainerdOptions};
use node_testkit::{images, programs};
use real_tests::standalone::agent::Kind;
use real_tests::standalone::runtime::{Runtime, Seen};

/// The images must be made before the bed begins: it has no way to what they are made from.
pub(crate) fn archives() -> Result<Vec<PathBuf>> {
    let sandbox = images::pause()?.named(images::CONTAINERD_PAUSE);
    [images::pause()?, sandbox, images::busybox()?]
        .iter()
        .map(|image| image.oci_archive())
        .collect()
}

pub(crate) fn keelson() -> Result<Kind> {
    Ok(Kind::keelson(&programs::build("keelson", "keelson")?))
}

pub(crate) fn containerd(bed: &Bed, archives: &[PathBuf]) -> Result<(Containerd, Runtime)> {
    let containerd = Containerd::start(bed, &ContainerdOptions::default())?;
    for archive in archives {
        containerd.import(archive)?;
    }
    let runtime = Runtime::connect(&containerd.endpoint())?;
    Ok((containerd, runtime))
}

/// A pod on the host's network with one container that runs a shell script.
pub(crate) fn pod(name: &str, metadata: &str, script: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}{metadata}}}\nspec:\n  \
         hostNetwork: true\n  terminationGracePeriodSeconds: 2\n  containers:\n  - name: main\n    \
         image: {}\n    imagePullPolicy: IfNotPresent\n    command: [sh, -c, {script:?}]\n",
        images::BUSYBOX
    )
}

/// Sleeps for ever and ends at once when told.
pub(crate) const STEADY: &str = "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done";

pub(crate) fn wait_for(
    what: &str,
    limit: Duration,
    mut done: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if done()? {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    bail!("{what}: not within {limit:?}")
}

/// Containers by pod.
pub(crate) fn by_pod(seen: Vec<Seen>) -> BTreeMap<String, Vec<Seen>> {
    let mut pods: BTreeMap<String, Vec<Seen>> = BTreeMap::new();
    for one in seen {
        pods.entry(one.pod.clone()).or_default().push(one);
    }
    pods
}

/// The only container of a pod.
pub(crate) fn only(runtime: &Runtime, pod: &str) -> Result<Seen> {
    let seen = runtime.containers(pod)?;
    match seen.as_slice() {
        [one] => Ok(one.clone()),
        other => bail!("{pod} has {} containers: {other:?}", other.len()),
    }
}

/// The status of our agent's pod with that name.
pub(crate) fn status(pods: &serde_json::Value, name: &str) -> Result<serde_json::Value> {
    let items = pods["items"].as_array().context("items")?;
    let found = items.iter().find(|pod| pod["metadata"]["name"] == name);
    Ok(found.with_context(|| format!("no pod {name} in {pods}"))?["status"].clone())
}
