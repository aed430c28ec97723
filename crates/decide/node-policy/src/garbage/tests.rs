//! What garbage collection removes.

use super::*;

fn container(id: &str, name: &str, created: i64, state: ContainerState) -> ContainerRecord {
    ContainerRecord {
        id: id.to_owned(),
        sandbox_id: "s2".to_owned(),
        name: name.to_owned(),
        created_at: created,
        state,
        ..ContainerRecord::default()
    }
}

fn sandbox(id: &str, created: i64, ready: bool) -> SandboxRecord {
    SandboxRecord { id: id.to_owned(), created_at: created, ready, ..SandboxRecord::default() }
}

fn ids(set: &BTreeSet<String>) -> Vec<&str> {
    set.iter().map(String::as_str).collect()
}

#[test]
fn the_newest_dead_container_of_each_name_is_kept() {
    use ContainerState::{Created, Exited, Running, Unknown};
    let records = [
        container("a1", "a", 1, Exited),
        container("a2", "a", 2, Exited),
        container("a3", "a", 3, Exited),
        container("a4", "a", 4, Running),
        container("b1", "b", 1, Exited),
        container("c1", "c", 1, Created),
        container("d1", "d", 1, Unknown),
    ];
    let pod = |is_orphaned| PodRecords {
        uid: "u",
        is_orphaned,
        sandboxes: Vec::new(),
        containers: records.iter().collect(),
    };
    let now = ApiTime::from_nanos(10);
    let limits = DeadContainerLimits::default();
    assert_eq!(ids(&choose(&[pod(false)], &limits, now).containers), ["a1", "a2"]);
    assert_eq!(ids(&choose(&[pod(true)], &limits, now).containers), ["a1", "a2", "a3", "b1"]);
    let two = DeadContainerLimits { max_per_container: Some(2), ..limits.clone() };
    assert_eq!(ids(&choose(&[pod(false)], &two, now).containers), ["a1"]);
    let all = DeadContainerLimits { max_per_container: None, ..limits.clone() };
    assert!(choose(&[pod(false)], &all, now).containers.is_empty());
    let old = DeadContainerLimits { min_age: Duration::from_nanos(9), ..limits.clone() };
    assert!(choose(&[pod(false)], &old, now).containers.is_empty(), "only a1 and b1 are old");
    let few = DeadContainerLimits { max_per_container: None, max_total: Some(2), ..limits };
    assert_eq!(ids(&choose(&[pod(false)], &few, now).containers), ["a1", "a2"], "a share each");
    let one = DeadContainerLimits { max_total: Some(1), ..few };
    assert_eq!(ids(&choose(&[pod(false)], &one, now).containers), ["a1", "a2", "b1"]);
}

#[test]
fn sandboxes_go_when_they_are_empty_and_not_the_newest() {
    let sandboxes = [sandbox("s1", 1, false), sandbox("s2", 2, false), sandbox("s3", 3, false)];
    let record = container("a1", "a", 1, ContainerState::Exited);
    let pod = |is_orphaned| PodRecords {
        uid: "u",
        is_orphaned,
        sandboxes: sandboxes.iter().collect(),
        containers: vec![&record],
    };
    let now = ApiTime::from_nanos(10);
    let limits = DeadContainerLimits::default();
    assert_eq!(ids(&choose(&[pod(false)], &limits, now).sandboxes), ["s1"]);
    assert_eq!(ids(&choose(&[pod(true)], &limits, now).sandboxes), ["s1", "s2", "s3"]);
    let ready = sandbox("s0", 0, true);
    let running = PodRecords { sandboxes: vec![&ready, &sandboxes[0]], ..pod(true) };
    assert_eq!(ids(&choose(&[running], &limits, now).sandboxes), ["s1"], "a ready one stays");
}
