//! Lists of machines as a cloud writes them, and invalid ones.

use super::*;

fn origin() -> Origin {
    Origin::File { path: "/machines.yaml".into(), line: 0, column: 0 }
}

fn list(text: &str) -> Result<MachineList, String> {
    read_list(format!("apiVersion: keelson/v1\nkind: MachineList\n{text}").as_bytes(), &origin())
}

const TWO_MACHINES: &str = "
machines:
- name: a
  providerID: rack://1
  instanceType: small
  zone: z
  region: r
  state: Running
  addresses: [{type: InternalIP, address: 10.0.0.1}]
  labels: {rack: '1'}
- {name: b, state: ShutDown}
complete: true
";

#[test]
fn a_list_is_read_whole() {
    let list = list(TWO_MACHINES).expect("a list");
    assert!(list.complete);
    let a = &list.machines[0];
    assert_eq!((a.node.as_str(), a.zone.as_str(), a.state), ("a", "z", InstanceState::Running));
    assert_eq!(a.addresses[0].kind, "InternalIP");
    assert_eq!(a.labels["rack"], "1");
    assert_eq!(list.machines[1].state, InstanceState::ShutDown);
}

#[test]
fn a_machine_is_found_by_id_before_name_and_never_under_another_id() {
    let list = list(TWO_MACHINES).expect("a list");
    let find = |name: &str, id: &str| {
        let node = CloudNodeName { name: name.into(), provider_id: id.into() };
        list.find(&node).map(|it| it.node.clone())
    };
    assert_eq!(find("a", ""), Some("a".into()));
    assert_eq!(find("renamed", "rack://1"), Some("a".into()));
    assert_eq!(find("a", "rack://2"), None);
    assert_eq!(find("b", "rack://9"), Some("b".into()));
    assert_eq!(find("c", ""), None);
}

#[test]
fn a_truncated_file_is_not_complete() {
    for end in 0..TWO_MACHINES.len() {
        if let Ok(list) = list(&TWO_MACHINES[..end]) {
            assert!(!list.complete || end >= TWO_MACHINES.len() - 1, "cut at {end}: {list:?}");
        }
    }
}

/// Cut at any line's end it would be a valid list of fewer machines.
#[test]
fn a_file_with_complete_before_the_machines_is_refused() {
    let text = TWO_MACHINES.replace("complete: true\n", "");
    let text = format!("complete: true{text}");
    for (end, _) in text.match_indices('\n') {
        let found = list(&text[..end]);
        assert!(found.is_err(), "cut at {end}: {found:?}");
    }
    let found = list(&text);
    let expected = "/machines.yaml:3: complete: expected behind the machines";
    assert!(found.as_ref().is_err_and(|it| it.starts_with(expected)), "{found:?}");
    let incomplete = list(&text.replace("complete: true", "complete: false"));
    assert!(incomplete.is_ok_and(|list| !list.complete), "it says nothing");
}

/// Most writers of JSON sort the keys.
#[test]
fn in_json_field_order_is_irrelevant_and_truncation_is_an_error() {
    let text = r#"
{
  "apiVersion": "keelson/v1",
  "complete": true,
  "kind": "MachineList",
  "machines": [
    {"name": "a"},
    {"name": "b"}
  ]
}"#;
    let whole = read_list(text.as_bytes(), &origin()).expect("a list");
    assert!(whole.complete && whole.machines.len() == 2);
    for end in 0..text.len() {
        let found = read_list(&text.as_bytes()[..end], &origin());
        assert!(found.is_err(), "cut at {end}: {found:?}");
    }
}

#[test]
fn mistakes_are_refused_with_line_and_field() {
    for (text, expected) in [
        ("complete: true", "/machines.yaml:1: machines: missing, expected a list"),
        ("machines: 5", "/machines.yaml:3: machines: expected a list"),
        ("machines: [5]", "/machines.yaml:3: machines[0]: expected an object"),
        ("machines: [{}]", "/machines.yaml:3: machines[0].name: missing, expected a node's name"),
        ("machines: [{name: a, sate: x}]", "/machines.yaml:3: machines[0].sate: unknown field"),
        (
            "machines: [{name: a, state: off}]",
            "/machines.yaml:3: machines[0].state: expected a string",
        ),
        (
            "machines: [{name: a, state: gone}]",
            "/machines.yaml:3: machines[0].state: \"gone\": expected Running",
        ),
        (
            "machines: [{name: a}, {name: a}]",
            "/machines.yaml:3: machines[1].name: \"a\" stands here twice",
        ),
        (
            "machines: [{name: a, labels: {b: 1}}]",
            "/machines.yaml:3: machines[0].labels.b: expected a string",
        ),
        (
            "machines: [{name: a, addresses: [{type: IP, address: x}]}]",
            "/machines.yaml:3: machines[0].addresses[0].type: \"IP\": expected one of",
        ),
        (
            "machines: []\ncomplete: yes please",
            "/machines.yaml:4: complete: expected true or false",
        ),
        ("machines: []\nmachines: []", "/machines.yaml:4: machines:"),
    ] {
        let found = list(text);
        assert!(found.as_ref().is_err_and(|it| it.starts_with(expected)), "{text}: {found:?}");
    }
    let other = read_list(b"kind: Other", &origin());
    assert!(other.is_err_and(|it| it.contains("apiVersion: expected keelson/v1")));
}

#[test]
fn an_answer_must_state_whether_the_machine_exists() {
    let read = |text: &str| {
        read_answer(
            format!("{{\"apiVersion\":\"keelson/v1\",\"kind\":\"Machine\"{text}}}").as_bytes(),
            &origin(),
        )
    };
    assert_eq!(read(",\"exists\":false"), Ok(None));
    let there = read(",\"exists\":true,\"machine\":{\"name\":\"a\"}");
    assert!(there.is_ok_and(|it| it.is_some_and(|it| it.node == "a")));
    for ambiguous in [
        "",
        ",\"exists\":null",
        ",\"exists\":0",
        ",\"exists\":true",
        ",\"exists\":false,\"machine\":{\"name\":\"a\"}",
    ] {
        assert!(read(ambiguous).is_err(), "{ambiguous}");
    }
}
