//! What a power failure may do to the records of a pod, by stage.

use super::*;

fn container(stage: ContainerStage, started_at: i64) -> Lasting {
    let mut record = ContainerRecord { started_at, ..ContainerRecord::default() };
    record.set_stage(stage);
    record.lasting()
}

#[test]
fn a_container_that_ran_is_never_forgotten() {
    use ContainerStage::{Created, Exited, Making, Removing, Started, Unknown};
    let life = [
        (Making, 0, Lasting::ThroughKills),
        (Created, 0, Lasting::ThroughKills),
        (Started, 0, Lasting::Certain),
        (Started, 7, Lasting::Whole),
        (Exited, 7, Lasting::Certain),
        (Unknown, 7, Lasting::Certain),
        (Removing, 7, Lasting::Whole),
    ];
    let mut lasted = false;
    for (stage, started_at, expected) in life {
        let lasting = container(stage, started_at);
        assert_eq!(lasting, expected, "{stage:?}");
        assert!(!lasted || lasting != Lasting::ThroughKills, "{stage:?} may spoil what lasted");
        lasted |= lasting != Lasting::ThroughKills;
    }
}

#[test]
fn a_pod_is_certain_before_plugins_or_containers_do_anything_for_it() {
    let lasting = |stage, network: Option<NetworkRecord>| {
        let mut record = SandboxRecord { network, ..SandboxRecord::default() };
        record.set_stage(stage);
        record.lasting()
    };
    let plan = || Some(NetworkRecord::default());
    assert_eq!(lasting(SandboxStage::Making, None), Lasting::ThroughKills);
    assert_eq!(lasting(SandboxStage::Making, plan()), Lasting::Certain);
    assert_eq!(lasting(SandboxStage::Ready, None), Lasting::Certain);
    assert_eq!(lasting(SandboxStage::Stopped, plan()), Lasting::Whole);
}
