//! User namespaces of pods over a disk that outlives the agent.

use super::*;
use node_policy::user_namespace_ranges::{USUAL_LENGTH, UserNamespacePool};
use runtime_fake::FakeHost;

fn pod(uid: &str, host_users: Option<bool>) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.uid = Box::from(uid);
    pod.spec.host_users = host_users;
    pod
}

fn allocator(host: &FakeHost, pods: u32) -> UserNamespaceAllocator {
    let pool =
        UserNamespacePool { first: USUAL_LENGTH, count: pods * USUAL_LENGTH, length: USUAL_LENGTH };
    UserNamespaceAllocator::new(
        Arc::new(host.clone()),
        "",
        UserNamespaceRangeAllocator::new(pool, i64::from(pods)).map_err(|error| error.to_string()),
    )
}

fn able(user_namespaces: bool) -> HandlerFeatures {
    HandlerFeatures { user_namespaces, ..HandlerFeatures::default() }
}

async fn first_of(allocator: &UserNamespaceAllocator, uid: &str) -> Result<u32, String> {
    let given = allocator.allocate(&pod(uid, Some(false)), &able(true)).await?;
    Ok(given.expect("own users").uids[0].host_id)
}

#[tokio::test]
async fn a_pod_gets_its_recorded_range_again_and_no_other_pod_does() {
    let host = FakeHost::default();
    let first = allocator(&host, 3);
    for uid in ["a", "b"] {
        host.make_pod(uid, "").await.unwrap();
    }
    let (a, b) = (first_of(&first, "a").await.unwrap(), first_of(&first, "b").await.unwrap());
    assert_ne!(a, b);
    assert_eq!(first_of(&first, "a").await, Ok(a));
    let next = allocator(&host, 3);
    host.make_pod("c", "").await.unwrap();
    let c = first_of(&next, "c").await.unwrap();
    assert!(c != a && c != b, "those of the earlier agent are taken");
    assert_eq!(first_of(&next, "b").await, Ok(b));
    host.make_pod("d", "").await.unwrap();
    assert!(first_of(&next, "d").await.is_err(), "none is left");
    host.remove_pod("a").await.unwrap();
    assert_eq!(first_of(&next, "d").await, Ok(a), "its folder is gone");
}

#[tokio::test]
async fn a_pod_without_a_user_namespace_gets_no_range() {
    let host = FakeHost::default();
    let allocator = allocator(&host, 1);
    for (asks, handler) in
        [(None, able(true)), (Some(true), able(true)), (Some(false), able(false))]
    {
        assert_eq!(allocator.allocate(&pod("a", asks), &handler).await, Ok(None));
    }
    let none = UserNamespaceAllocator::new(Arc::new(host), "", Err("no pool".to_owned()));
    let refused = none.allocate(&pod("a", Some(false)), &able(true)).await;
    assert_eq!(refused, Err("user namespace: no pool".to_owned()));
    assert_eq!(none.allocate(&pod("a", None), &able(true)).await, Ok(None));
}

#[tokio::test]
async fn an_unreadable_mapping_file_and_a_full_disk_are_errors() {
    let host = FakeHost::default();
    let all = allocator(&host, 2);
    host.make_pod("odd", "").await.unwrap();
    host.put_file("/pods/odd/userns", b"odd");
    host.make_pod("a", "").await.unwrap();
    let error = first_of(&all, "a").await.unwrap_err();
    assert!(error.contains("record pod mappings for existing pod \"odd\""), "{error}");
    host.remove_pod("odd").await.unwrap();
    host.set_disk_full(true);
    let error = first_of(&all, "a").await.unwrap_err();
    assert!(error.starts_with("create user namespace: "), "{error}");
    host.set_disk_full(false);
    assert_eq!(first_of(&all, "a").await, Ok(USUAL_LENGTH), "nothing was lost");
}
