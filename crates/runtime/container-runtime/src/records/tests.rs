//! What a power failure may do to the records of a pod, by stage.

use super::*;

fn durability_of_container(stage: ContainerStage, started_at: i64) -> Durability {
    let mut record = StoredContainer { started_at, ..StoredContainer::default() };
    record.set_stage(stage);
    record.durability()
}

#[test]
fn the_record_of_a_container_that_ran_survives_power_cuts() {
    use ContainerStage::{Created, Creating, Exited, Removing, Started, Unknown};
    let life = [
        (Creating, 0, Durability::SurvivesKills),
        (Created, 0, Durability::SurvivesKills),
        (Started, 0, Durability::Synced),
        (Started, 7, Durability::OldOrNew),
        (Exited, 7, Durability::Synced),
        (Unknown, 7, Durability::Synced),
        (Removing, 7, Durability::OldOrNew),
    ];
    let mut lasted = false;
    for (stage, started_at, expected) in life {
        let durability = durability_of_container(stage, started_at);
        assert_eq!(durability, expected, "{stage:?}");
        assert!(
            !lasted || durability != Durability::SurvivesKills,
            "{stage:?} may spoil what lasted"
        );
        lasted |= durability != Durability::SurvivesKills;
    }
}

#[test]
fn a_pod_record_is_synced_before_plugins_or_containers_act_for_it() {
    let durability = |stage, network: Option<NetworkRecord>| {
        let mut record = StoredSandbox { network, ..StoredSandbox::default() };
        record.set_stage(stage);
        record.durability()
    };
    let plan = || Some(NetworkRecord::default());
    assert_eq!(durability(SandboxStage::Creating, None), Durability::SurvivesKills);
    assert_eq!(durability(SandboxStage::Creating, plan()), Durability::Synced);
    assert_eq!(durability(SandboxStage::Ready, None), Durability::Synced);
    assert_eq!(durability(SandboxStage::Stopped, plan()), Durability::OldOrNew);
}
