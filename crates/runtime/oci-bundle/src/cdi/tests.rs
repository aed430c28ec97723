//! Valid and invalid CDI files, and resolving names.

use serde_json::json;

use super::*;

fn edits(text: serde_json::Value) -> ContainerEdits {
    serde_json::from_value(text).unwrap()
}

fn one_device(name: &str) -> serde_json::Value {
    json!({
        "cdiVersion": "0.6.0", "kind": "vendor.com/thing",
        "containerEdits": {"env": ["ALL=1"]},
        "devices": [{"name": name, "containerEdits": {"env": [format!("ONE={name}")]}}]
    })
}

fn write(dir: &Path, name: &str, text: &str) {
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join(name), text).unwrap();
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn json_and_yaml_give_the_same_document() {
    let yaml = "---\n\
        cdiVersion: 1.0.0\n\
        kind: \"vendor.com/thing\"\n\
        annotations: {who: me}\n\
        devices:\n\
        - name: \"0\"\n\
        \x20 containerEdits:\n\
        \x20   deviceNodes:\n\
        \x20   - {path: /dev/x, hostPath: /dev/null, type: c, major: 1, minor: 3, fileMode: 0660,\n\
        \x20      permissions: rw, uid: 5, gid: 6}\n\
        \x20   env: [A=b]\n\
        \x20   mounts:\n\
        \x20   - hostPath: /lib/x.so\n\
        \x20     containerPath: /usr/lib/x.so\n\
        \x20     options: [ro, bind]\n\
        \x20   hooks:\n\
        \x20   - {hookName: createContainer, path: /bin/hook, args: [hook, 'yes'], timeout: 5}\n\
        \x20   additionalGids: [44]\n";
    let json = json!({
        "cdiVersion": "1.0.0", "kind": "vendor.com/thing", "annotations": {"who": "me"},
        "devices": [{"name": "0", "containerEdits": {
            "deviceNodes": [{"path": "/dev/x", "hostPath": "/dev/null", "type": "c", "major": 1,
                "minor": 3, "fileMode": 0o660, "permissions": "rw", "uid": 5, "gid": 6}],
            "env": ["A=b"],
            "mounts": [{"hostPath": "/lib/x.so", "containerPath": "/usr/lib/x.so",
                "options": ["ro", "bind"]}],
            "hooks": [{"hookName": "createContainer", "path": "/bin/hook",
                "args": ["hook", "yes"], "timeout": 5}],
            "additionalGids": [44]
        }}]
    });
    let of_yaml = CdiDocument::parse(yaml.as_bytes(), true).unwrap();
    assert_eq!(of_yaml, CdiDocument::parse(json.to_string().as_bytes(), false).unwrap());
    assert_eq!(of_yaml.devices[0].container_edits.device_nodes[0].file_mode, Some(0o660));
}

#[test]
fn devices_get_the_edits_of_their_file_once_and_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut two = one_device("a");
    two["devices"].as_array_mut().unwrap().push(
        json!({"name": "b:1", "containerEdits": {"env": ["ONE=b"], "additionalGids": [0, 7]}}),
    );
    write(dir.path(), "x.json", &two.to_string());
    write(dir.path(), "ignored.txt", "nothing");
    fs::create_dir(dir.path().join("folder.json")).unwrap();
    let missing = dir.path().join("missing");
    let registry = CdiRegistry::read(&[missing, dir.path().to_owned()]);
    let found = registry.edits(&names(&["vendor.com/thing=b:1", "vendor.com/thing=a"])).unwrap();
    let expected = json!({"env": ["ALL=1", "ONE=b", "ONE=a"], "additionalGids": [0, 7]});
    assert_eq!(found, edits(expected));
    assert!(registry.errors().is_empty(), "{:?}", registry.errors());
}

#[test]
fn a_later_dir_wins_and_a_device_defined_twice_in_one_dir_is_unresolvable() {
    let root = tempfile::tempdir().unwrap();
    let (etc, run) = (root.path().join("etc"), root.path().join("run"));
    let with = |value: &str| {
        let mut text = one_device("a");
        text["containerEdits"]["env"] = json!([format!("FROM={value}")]);
        text.to_string()
    };
    write(&etc, "one.json", &with("etc"));
    write(&run, "one.json", &with("run"));
    let dirs = [etc.clone(), run.clone()];
    let wanted = names(&["vendor.com/thing=a"]);
    let found = CdiRegistry::read(&dirs).edits(&wanted).unwrap();
    assert_eq!(found.env[0], "FROM=run");
    write(&run, "two.json", &with("other"));
    let error = CdiRegistry::read(&dirs).edits(&wanted).unwrap_err().to_string();
    assert!(
        error.starts_with("unresolvable CDI devices vendor.com/thing=a (conflicting"),
        "{error}"
    );
    // A conflict is resolved by a directory of higher precedence.
    fs::remove_file(run.join("two.json")).unwrap();
    write(&etc, "two.json", &with("other"));
    assert_eq!(CdiRegistry::read(&dirs).edits(&wanted).unwrap().env[0], "FROM=run");
}

