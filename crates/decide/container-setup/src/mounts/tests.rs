//! Mounts in their order, and every reason to reject one.

use super::*;
use crate::testing::{first, node, one, one_with, texts};
use ports::runtime_objects::{HandlerFeatures, IdMapping, ImageSpec, NamespaceMode, UserNamespace};

fn facts() -> ContainerSetupInputs {
    let volume = |path: &str| ReadyVolume { path: path.into(), ..Default::default() };
    ContainerSetupInputs {
        pod_ips: texts(&["10.0.0.1"]),
        volumes: [
            ("data".to_owned(), volume("/v/data")),
            ("fixed".to_owned(), ReadyVolume { read_only: true, ..volume("/v/fixed") }),
            ("label".to_owned(), ReadyVolume { selinux_relabel: true, ..volume("/v/label") }),
            ("block".to_owned(), ReadyVolume { device: Some("/d".into()), ..Default::default() }),
            (
                "image".to_owned(),
                ReadyVolume {
                    image: Some(ImageSpec { image: "vol:1".into(), ..Default::default() }),
                    ..Default::default()
                },
            ),
        ]
        .into(),
        sub_paths: [(0, "/pinned/0".to_owned())].into(),
        ..Default::default()
    }
}

fn made_with(
    pod: &Pod,
    node: &NodeSetupInputs,
    pod_facts: &PodSetupInputs,
    facts: &ContainerSetupInputs,
) -> Result<Vec<Mount>, String> {
    let env = [("WHO".to_owned(), "me".to_owned()), ("EMPTY".to_owned(), String::new())];
    let inputs = MountInputs { pod, container: first(pod), node, pod_facts, facts, env: &env };
    of_container(&inputs).map_err(|error| error.to_string())
}

fn made(mounts: &str) -> Result<Vec<Mount>, String> {
    made_with(
        &one(&format!("volumeMounts: [{mounts}]")),
        &node(),
        &PodSetupInputs::default(),
        &facts(),
    )
}

fn one_mount(mount: &str) -> Mount {
    let mut mounts = made(mount).expect(mount);
    assert_eq!(mounts.len(), 1, "{mount}");
    mounts.remove(0)
}

#[test]
fn a_plain_mount() {
    let expected =
        Mount { container_path: "/data".into(), host_path: "/v/data".into(), ..Default::default() };
    assert_eq!(one_mount("{name: data, mountPath: /data}"), expected);
    assert_eq!(one_mount("{name: data, mountPath: data}"), expected);
}

#[test]
fn read_only_by_the_mount_or_by_the_volume() {
    for (mount, readonly) in [
        ("{name: data, mountPath: /a}", false),
        ("{name: data, mountPath: /a, readOnly: true}", true),
        ("{name: fixed, mountPath: /a}", true),
        ("{name: fixed, mountPath: /a, readOnly: false}", true),
    ] {
        assert_eq!(one_mount(mount).readonly, readonly, "{mount}");
    }
}

#[test]
fn propagation() {
    for (word, expected) in [
        ("None", Propagation::Private),
        ("HostToContainer", Propagation::HostToContainer),
        ("Bidirectional", Propagation::Bidirectional),
    ] {
        let mount = format!("{{name: data, mountPath: /a, mountPropagation: {word}}}");
        assert_eq!(one_mount(&mount).propagation, expected, "{word}");
    }
    let odd = "{name: data, mountPath: /a, mountPropagation: Odd}";
    assert_eq!(made(odd), Err("invalid MountPropagation mode: \"Odd\"".to_owned()));
}

