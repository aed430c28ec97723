//! Checks of a fight's audit log: writes without the lease, interruptions that hit work in
//! progress, and writes to nodes that were well.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ports::ApiTime;
use real_tests::node_controller::audit::AuditedWrite;
use serde_json::json;

/// An instance was killed or stalled.
#[derive(Debug)]
pub(crate) struct Interruption {
    pub(crate) how: &'static str,
    /// The instance's user.
    pub(crate) user: String,
    /// The node that it was tainting.
    pub(crate) node: &'static str,
    pub(crate) at: ApiTime,
}

/// Writes that change the cluster: all but the lease itself, events, which are harmless, and
/// rejected writes. A lease does not fence, so an instance that was stalled sends its pending
/// writes when it resumes. They carry an old version, which the next leader has changed since.
fn is_act(write: &AuditedWrite) -> bool {
    write.node().is_some() && write.is_done()
}

fn is_claim(write: &AuditedWrite) -> bool {
    write.is_about_leading() && write.is_done()
}

/// The leader at the end of the log.
pub(crate) fn leader(writes: &[AuditedWrite]) -> Option<&str> {
    let last = writes.iter().rev().find(|write| is_claim(write))?;
    last.holder().map(|_| last.user.as_str())
}

/// Every such write was received while its instance held the lease: after its own claim or renewal,
/// within the lease duration, and before another instance even requested it. Returns the number of
/// such writes.
pub(crate) fn only_leaders_acted(writes: &[AuditedWrite], lease: Duration) -> Result<usize> {
    let bound = i64::try_from(lease.as_nanos())?;
    let mut acts = 0;
    for (at, write) in writes.iter().enumerate().filter(|(_, write)| is_act(write)) {
        // Asked for before, and done: it changes nothing.
        let again = write.verb == "delete"
            && writes.iter().take(at).any(|it| {
                let same = (&it.resource, &it.name) == (&write.resource, &write.name);
                same && it.verb == "delete" && it.is_done()
            });
        if again {
            continue;
        }
        acts += 1;
        let claim = writes.iter().take(at).rev().find(|write| is_claim(write));
        let claim =
            claim.with_context(|| format!("nobody had ever claimed the lease: {write:?}"))?;
        let age = write.received.nanos() - claim.received.nanos();
        let holder_and_state = (&claim.user, claim.holder().is_some());
        ensure!(
            holder_and_state == (&write.user, true),
            "{} held the lease for {age} ns: {write:?}",
            claim.user
        );
        ensure!(age <= bound, "the lease was {age} ns old: {write:?}");
    }
    Ok(acts)
}

/// Whether the instance had done part of the work, and another did the rest later.
pub(crate) fn was_interrupted(writes: &[AuditedWrite], interruption: &Interruption) -> bool {
    let part_of_it = |write: &&AuditedWrite| {
        let pods = write.resource.starts_with("pods");
        let is_eviction_step =
            pods || write.resource == "nodes/status" || write.taints_as_unreachable();
        write.node() == Some(interruption.node) && is_eviction_step && write.is_done()
    };
    let parts: Vec<&AuditedWrite> = writes.iter().filter(part_of_it).collect();
    let is_before = |write: &&&AuditedWrite| write.received.nanos() < interruption.at.nanos();
    parts.iter().filter(is_before).any(|write| write.user == interruption.user)
        && parts.iter().any(|write| write.received.nanos() > interruption.at.nanos())
}

/// No controller called these nodes lost, and none touched their pods.
pub(crate) fn left_alone(writes: &[AuditedWrite], nodes: &[&str]) -> Result<()> {
    let about_them = |write: &&AuditedWrite| write.node().is_some_and(|node| nodes.contains(&node));
    for write in writes.iter().filter(about_them) {
        let harmless = write.resource == "nodes" && !write.taints_as_unreachable();
        ensure!(harmless, "this node was well: {write:?}");
    }
    Ok(())
}

#[test]
fn a_write_without_the_lease_is_detected() -> Result<()> {
    let write = |user: &str, resource: &str, name: &str, second: i64| {
        let at = ApiTime::from_nanos(second * 1_000_000_000);
        AuditedWrite {
            user: user.to_owned(),
            verb: "patch".to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            received: at,
            answered: at,
            code: 200,
            body: json!({"spec": {"holderIdentity": user}}),
        }
    };
    let claim = |user: &str, second| write(user, "leases", "keelson-node-controller", second);
    let act = |user: &str, second| write(user, "pods", "go0-s0", second);
    let lease = Duration::from_secs(3);
    let well = [claim("a", 1), act("a", 2), claim("a", 3), act("a", 6), claim("b", 7), act("b", 8)];
    ensure!(only_leaders_acted(&well, lease)? == 3, "all of them are leaders' acts");
    ensure!(leader(&well) == Some("b"), "the last to claim it");
    let refused = AuditedWrite { code: 409, ..act("a", 8) };
    let late = [&well[..], &[refused]].concat();
    ensure!(only_leaders_acted(&late, lease)? == 3, "what is refused does nothing");
    for (wrong, why) in [
        (vec![act("a", 1), claim("a", 2)], "before any claim"),
        (vec![claim("a", 1), act("a", 5)], "after the lease ran out"),
        (vec![claim("a", 1), claim("b", 2), act("a", 3)], "after another's claim"),
    ] {
        ensure!(only_leaders_acted(&wrong, lease).is_err(), "{why}");
    }
    let interruption = |at: i64| Interruption {
        how: "killed",
        user: "a".to_owned(),
        node: "s0",
        at: ApiTime::from_nanos(at * 1_000_000_000),
    };
    ensure!(was_interrupted(&well, &interruption(4)), "part of it before, part of it after");
    ensure!(
        !was_interrupted(&well, &interruption(1)) && !was_interrupted(&well, &interruption(9)),
        "all or nothing"
    );
    ensure!(left_alone(&well, &["w0"]).is_ok() && left_alone(&well, &["s0"]).is_err(), "its pods");
    Ok(())
}
