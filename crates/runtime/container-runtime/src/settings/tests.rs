//! Files as administrators write them.

use super::*;

fn read(text: &str) -> Result<RuntimeSettings> {
    RuntimeSettings::new("/root".into(), "/state".into()).with_file("cri.json", text.as_bytes())
}

#[test]
fn every_field_has_a_default_and_can_be_set() {
    let settings = read("{}").unwrap();
    assert_eq!(settings.built_in_network.bridge, "keelson0");
    let settings = read(
        r#"{"version":1,"cni":{"configurations":"/c","plugins":["/p"],"deadlineSeconds":5},
            "network":{"bridge":"b0","subnets":["10.1.0.0/24","fd00::/64"],"mtu":1400},
            "registries":{"r.example":{"mirrors":["http://127.0.0.1:5000"],"mirrorsOnly":true}},
            "cgroupDriver":"systemd","handlers":["test-handler"],"preloadedImages":"/images",
            "runtimes":{"runc":{"program":"/sbin/runc","arguments":["--debug"]}},
            "deviceSpecifications":["/cdi"],"streams":"127.0.0.1:7000"}"#,
    )
    .unwrap();
    assert_eq!(settings.cni.deadline, Duration::from_secs(5));
    assert_eq!(settings.built_in_network.subnets.len(), 2);
    assert!(settings.registries["r.example"].mirrors_only);
    assert_eq!(settings.runtimes["runc"].program, PathBuf::from("/sbin/runc"));
    assert_eq!(settings.runtimes["runc"].arguments, ["--debug"]);
    assert_eq!(settings.device_specifications, [PathBuf::from("/cdi")]);
    assert_eq!(settings.preloaded_images, Some(PathBuf::from("/images")));
    assert_eq!((settings.cgroup_driver, settings.streams.port()), (CgroupDriver::Systemd, 7000));
}

#[test]
fn errors_name_the_field() {
    for (text, named) in [
        ("", "EOF"),
        (r#"{"versoin":1}"#, "versoin"),
        (r#"{"version":2}"#, "version"),
        (r#"{"network":{"subnets":["10.0.0.0"]}}"#, "network.subnets"),
        (r#"{"registries":{"r":{"mirrors":["here"]}}}"#, "registries.r.mirrors"),
        (r#"{"cgroupDriver":"other"}"#, "other"),
        (r#"{"runtimes":{"runc":{}}}"#, "program"),
        (r#"{"runtimes":{"runc":{"program":"runc"}}}"#, "runtimes.runc.program"),
        (r#"{"runtimes":{"keelson":{"program":"/x"}}}"#, "runtimes.keelson"),
        (r#"{"handlers":["a"],"runtimes":{"a":{"program":"/x"}}}"#, "runtimes.a"),
        (r#"{"deviceSpecifications":["cdi"]}"#, "deviceSpecifications"),
        (r#"{"streams":"0.0.0.0:1"}"#, "loopback"),
    ] {
        let failure = read(text).unwrap_err();
        assert!(failure.text.contains(named) && failure.text.contains("cri.json"), "{failure}");
    }
}