#[test]
fn recursive_read_only() {
    let able = PodSetupInputs {
        handler: HandlerFeatures { recursive_read_only_mounts: true, ..Default::default() },
        ..Default::default()
    };
    let failed = "failed to resolve recursive read-only mode: volume \"data\" requested recursive read-only mode, but it is not";
    for (requested_mode, supported, expected) in [
        ("readOnly: true", true, Ok(false)),
        ("readOnly: true, recursiveReadOnly: Disabled", true, Ok(false)),
        ("recursiveReadOnly: Disabled", false, Ok(false)),
        ("readOnly: true, recursiveReadOnly: IfPossible", true, Ok(true)),
        ("readOnly: true, recursiveReadOnly: IfPossible", false, Ok(false)),
        ("readOnly: true, recursiveReadOnly: Enabled", true, Ok(true)),
        ("readOnly: true, recursiveReadOnly: Enabled, mountPropagation: None", true, Ok(true)),
        (
            "readOnly: true, recursiveReadOnly: Enabled",
            false,
            Err(format!("{failed} supported by the runtime")),
        ),
        ("recursiveReadOnly: Enabled", true, Err(format!("{failed} read-only"))),
        (
            "readOnly: true, recursiveReadOnly: Enabled, mountPropagation: HostToContainer",
            true,
            Err(format!("{failed} compatible with propagation \"HostToContainer\"")),
        ),
        (
            "readOnly: true, recursiveReadOnly: Odd",
            true,
            Err("failed to resolve recursive read-only mode: unknown recursive read-only mode \"Odd\"".to_owned()),
        ),
    ] {
        let pod = one(&format!("volumeMounts: [{{name: data, mountPath: /a, {requested_mode}}}]"));
        let able = if supported { &able } else { &PodSetupInputs::default() };
        let outcome = made_with(&pod, &node(), able, &facts());
        assert_eq!(outcome.map(|mounts| mounts[0].recursive_read_only), expected, "{requested_mode}");
    }
}

#[test]
fn sub_paths_are_pinned_or_refused() {
    for (mount, expected) in [
        ("{name: data, mountPath: /a, subPath: x/y}", Ok("/pinned/0")),
        ("{name: data, mountPath: /a, subPathExpr: \"$(WHO)/x\"}", Ok("/pinned/0")),
        ("{name: data, mountPath: /a, subPath: \"..x\"}", Ok("/pinned/0")),
        ("{name: data, mountPath: /a}", Ok("/v/data")),
        (
            "{name: data, mountPath: /a, subPath: /x}",
            Err("error SubPath `/x` must not be an absolute path"),
        ),
        (
            "{name: data, mountPath: /a, subPath: a/../b}",
            Err("unable to provision SubPath `a/../b`: must not contain '..'"),
        ),
        (
            "{name: data, mountPath: /a, subPath: ..}",
            Err("unable to provision SubPath `..`: must not contain '..'"),
        ),
        (
            "{name: data, mountPath: /a, subPath: \"a\\0b\"}",
            Err("unable to provision SubPath: must not contain a zero byte"),
        ),
        (
            "{name: data, mountPath: /a, subPathExpr: \"$(NOBODY)$(EMPTY)$(ALSO)\"}",
            Err("missing value for ALSO, EMPTY, NOBODY"),
        ),
        (
            "{name: data, mountPath: /a, subPathExpr: \"/$(WHO)\"}",
            Err("error SubPath `/me` must not be an absolute path"),
        ),
        (
            "{name: gone, mountPath: /a}",
            Err("cannot find volume \"gone\" to mount into container \"app\""),
        ),
        (
            "{name: block, mountPath: /a}",
            Err("cannot find volume \"block\" to mount into container \"app\""),
        ),
        (
            "{name: data, mountPath: /b}, {name: data, mountPath: /a, subPath: x}",
            Err("failed to prepare subPath for volumeMount \"data\" of container \"app\""),
        ),
    ] {
        let outcome = made(mount).map(|mounts| mounts[0].host_path.clone());
        assert_eq!(outcome.as_deref().map_err(String::as_str), expected, "{mount}");
    }
}

#[test]
fn sub_paths_to_pin_are_listed_in_advance() {
    let pod = one(
        "volumeMounts: [{name: data, mountPath: /a}, {name: fixed, mountPath: /b, subPath: s}, \
                   {name: data, mountPath: /c, subPathExpr: \"$(WHO)\"}, {name: image, mountPath: /d, subPath: s}]",
    );
    let env = [("WHO".to_owned(), "me".to_owned())];
    let wanted = wanted_sub_paths(first(&pod), &facts(), &env).expect("wanted");
    let of = |mount_index, volume: &str, sub_path: &str| WantedSubPath {
        mount_index,
        volume: volume.into(),
        volume_path: format!("/v/{volume}"),
        sub_path: sub_path.into(),
    };
    assert_eq!(wanted, [of(1, "fixed", "s"), of(2, "data", "me")]);
    let gone = one("volumeMounts: [{name: gone, mountPath: /a, subPath: s}]");
    wanted_sub_paths(first(&gone), &facts(), &env).expect_err("no such volume");
}

#[test]
fn images_are_mounted_by_the_runtime() {
    let mount = one_mount("{name: image, mountPath: /a, subPath: s}");
    assert_eq!((mount.host_path.as_str(), mount.image_sub_path.as_str()), ("", "s"));
    assert_eq!(mount.image.expect("an image").image, "vol:1");
    assert_eq!(one_mount("{name: data, mountPath: /a, subPath: s}").image_sub_path, "");
}

