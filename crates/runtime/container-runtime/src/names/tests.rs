//! The names that roots get: choices as values, and two roots with claims in one directory.

use machine_claims::Claim;

use super::choice::{Names, Situation, choose};
use super::*;

fn settings() -> Settings {
    Settings::new("/r".into(), "/s".into())
}

fn situation() -> Situation {
    Situation {
        is_default: false,
        recorded: None,
        has_records: false,
        has_pods: false,
        others: Vec::new(),
        in_use: vec![of("192.0.2.0/24")],
        fresh_id: "0123abcd".into(),
    }
}

fn of(text: &str) -> Range {
    range(&text.parse().unwrap())
}

fn names(id: &str, bridge: &str, subnet: &str, cgroups: &str) -> Names {
    Names {
        id: id.into(),
        bridge: bridge.into(),
        subnets: vec![subnet.parse().unwrap()],
        cgroups: cgroups.into(),
    }
}

fn claim(subnet: &str, cgroups: &str) -> Claim {
    let holdings = Holdings {
        root: "/other".into(),
        subnets: vec![of(subnet)],
        cgroups: vec![cgroups.into()],
        ..Holdings::default()
    };
    Claim { holdings, is_alive: true }
}

fn well_known(id: &str) -> Names {
    names(id, "keelson0", "10.88.0.0/16", "/keelson")
}

fn own(subnet: &str) -> Names {
    names("0123abcd", "keel-0123abcd", subnet, "/keelson/0123abcd")
}

#[test]
fn every_root_but_the_default_has_names_of_its_own() {
    let kept = || Some(own("10.89.32.0/20"));
    let rows = [
        ("the default", Situation { is_default: true, ..situation() }, well_known("default")),
        (
            "the default beside another",
            Situation { is_default: true, others: vec![claim("10.0.0.0/8", "/a")], ..situation() },
            well_known("default"),
        ),
        ("a new one", situation(), own("10.89.0.0/20")),
        (
            "beside a route and a claim",
            Situation {
                in_use: vec![of("10.89.0.0/24")],
                others: vec![claim("10.89.16.0/20", "/a")],
                ..situation()
            },
            own("10.89.32.0/20"),
        ),
        (
            "kept",
            Situation { recorded: kept(), fresh_id: "ffffffff".into(), ..situation() },
            own("10.89.32.0/20"),
        ),
        (
            "kept, its range taken since",
            Situation { recorded: kept(), in_use: vec![of("10.89.32.0/24")], ..situation() },
            own("10.89.0.0/20"),
        ),
        (
            "kept, its range taken since, with pods in it",
            Situation {
                recorded: kept(),
                has_pods: true,
                in_use: vec![of("10.89.32.0/24")],
                ..situation()
            },
            own("10.89.32.0/20"),
        ),
        (
            "with pods of an older version",
            Situation { has_records: true, ..situation() },
            well_known("0123abcd"),
        ),
        (
            "with pods of an older version, the default's range claimed",
            Situation {
                has_records: true,
                others: vec![claim("10.88.0.0/16", "/a")],
                ..situation()
            },
            own("10.89.0.0/20"),
        ),
        (
            "with pods of an older version, the default's cgroup claimed",
            Situation {
                has_records: true,
                others: vec![claim("10.1.0.0/16", "/keelson/kubepods")],
                ..situation()
            },
            own("10.89.0.0/20"),
        ),
        (
            "whose pods of an older version are gone",
            Situation { recorded: Some(well_known("0123abcd")), ..situation() },
            own("10.89.0.0/20"),
        ),
        (
            "the default, moved",
            Situation { recorded: Some(well_known("default")), ..situation() },
            own("10.89.0.0/20"),
        ),
    ];
    for (what, situation, expected) in rows {
        assert_eq!(choose(&situation, &settings()), expected, "{what}");
    }
}

#[test]
fn what_the_settings_name_is_taken_as_it_is() {
    let text = br#"{"network":{"bridge":"keelson0","subnets":["10.88.0.0/16"]}}"#;
    let given = settings().with_file("cri.json", text).unwrap();
    let expected = Names { cgroups: "/keelson/0123abcd".into(), ..well_known("0123abcd") };
    assert_eq!(choose(&situation(), &given), expected);
}

#[test]
fn a_machine_without_a_free_range_gives_none() {
    let full = Situation { in_use: vec![of("10.0.0.0/8")], ..situation() };
    assert_eq!(choose(&full, &settings()).subnets, []);
}

struct Roots(tempfile::TempDir);

const NEW: Former = Former { has_records: false, rebooted: false };

impl Roots {
    fn settings(&self, root: &str, state: &str) -> Settings {
        let place = |name: &str| {
            let path = self.0.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        let mut settings = Settings::new(place(root), place(state));
        settings.claims = self.0.path().join("claims");
        settings
    }

    fn take(&self, root: &str, state: &str) -> Result<(Settings, RootNames), String> {
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
    let roots = Roots(tempfile::tempdir().unwrap());
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
fn a_state_directory_is_one_roots_while_its_pods_are_there() {
    let roots = Roots(tempfile::tempdir().unwrap());
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
    let roots = Roots(tempfile::tempdir().unwrap());
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
fn a_machine_without_room_for_claims_serves_a_root_all_the_same() {
    let roots = Roots(tempfile::tempdir().unwrap());
    std::fs::write(roots.0.path().join("claims"), "a file").unwrap();
    let (_, names) = roots.take("a", "s").unwrap();
    assert!(roots.0.path().join("s/claims").is_dir());
    drop(names);
}

#[test]
fn what_an_administrator_gives_two_roots_is_refused_to_the_second() {
    let roots = Roots(tempfile::tempdir().unwrap());
    let (first, _names) = roots.take("a", "s").unwrap();
    let mut second = roots.settings("b", "t");
    second.built_in_network.bridge.clone_from(&first.built_in_network.bridge);
    second.bridge_given = true;
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
    let record: Record = serde_json::from_str(text).unwrap();
    let expected: serde_json::Value = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_value(&record).unwrap(), expected);
}
