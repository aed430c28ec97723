//! The names that roots get: choices as values, and two roots with claims in one directory.

use machine_claims::Claim;

use super::choice::{ChosenNames, NameInputs, choose};
use super::*;

fn settings() -> RuntimeSettings {
    RuntimeSettings::new("/r".into(), "/s".into())
}

fn inputs() -> NameInputs {
    NameInputs {
        is_default: false,
        recorded: None,
        has_records: false,
        has_pods: false,
        others: Vec::new(),
        in_use: vec![of("192.0.2.0/24")],
        fresh_id: "0123abcd".into(),
    }
}

fn of(text: &str) -> AddressRange {
    range(&text.parse().unwrap())
}

fn names(id: &str, bridge: &str, subnet: &str, cgroups: &str) -> ChosenNames {
    ChosenNames {
        id: id.into(),
        bridge: bridge.into(),
        subnets: vec![subnet.parse().unwrap()],
        cgroups: cgroups.into(),
    }
}

fn claim(subnet: &str, cgroups: &str) -> Claim {
    let resources = ClaimedResources {
        root: "/other".into(),
        subnets: vec![of(subnet)],
        cgroups: vec![cgroups.into()],
        ..ClaimedResources::default()
    };
    Claim { resources, is_alive: true }
}

fn well_known(id: &str) -> ChosenNames {
    names(id, "keelson0", "10.88.0.0/16", "/keelson")
}

fn own(subnet: &str) -> ChosenNames {
    names("0123abcd", "keel-0123abcd", subnet, "/keelson/0123abcd")
}

#[test]
fn every_root_but_the_default_has_names_of_its_own() {
    let recorded_names = || Some(own("10.89.32.0/20"));
    let rows = [
        ("the default", NameInputs { is_default: true, ..inputs() }, well_known("default")),
        (
            "the default beside another",
            NameInputs { is_default: true, others: vec![claim("10.0.0.0/8", "/a")], ..inputs() },
            well_known("default"),
        ),
        ("a new one", inputs(), own("10.89.0.0/20")),
        (
            "beside a route and a claim",
            NameInputs {
                in_use: vec![of("10.89.0.0/24")],
                others: vec![claim("10.89.16.0/20", "/a")],
                ..inputs()
            },
            own("10.89.32.0/20"),
        ),
        (
            "kept",
            NameInputs { recorded: recorded_names(), fresh_id: "ffffffff".into(), ..inputs() },
            own("10.89.32.0/20"),
        ),
        (
            "kept, its range taken since",
            NameInputs {
                recorded: recorded_names(),
                in_use: vec![of("10.89.32.0/24")],
                ..inputs()
            },
            own("10.89.0.0/20"),
        ),
        (
            "kept, its range taken since, with pods in it",
            NameInputs {
                recorded: recorded_names(),
                has_pods: true,
                in_use: vec![of("10.89.32.0/24")],
                ..inputs()
            },
            own("10.89.32.0/20"),
        ),
        (
            "with pods of an older version",
            NameInputs { has_records: true, ..inputs() },
            well_known("0123abcd"),
        ),
        (
            "with pods of an older version, the default's range claimed",
            NameInputs { has_records: true, others: vec![claim("10.88.0.0/16", "/a")], ..inputs() },
            own("10.89.0.0/20"),
        ),
        (
            "with pods of an older version, the default's cgroup claimed",
            NameInputs {
                has_records: true,
                others: vec![claim("10.1.0.0/16", "/keelson/kubepods")],
                ..inputs()
            },
            own("10.89.0.0/20"),
        ),
        (
            "whose pods of an older version are gone",
            NameInputs { recorded: Some(well_known("0123abcd")), ..inputs() },
            own("10.89.0.0/20"),
        ),
        (
            "the default, moved",
            NameInputs { recorded: Some(well_known("default")), ..inputs() },
            own("10.89.0.0/20"),
        ),
    ];
    for (what, inputs, expected) in rows {
        assert_eq!(choose(&inputs, &settings()), expected, "{what}");
    }
}

#[test]
fn names_in_the_settings_are_used_unchanged() {
    let text = br#"{"network":{"bridge":"keelson0","subnets":["10.88.0.0/16"]}}"#;
    let given = settings().with_file("cri.json", text).unwrap();
    let expected = ChosenNames { cgroups: "/keelson/0123abcd".into(), ..well_known("0123abcd") };
    assert_eq!(choose(&inputs(), &given), expected);
}

#[test]
fn no_subnet_is_chosen_when_every_range_is_taken() {
    let full = NameInputs { in_use: vec![of("10.0.0.0/8")], ..inputs() };
    assert_eq!(choose(&full, &settings()).subnets, []);
}

struct TestRoots(tempfile::TempDir);

const NEW: PreviousPods = PreviousPods { has_records: false, rebooted: false };

