//! Users by number and by name, with and without tables.

use super::*;

fn tables() -> UserTables {
    UserTables {
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
fn home_dirs_come_from_the_password_file() {
    let home = |user| resolve(&security(Some(user), None), "", &tables()).unwrap().home;
    assert_eq!(
        (home(0).as_str(), home(1000).as_str(), home(77).as_str()),
        ("/root", "/home/web", "/")
    );
}

#[test]
fn an_unknown_user_or_group_is_an_error() {
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
    assert!(resolve(&wanted, "", &UserTables::default()).is_err());
    assert_eq!(resolve(&security(Some(3), None), "", &UserTables::default()).unwrap().gid, 0);
}

/// An image that was checked by its user's number must not run as another one, least of all root.
#[test]
fn a_number_out_of_range_is_refused_and_not_taken_for_a_name() {
    let hostile = UserTables {
        passwd: Some(
            "4294967296:x:0:0::/:/bin/sh\n-1:x:0:0::/:/bin/sh\nall:x:4294967295:5::/:\n".into(),
        ),
        group: Some("4294967295:x:0:\nall:x:4294967295:\n".into()),
    };
    let largest = "2147483647";
    for image in [
        "2147483648",
        "4294967295",
        "4294967296",
        "18446744073709551616",
        "-1",
        "5:4294967295",
        "5:2147483648",
        "all",
        "5:all",
    ] {
        let outcome = resolve(&security(None, None), image, &hostile);
        assert!(outcome.is_err(), "{image}: {outcome:?}");
    }
    for (user, group) in [(4_294_967_295, None), (-1, None), (5, Some(4_294_967_295))] {
        assert!(resolve(&security(Some(user), group), "", &hostile).is_err(), "{user} {group:?}");
    }
    let mut wanted = security(Some(5), None);
    wanted.supplemental_groups = vec![4_294_967_295];
    assert!(resolve(&wanted, "", &hostile).is_err());
    let identity = resolve(&security(None, None), largest, &hostile).unwrap();
    assert_eq!((identity.uid, identity.gid), (2_147_483_647, 0));
}