#[test]
fn the_order_is_devices_own_hosts_and_message() {
    let mut facts = facts();
    facts.hosts_file = Some("/p/etc-hosts".into());
    facts.termination_file = Some("/p/message".into());
    facts.given.mounts = vec![Mount { container_path: "/gpu".into(), ..Default::default() }];
    let container = "terminationMessagePath: dev/log, volumeMounts: [{name: fixed, mountPath: /z}, {name: data, mountPath: /a}]";
    let mounts =
        made_with(&one(container), &node(), &PodSetupInputs::default(), &facts).expect("mounts");
    let paths: Vec<(&str, &str)> =
        mounts.iter().map(|it| (it.container_path.as_str(), it.host_path.as_str())).collect();
    let expected = [
        ("/gpu", ""),
        ("/z", "/v/fixed"),
        ("/a", "/v/data"),
        ("/etc/hosts", "/p/etc-hosts"),
        ("/dev/log", "/p/message"),
    ];
    assert_eq!(paths, expected);
    assert!(mounts.iter().skip(2).all(|mount| !mount.readonly));
}

#[test]
fn the_hosts_file_is_left_out_where_it_must_be() {
    let own = "volumeMounts: [{name: data, mountPath: /etc/hosts}]";
    for (pod, ips, file, there) in [
        (one(""), &["10.0.0.1"][..], true, true),
        (one(""), &[], true, false),
        (one(""), &["10.0.0.1"], false, false),
        (one_with("hostNetwork: true,", ""), &[], true, true),
        (one(own), &["10.0.0.1"], true, false),
    ] {
        let mut facts = facts();
        facts.pod_ips = texts(ips);
        facts.hosts_file = file.then(|| "/p/etc-hosts".into());
        let mounts = made_with(&pod, &node(), &PodSetupInputs::default(), &facts).expect("mounts");
        let found = mounts.iter().any(|mount| mount.host_path == "/p/etc-hosts");
        assert_eq!(found, there, "{ips:?} {file}");
    }
}

#[test]
fn the_message_file_needs_a_place_and_a_file() {
    for (container, file, there) in [
        ("terminationMessagePath: /dev/termination-log", true, true),
        ("terminationMessagePath: /dev/termination-log", false, false),
        ("", true, false),
    ] {
        let mut facts = facts();
        facts.termination_file = file.then(|| "/p/m".into());
        let mounts = made_with(&one(container), &node(), &PodSetupInputs::default(), &facts);
        assert_eq!(mounts.expect("mounts").len(), usize::from(there), "{container} {file}");
    }
}

#[test]
fn labels_for_selinux_once_a_volume_and_only_where_it_is_on() {
    let mut facts = facts();
    facts.hosts_file = Some("/h".into());
    facts.termination_file = Some("/t".into());
    let pod = one(
        "terminationMessagePath: /m, volumeMounts: [{name: label, mountPath: /a}, {name: label, mountPath: /b}, {name: data, mountPath: /c}]",
    );
    for (enabled, expected) in
        [(false, [false, false, false, false, false]), (true, [true, false, false, true, true])]
    {
        let mut node = node();
        node.security.selinux_enabled = enabled;
        let mounts = made_with(&pod, &node, &PodSetupInputs::default(), &facts).expect("mounts");
        let labels: Vec<bool> = mounts.iter().map(|mount| mount.selinux_relabel).collect();
        assert_eq!(labels, expected);
    }
}

#[test]
fn users_of_the_pod_are_those_of_its_mounts() {
    let mapping = |host_id| vec![IdMapping { host_id, container_id: 0, length: 65536 }];
    let users = UserNamespace { mode: NamespaceMode::Pod, uids: mapping(1), gids: mapping(2) };
    let pod_facts = PodSetupInputs { user_namespace: Some(users), ..Default::default() };
    let mut facts = facts();
    facts.hosts_file = Some("/h".into());
    let pod = one("volumeMounts: [{name: data, mountPath: /a}]");
    let mounts = made_with(&pod, &node(), &pod_facts, &facts).expect("mounts");
    assert_eq!(mounts.len(), 2);
    for mount in mounts {
        assert_eq!((mount.uid_mappings, mount.gid_mappings), (mapping(1), mapping(2)));
    }
}