impl TestRoots {
    fn settings(&self, root: &str, state: &str) -> RuntimeSettings {
        let place = |name: &str| {
            let path = self.0.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        let mut settings = RuntimeSettings::new(place(root), place(state));
        settings.claims = self.0.path().join("claims");
        settings
    }

    fn take(&self, root: &str, state: &str) -> Result<(RuntimeSettings, RootNames), String> {
        let mut settings = self.settings(root, state);
        match take(&mut settings, NEW) {
            Ok(Ok(names)) => Ok((settings, names)),
            Ok(Err(conflict)) => Err(conflict.to_string()),
            Err(failure) => Err(failure.text),
        }
    }

    fn pod_in(&self, state: &str) -> PathBuf {
        let pod = self.0.path().join(state).join("pods/p");
        std::fs::create_dir_all(&pod).unwrap();
        pod
    }
}

#[test]
fn two_roots_share_nothing_and_keep_their_names() {
    let roots = TestRoots(tempfile::tempdir().unwrap());
    let (first, first_names) = roots.take("a", "sa").unwrap();
    let (second, second_names) = roots.take("b", "sb").unwrap();
    assert_ne!(first.built_in_network.bridge, second.built_in_network.bridge);
    assert_ne!(first.built_in_network.subnets, second.built_in_network.subnets);
    assert_ne!(first_names.cgroups, second_names.cgroups);
    let id = first_names.id.clone();
    drop(first_names);
    let (again, names) = roots.take("a", "sa").unwrap();
    assert_eq!((&names.id, &again.built_in_network.bridge), (&id, &first.built_in_network.bridge));
    assert_eq!(again.built_in_network.subnets, first.built_in_network.subnets);
}

#[test]
fn a_state_dir_belongs_to_one_root_while_its_pods_exist() {
    let roots = TestRoots(tempfile::tempdir().unwrap());
    let (_, names) = roots.take("a", "s").unwrap();
    let refused = roots.take("b", "s").unwrap_err();
    assert!(refused.contains("/a (pid ") && refused.ends_with("say another one with --state"));
    let pod = roots.pod_in("s");
    drop(names);
    let refused = roots.take("b", "s").unwrap_err();
    assert!(refused.contains("/a (its process has ended, its pods run)"), "{refused}");
    let refused = roots.take("a", "elsewhere").unwrap_err();
    assert!(refused.contains("/s, not in ") && refused.ends_with("--state"), "{refused}");
    std::fs::remove_dir(pod).unwrap();
    let (_, names) = roots.take("b", "s").unwrap();
    // Pods that another root has there by now do not matter.
    roots.pod_in("s");
    drop(names);
    drop(roots.take("a", "elsewhere").unwrap());
}

#[test]
fn a_copied_root_is_refused_and_a_moved_one_keeps_its_names() {
    let roots = TestRoots(tempfile::tempdir().unwrap());
    let (_, names) = roots.take("a", "s").unwrap();
    let id = names.id.clone();
    let copied = roots.settings("copy", "t").root.join(FILE);
    std::fs::copy(roots.0.path().join("a").join(FILE), copied).unwrap();
    let refused = roots.take("copy", "t").unwrap_err();
    assert!(refused.starts_with(&format!("the id {id} in ")), "{refused}");
    drop(names);
    assert_eq!(roots.take("copy", "t").unwrap().1.id, id);
}

/// A root is served even if the directory of claims cannot be created.
#[test]
fn a_root_is_served_without_a_claims_dir() {
    let roots = TestRoots(tempfile::tempdir().unwrap());
    std::fs::write(roots.0.path().join("claims"), "a file").unwrap();
    let (_, names) = roots.take("a", "s").unwrap();
    assert!(roots.0.path().join("s/claims").is_dir());
    drop(names);
}

#[test]
fn a_name_configured_for_two_roots_is_refused_to_the_second() {
    let roots = TestRoots(tempfile::tempdir().unwrap());
    let (first, _names) = roots.take("a", "s").unwrap();
    let mut second = roots.settings("b", "t");
    second.built_in_network.bridge.clone_from(&first.built_in_network.bridge);
    second.bridge_is_set = true;
    let conflict = take(&mut second, NEW).unwrap().unwrap_err().to_string();
    let pid = std::process::id();
    assert!(conflict.contains("/a (pid ") && conflict.contains(&pid.to_string()), "{conflict}");
    assert!(conflict.contains("`network.bridge`"), "{conflict}");
}

#[test]
fn golden_record_on_disk() {
    let text = r#"{
          "version": 1, "id": "ab12", "root": "/r", "state": "/s", "bridge": "keelson0",
          "subnets": ["10.88.0.0/16"], "cgroups": "keelson"
        }"#;
    let record: NamesRecord = serde_json::from_str(text).unwrap();
    let expected: serde_json::Value = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_value(&record).unwrap(), expected);
}