#[test]
fn an_unresolved_name_is_reported_with_the_errors_of_its_files() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "bad.json", "{");
    write(dir.path(), "good.json", &one_device("a").to_string());
    let registry = CdiRegistry::read(&[dir.path().to_owned()]);
    assert!(registry.edits(&names(&["vendor.com/thing=a"])).is_ok());
    let error = registry.edits(&names(&["v/c=x", "vendor.com/thing=a", "v/c=y"])).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("unresolvable CDI devices v/c=x, v/c=y ("), "{text}");
    assert!(text.contains("bad.json"), "{text}");
}

#[test]
fn a_fifo_and_a_huge_file_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo.json");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let huge = File::create(dir.path().join("huge.yaml")).unwrap();
    huge.set_len(MAX_FILE_SIZE + 1).unwrap();
    let registry = CdiRegistry::read(&[dir.path().to_owned()]);
    let errors = registry.errors().join("\n");
    assert!(errors.contains("no plain file") && errors.contains("bytes"), "{errors}");
}

#[test]
fn invalid_files_are_refused_with_the_reason() {
    let changed = |place: &str, value: serde_json::Value| {
        let mut all = one_device("a");
        *all.pointer_mut(place).unwrap() = value;
        CdiDocument::parse(all.to_string().as_bytes(), false).unwrap_err()
    };
    let edit = |value: serde_json::Value| changed("/containerEdits", value);
    let device = "/devices/0/name";
    for (error, reason) in [
        (changed("/cdiVersion", json!("0.2.0")), "cdiVersion \"0.2.0\""),
        (changed("/cdiVersion", json!("2.0.0")), "cdiVersion \"2.0.0\""),
        (changed("/kind", json!("thing")), "vendor/class"),
        (changed("/kind", json!("1vendor/thing")), "vendor"),
        (changed("/kind", json!("vendor/thing-")), "class"),
        (changed("/devices", json!([])), "there are none"),
        (changed(device, json!("-a")), "\"-a\""),
        (changed(device, json!("a b")), "\"a b\""),
        (changed("/devices/0/containerEdits", json!({})), "no containerEdits"),
        (changed("/devices/0", json!({"name": "a", "odd": 1})), "unknown field `odd`"),
        (edit(json!({"env": ["=x"]})), "NAME=value"),
        (edit(json!({"env": ["x"]})), "NAME=value"),
        (edit(json!({"deviceNodes": [{"path": "dev/x"}]})), "absolute"),
        (edit(json!({"deviceNodes": [{"path": "/x", "type": "z"}]})), "type \"z\""),
        (edit(json!({"deviceNodes": [{"path": "/x", "permissions": "x"}]})), "permissions"),
        (edit(json!({"mounts": [{"hostPath": "", "containerPath": "/x"}]})), "hostPath"),
        (edit(json!({"mounts": [{"hostPath": "/x", "containerPath": "x"}]})), "containerPath"),
        (edit(json!({"hooks": [{"hookName": "other", "path": "/x"}]})), "hookName \"other\""),
        (edit(json!({"hooks": [{"hookName": "prestart", "path": "x"}]})), "no absolute path"),
        (edit(json!({"hooks": [{"hookName": "prestart", "path": "/x", "timeout": 0}]})), "timeout"),
    ] {
        assert!(error.contains(reason), "{error:?} has no {reason:?}");
    }
    let mut twice = one_device("a");
    let same = twice["devices"][0].clone();
    twice["devices"].as_array_mut().unwrap().push(same);
    let error = CdiDocument::parse(twice.to_string().as_bytes(), false).unwrap_err();
    assert!(error.contains("twice"), "{error}");
}

#[test]
fn hostile_yaml_is_refused() {
    let deep = "[".repeat(200);
    let bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n";
    for (text, reason) in [
        (deep.as_str(), "deep"),
        (bomb, "aliases"),
        ("a: 1\na: 2\n", "twice"),
        ("[a: b", "not valid YAML"),
        ("? [x]\n: y\n", "cannot be a key"),
    ] {
        let error = yaml::parse(text).unwrap_err();
        assert!(error.contains(reason), "{text:?}: {error}");
    }
    assert_eq!(
        yaml::parse("{a: 0x10, b: 010, c: 0o10, d: '7', e: 1.0, f: ~, g: true}").unwrap(),
        json!({"a": 16, "b": 8, "c": 8, "d": "7", "e": "1.0", "f": null, "g": true})
    );
}

#[test]
fn qualified_names() {
    for (name, good) in [
        ("vendor.com/class=device", true),
        ("v/c=0", true),
        ("v/c=gpu:1.2_3-x", true),
        ("vendor.com/class", false),
        ("class=device", false),
        ("/dev/null", false),
        ("v/c=", false),
        ("v/c=-x", false),
        ("v/c/d=x", false),
        ("", false),
    ] {
        assert_eq!(is_qualified(name), good, "{name}");
    }
}
