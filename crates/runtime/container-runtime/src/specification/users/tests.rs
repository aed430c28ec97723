//! Users by number and by name, with and without tables.

use super::*;

fn tables() -> Tables {
    Tables {
        passwd: Some(
            "root:x:0:0:root:/root:/bin/sh\nbroken line\nweb:x:1000:1001::/home/web:/bin/sh\n"
                .into(),
        ),
        group: Some("root:x:0:\nweb:x:1001:\nextra:x:50000:web,other\nstaff:x:60:other\n".into()),
    }
}

fn security(user: Option<i64>, group: Option<i64>) -> v1::LinuxContainerSecurityContext {
    let value = |number: i64| v1::Int64Value { value: number };
    v1::LinuxContainerSecurityContext {
        run_as_user: user.map(value),
        run_as_group: group.map(value),
        ..Default::default()
    }
}

fn found(security: &v1::LinuxContainerSecurityContext, image: &str) -> (u32, u32, Vec<u32>) {
    let identity = resolve(security, image, &tables()).unwrap();
    (identity.uid, identity.gid, identity.groups)
}

#[test]
fn the_pod_wins_over_the_image() {
    assert_eq!(found(&security(None, None), ""), (0, 0, vec![0]));
    assert_eq!(found(&security(None, None), "web"), (1000, 1001, vec![1001, 50000]));
    assert_eq!(found(&security(None, None), "1000:60"), (1000, 60, vec![60, 50000]));
    assert_eq!(found(&security(None, None), "web:staff"), (1000, 60, vec![60, 50000]));
    assert_eq!(found(&security(Some(5), None), "web"), (5, 0, vec![0]));
    assert_eq!(found(&security(Some(1000), None), ""), (1000, 1001, vec![1001, 50000]));
    assert_eq!(found(&security(Some(1000), Some(7)), ""), (1000, 7, vec![7, 50000]));
}

#[test]
fn supplemental_groups_join_or_stand_alone() {
    let mut wanted = security(Some(1000), None);
    wanted.supplemental_groups = vec![9, 1001];
    assert_eq!(found(&wanted, ""), (1000, 1001, vec![9, 1001, 50000]));
    wanted.set_supplemental_groups_policy(v1::SupplementalGroupsPolicy::Strict);
    assert_eq!(found(&wanted, ""), (1000, 1001, vec![9, 1001]));
}

#[test]
fn homes_come_from_the_table() {
    let home = |user| resolve(&security(Some(user), None), "", &tables()).unwrap().home;
    assert_eq!(
        (home(0).as_str(), home(1000).as_str(), home(77).as_str()),
        ("/root", "/home/web", "/")
    );
}

#[test]
fn what_cannot_be_resolved_is_an_error() {
    let by_name = v1::LinuxContainerSecurityContext {
        run_as_username: "nobody".into(),
        ..Default::default()
    };
    for (security, image) in [
        (by_name, ""),
        (security(None, None), "ghost"),
        (security(None, None), "web:ghosts"),
        (security(None, Some(5)), ""),
    ] {
        assert!(resolve(&security, image, &tables()).is_err(), "{image}");
    }
    let mut wanted = security(None, None);
    wanted.supplemental_groups = vec![-1];
    assert!(resolve(&wanted, "", &Tables::default()).is_err());
    assert_eq!(resolve(&security(Some(3), None), "", &Tables::default()).unwrap().gid, 0);
}
