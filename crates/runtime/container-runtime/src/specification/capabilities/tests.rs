//! Sets by name: defaults, add, drop, all.

use super::*;

fn security(add: &[&str], drop: &[&str]) -> v1::LinuxContainerSecurityContext {
    let texts = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
    v1::LinuxContainerSecurityContext {
        capabilities: Some(v1::Capability {
            add_capabilities: texts(add),
            drop_capabilities: texts(drop),
            add_ambient_capabilities: Vec::new(),
        }),
        ..Default::default()
    }
}

const ALL: u64 = (1 << 41) - 1;

#[test]
fn sets_follow_what_was_asked_for() {
    let of = |add: &[&str], drop: &[&str]| of(&security(add, drop), ALL).effective;
    assert_eq!(of(&[], &[]), default_set());
    assert_eq!(default_set(), 0xa804_25fb, "the set that container tools share");
    assert_eq!(of(&["SYS_ADMIN"], &[]), default_set() | 1 << 21);
    assert_eq!(of(&["cap_sys_admin"], &[]), default_set() | 1 << 21);
    assert_eq!(of(&["ALL"], &["CHOWN"]), ALL & !1);
    assert_eq!(of(&["CHOWN"], &["ALL"]), 1);
    assert_eq!(of(&[], &["all"]), 0);
}

#[test]
fn privileged_containers_get_what_the_server_has() {
    let privileged =
        v1::LinuxContainerSecurityContext { privileged: true, ..security(&[], &["ALL"]) };
    assert_eq!(of(&privileged, 0b111).bounding, 0b111);
}

#[test]
fn inheritable_capabilities_are_only_ambient_ones() {
    let mut wanted = security(&[], &["ALL"]);
    assert_eq!(of(&wanted, ALL).inheritable, 0);
    if let Some(capabilities) = &mut wanted.capabilities {
        capabilities.add_ambient_capabilities = vec!["NET_BIND_SERVICE".to_owned()];
    }
    let set = of(&wanted, ALL);
    assert_eq!((set.ambient, set.inheritable, set.permitted), (1 << 10, 1 << 10, 1 << 10));
}

#[test]
fn unknown_names_change_nothing() {
    assert_eq!(of(&security(&["FLY"], &["SWIM"]), ALL).effective, default_set());
}

#[test]
fn the_servers_own_set_is_read_from_its_status() {
    assert_eq!(own_bounding_set("Name:\tx\nCapBnd:\t000001fffeffffff\n"), 0x1ff_feff_ffff);
    assert_eq!(own_bounding_set("nothing"), default_set());
}
