//! A container put together.

use super::*;
use crate::inputs::{AllocatedDevices, ReadyVolume};
use crate::testing::{first, node, one};
use ports::runtime_objects::{Device, ImageRecord};

fn facts() -> ContainerSetupInputs {
    ContainerSetupInputs {
        image_ref: "sha256:abc".into(),
        image: ImageRecord { uid: Some(5), ..Default::default() },
        restart_count: 3,
        pod_ips: vec!["10.0.0.1".into()],
        volumes: [("data".to_owned(), ReadyVolume { path: "/v".into(), ..Default::default() })]
            .into(),
        hosts_file: Some("/p/etc-hosts".into()),
        given: AllocatedDevices {
            cdi_devices: vec!["vendor/class=a".into()],
            devices: vec![Device::default()],
            annotations: [("given".to_owned(), "1".to_owned())].into(),
            ..Default::default()
        },
        ..Default::default()
    }
}

fn made(container: &str, node: &NodeSetupInputs) -> Result<ContainerConfig, SetupError> {
    let pod = one(container);
    config(&pod, first(&pod), node, &PodSetupInputs::default(), &facts())
}

#[test]
fn a_full_container_config_is_built() {
    let container = "command: [sh, -c, \"echo $(WHO) $$(WHO) $(NOBODY)\"], args: [\"$(WHO)\"], workingDir: /srv, \
        stdin: true, stdinOnce: true, tty: true, env: [{name: WHO, value: me}], \
        resources: {limits: {cpu: 500m}}, securityContext: {runAsUser: 9}, \
        volumeMounts: [{name: data, mountPath: /data}]";
    let config = made(container, &node()).expect("a container");
    assert_eq!((config.name.as_str(), config.attempt), ("app", 3));
    assert_eq!(config.image.image, "sha256:abc");
    assert_eq!(config.image.user_specified_image, "app:1");
    assert_eq!(config.command, ["sh", "-c", "echo me $(WHO) $(NOBODY)"]);
    assert_eq!(config.args, ["me"]);
    assert_eq!(config.working_dir, "/srv");
    assert!(config.stdin && config.stdin_once && config.tty);
    assert_eq!(config.env, [("WHO".to_owned(), "me".to_owned())]);
    assert_eq!(config.log_path, "app/3.log");
    assert_eq!(config.labels["io.kubernetes.container.name"], "app");
    assert_eq!(config.annotations["io.kubernetes.container.restartCount"], "3");
    assert_eq!(config.annotations["given"], "1");
    assert_eq!(config.resources.cpu_quota, 50_000);
    assert_eq!(config.security.run_as_user, Some(9));
    let paths: Vec<&str> = config.mounts.iter().map(|it| it.container_path.as_str()).collect();
    assert_eq!(paths, ["/data", "/etc/hosts"]);
    assert_eq!(config.cdi_devices, ["vendor/class=a"]);
    assert_eq!(config.devices, [Device::default()]);
    assert_eq!(config.stop_signal, "");
}

#[test]
fn a_bare_container_has_nothing_of_its_own() {
    let config = made("", &node()).expect("a container");
    assert!(config.command.is_empty() && config.args.is_empty() && config.env.is_empty());
    assert!(!(config.stdin || config.stdin_once || config.tty));
    assert_eq!(config.security.run_as_user, Some(5));
}

#[test]
fn a_stop_signal_needs_its_gate() {
    let container = "lifecycle: {stopSignal: SIGUSR1}";
    assert_eq!(made(container, &node()).expect("a container").stop_signal, "");
    let mut node = node();
    node.gates.container_stop_signals = true;
    assert_eq!(made(container, &node).expect("a container").stop_signal, "SIGUSR1");
    assert_eq!(made("", &node).expect("a container").stop_signal, "");
}

#[test]
fn whole_cpus_have_no_quota() {
    let pod = one("resources: {limits: {cpu: 1}}");
    let facts = ContainerSetupInputs { exclusive_cpus: true, ..facts() };
    let made = config(&pod, first(&pod), &node(), &PodSetupInputs::default(), &facts);
    assert_eq!(made.expect("a container").resources.cpu_quota, -1);
}

#[test]
fn each_part_may_refuse() {
    for (container, start) in [
        ("volumeDevices: [{name: gone, devicePath: /x}]", "cannot find volume \"gone\" to pass"),
        ("volumeMounts: [{name: gone, mountPath: /x}]", "cannot find volume \"gone\" to mount"),
        ("envFrom: [{secretRef: {name: s}}]", "secret \"s\" has not been read yet"),
        ("securityContext: {runAsNonRoot: true, runAsUser: 0}", "container's runAsUser breaks"),
        ("securityContext: {seccompProfile: {type: Localhost}}", "localhostProfile must be set"),
    ] {
        let error = made(container, &node()).expect_err(container).to_string();
        assert!(error.starts_with(start), "{error}");
    }
}
