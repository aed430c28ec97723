//! Commands and variables of pod and image combined.

use super::*;

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn commands_of_pod_and_image_are_combined_as_by_docker() {
    for (command, args, entrypoint, cmd, expected) in [
        (&[][..], &[][..], &["e"][..], &["c"][..], Some(&["e", "c"][..])),
        (&["x"], &[], &["e"], &["c"], Some(&["x"])),
        (&["x"], &["y"], &["e"], &["c"], Some(&["x", "y"])),
        (&[], &["y"], &["e"], &["c"], Some(&["e", "y"])),
        (&[], &[], &[], &["c"], Some(&["c"])),
        (&[], &[], &[""], &["c"], Some(&["c"])),
        (&[], &[], &[], &[], None),
    ] {
        let config = v1::ContainerConfig {
            command: texts(command),
            args: texts(args),
            ..Default::default()
        };
        let image =
            ImageRunConfig { entrypoint: texts(entrypoint), cmd: texts(cmd), ..Default::default() };
        let words = arguments(&config, &image).ok();
        assert_eq!(words, expected.map(texts), "{command:?} {args:?} {entrypoint:?} {cmd:?}");
    }
}

#[test]
fn later_variables_take_the_place_of_earlier_ones() {
    let key_value = |key: &str, value: &[u8]| v1::KeyValue { key: key.into(), value: value.into() };
    let config = v1::ContainerConfig {
        envs: vec![key_value("A", b"pod"), key_value("B", b"x=y"), key_value("A", b"again")],
        ..Default::default()
    };
    let image = ImageRunConfig { env: texts(&["PATH=/bin", "A=image"]), ..Default::default() };
    let all = environment(&config, &image, ("node", "/root")).unwrap();
    assert_eq!(all, ["PATH=/bin", "HOSTNAME=node", "A=again", "B=x=y", "HOME=/root"]);
    let odd = v1::ContainerConfig { envs: vec![key_value("A", b"\xff")], ..Default::default() };
    assert!(environment(&odd, &image, ("", "")).is_err());
}

/// With a search through all earlier variables for each, this takes minutes.
#[test]
fn a_hundred_thousand_variables_are_each_set_once() {
    let envs = (0..100_000)
        .map(|number| v1::KeyValue { key: format!("N{number}"), value: b"x".to_vec() })
        .collect();
    let config = v1::ContainerConfig { envs, ..Default::default() };
    let all = environment(&config, &ImageRunConfig::default(), ("node", "/root")).unwrap();
    assert_eq!(all.len(), 100_003);
}

#[test]
fn the_working_directory_is_the_pods_or_the_images_or_the_root() {
    for (pod, image, expected) in [("", "", "/"), ("", "/i", "/i"), ("/p", "/i", "/p")] {
        let config = v1::ContainerConfig {
            command: texts(&["x"]),
            working_dir: pod.into(),
            ..Default::default()
        };
        let image = ImageRunConfig { working_dir: image.into(), ..Default::default() };
        assert_eq!(of(&config, &image, ("", "")).unwrap().working_directory, expected);
    }
}
