//! Late writes of a dead leader assign no range any more, on a real API server.
//!
//! Rule: the test itself sends the late write exactly as a leader does: with the version that the
//! node had when that leader died, and with the range that its successor has given to another node
//! since.

use std::time::Duration;

use anyhow::{Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::programs;
use node_testkit::start::ControlPlane;
use ports::cluster_api::{ObjectPath, Patch, PatchKind};
use ports::{ClusterApi as _, ClusterApiError};
use serde_json::json;

use crate::stage::{ClusterTest, seconds};

/// Room for two ranges.
const FLAGS: &[&str] =
    &["--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/23", "--node-cidr-mask-size=24"];
/// Nodes that join when both ranges are assigned.
const WAITING: [&str; 2] = ["n2", "n3"];
const FENCE: &str = "keelson/range-fence";

#[test]
fn a_late_pod_cidr_assignment_is_rejected() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    BedTest::new().needs(ControlPlane::NEEDS).deadline(Duration::from_mins(4)).run(|bed| {
        let stage = ClusterTest::new(bed, &keelson)?;
        stage.join(&["n0", "n1"], "a")?;
        let mut first = stage.controller("first", FLAGS)?;
        let range = |name: &str| anyhow::Ok(stage.node(name)?.spec.pod_cidr);
        stage.until("both have ranges", seconds(20), || {
            Ok(!range("n0")?.is_empty() && !range("n1")?.is_empty())
        })?;
        stage.join(&WAITING, "a")?;
        for node in WAITING {
            stage.until("none is left", seconds(30), || {
                Ok(stage.reasons(node)?.contains("CIDRNotAvailable"))
            })?;
            let worn = stage.node(node)?.metadata.annotations;
            ensure!(!worn.contains_key(FENCE), "the first has nobody to fence off: {worn:?}");
        }
        first.kill()?;
        // As if it had seen this node go, and given its range to one of the two with its last breath.
        stage.delete_node("n1")?;
        let known = WAITING.map(|name| anyhow::Ok(stage.node(name)?.metadata.resource_version));
        let second = stage.controller("second", FLAGS)?;
        stage.until("handed out again", seconds(60), || {
            Ok(!range(WAITING[0])?.is_empty() || !range(WAITING[1])?.is_empty())
        })?;
        // The node that is observed first gets it.
        let (mut lucky, mut other) = (WAITING[0], WAITING[1]);
        let [mut version_of_lucky, mut version] = known;
        if range(lucky)?.is_empty() {
            std::mem::swap(&mut lucky, &mut other);
            std::mem::swap(&mut version_of_lucky, &mut version);
        }
        let given = range(lucky)?;
        ensure!(range(other)?.is_empty(), "none was left for it");
        let late = json!({
            "metadata": {"resourceVersion": version?, "annotations": {FENCE: null}},
            "spec": {"podCIDR": given, "podCIDRs": [given]},
        });
        let late = Patch {
            kind: PatchKind::Merge,
            subresource: None,
            body: late.to_string().into_bytes(),
        };
        let path = ObjectPath::node(other);
        let answer = stage.runtime.block_on(stage.cluster.client.patch(&path, late));
        let log = || std::fs::read_to_string(second.log());
        ensure!(matches!(answer, Err(ClusterApiError::Conflict { .. })), "{answer:?}: {}", log()?);
        ensure!(range(other)?.is_empty(), "it has {}", range(other)?);
        // The fence annotation caused the conflict, and a node with a range no longer has one.
        let worn =
            |name: &str| anyhow::Ok(stage.node(name)?.metadata.annotations.contains_key(FENCE));
        ensure!(worn(other)?, "{other} was not fenced off");
        ensure!(!worn(lucky)?, "{lucky} still wears it");
        let explanation = stage.explain("second", other)?;
        ensure!(explanation.contains("No pod range is left for it."), "{explanation}");
        stage.delete_node("n0")?;
        stage.until("the next one's", seconds(30), || Ok(!range(other)?.is_empty()))?;
        ensure!(range(other)? != given && !worn(other)?);
        ensure!(!log()?.contains("panicked"), "{}", log()?);
        Ok(())
    })
}
