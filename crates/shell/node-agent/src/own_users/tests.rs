//! User namespaces of pods over a disk that outlives the agent.

use super::*;
use node_policy::user_ranges::{USUAL_LENGTH, UserPool};
use runtime_fake::FakeHost;

fn pod(uid: &str, host_users: Option<bool>) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.uid = Box::from(uid);
    pod.spec.host_users = host_users;
    pod
}

fn users(host: &FakeHost, pods: u32) -> OwnUsers {
    let pool = UserPool { first: USUAL_LENGTH, count: pods * USUAL_LENGTH, length: USUAL_LENGTH };
    OwnUsers::new(Arc::new(host.clone()), "", UserRanges::new(pool, i64::from(pods)))
}

fn able(user_namespaces: bool) -> HandlerFeatures {
    HandlerFeatures { user_namespaces, ..HandlerFeatures::default() }
}

async fn first_of(users: &OwnUsers, uid: &str) -> Result<u32, String> {
    let given = users.of_pod(&pod(uid, Some(false)), &able(true)).await?;
    Ok(given.expect("own users").uids[0].host_id)
}

#[tokio::test]
async fn what_a_pod_was_given_it_has_again_and_nobody_else() {
    let host = FakeHost::default();
    let first = users(&host, 3);
    for uid in ["a", "b"] {
        host.make_pod(uid, "").await.unwrap();
    }
    let (a, b) = (first_of(&first, "a").await.unwrap(), first_of(&first, "b").await.unwrap());
    assert_ne!(a, b);
    assert_eq!(first_of(&first, "a").await, Ok(a));
    let next = users(&host, 3);
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
async fn who_does_not_ask_or_cannot_have_gets_none() {
    let host = FakeHost::default();
    let users = users(&host, 1);
    for (asks, handler) in
        [(None, able(true)), (Some(true), able(true)), (Some(false), able(false))]
    {
        assert_eq!(users.of_pod(&pod("a", asks), &handler).await, Ok(None));
    }
    let none = OwnUsers::new(Arc::new(host), "", Err("no pool".to_owned()));
    let refused = none.of_pod(&pod("a", Some(false)), &able(true)).await;
    assert_eq!(refused, Err("user namespace: no pool".to_owned()));
    assert_eq!(none.of_pod(&pod("a", None), &able(true)).await, Ok(None));
}

#[tokio::test]
async fn a_file_that_nobody_understands_and_a_full_disk_are_told() {
    let host = FakeHost::default();
    let all = users(&host, 2);
    host.make_pod("odd", "").await.unwrap();
    host.put_file("/pods/odd/userns", b"odd");
    host.make_pod("a", "").await.unwrap();
    let error = first_of(&all, "a").await.unwrap_err();
    assert!(error.contains("record pod mappings for existing pod \"odd\""), "{error}");
    host.remove_pod("odd").await.unwrap();
    host.fill_disk(true);
    let error = first_of(&all, "a").await.unwrap_err();
    assert!(error.starts_with("create user namespace: "), "{error}");
    host.fill_disk(false);
    assert_eq!(first_of(&all, "a").await, Ok(USUAL_LENGTH), "nothing was lost");
}
