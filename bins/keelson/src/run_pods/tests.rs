//! Manifests, good and bad, with their lines.

use super::manifest::{ManifestContainer, pods};
use super::split::documents;

fn container(name: &str, image: &str, init: bool) -> ManifestContainer {
    ManifestContainer { name: name.to_owned(), image: image.to_owned(), init }
}

const TWO: &str = "# two pods\n---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: one\nspec:\n  \
                   containers:\n  - name: a\n    image: busybox\n---\n\n--- \napiVersion: v1\nkind: Pod\n\
                   metadata: {name: two, namespace: other}\nspec:\n  initContainers: [{name: i, image: x}]\n  \
                   containers: [{name: b, image: z}]\n...\n---\n# nothing\n";

#[test]
fn every_document_is_a_pod_and_knows_its_line() {
    let pods = pods("two.yaml", TWO.as_bytes()).unwrap();
    assert_eq!(pods.len(), 2);
    assert_eq!((pods[0].name.as_str(), pods[0].namespace.as_str()), ("one", "default"));
    assert_eq!(pods[0].location, "two.yaml:3");
    assert_eq!(pods[0].containers, [container("a", "busybox", false)]);
    assert_eq!((pods[1].name.as_str(), pods[1].namespace.as_str()), ("two", "other"));
    assert_eq!(pods[1].location, "two.yaml:14");
    assert_eq!(pods[1].containers, [container("i", "x", true), container("b", "z", false)]);
}

#[test]
fn json_is_taken_too() {
    let text = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "j"},
                   "spec": {"containers": [{"name": "a", "image": "b"}]}}"#;
    assert_eq!(pods("j.json", text.as_bytes()).unwrap()[0].name, "j");
}

#[test]
fn each_error_is_one_line_with_file_and_line() {
    let cases: [(&str, &[&str]); 7] = [
        ("", &["f: the file is empty"]),
        ("# only a comment\n", &["f: the file is empty"]),
        ("apiVersion: v1\nkind: Service\n", &["f:1: kind: v1 Service: expected"]),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {}\nspec:\n  containers: []\n",
            &["f:3: metadata.name: expected a name", "f:5: spec.containers: expected at least one"],
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: x\n    image: 5\n  - image: z\n",
            &["f:7: spec.containers[0].image: expected", "f:8: spec.containers[1].name: expected"],
        ),
        ("apiVersion: v1\nkind: Pod\nspec: [\n", &["f:"]),
        (
            "---\nkind: Pod\nkind: Pod\napiVersion: v1\nmetadata: {name: a}\nspec: {containers: [{name: a, image: b}]}\n",
            &["f:3: "],
        ),
    ];
    for (text, expected) in cases {
        let errors = pods("f", text.as_bytes()).unwrap_err();
        assert_eq!(errors.len(), expected.len(), "{text}: {errors:?}");
        for (error, start) in errors.iter().zip(expected) {
            assert!(error.starts_with(start), "{error} should start with {start}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
    assert!(pods("f", &[0xff, 0xfe, 0x00]).unwrap_err()[0].starts_with("f: not UTF-8"));
}

#[test]
fn a_dash_line_inside_a_text_is_no_marker() {
    assert_eq!(documents("a: |\n  ---\n  x\n----\n").len(), 1);
    assert_eq!(documents("--- {a: 1}\n--- \n--- {b: 2}\n").len(), 2);
}

mod desired_pods_tests {
    use crate::run_pods::desired_pods::{DesiredPods, PodChange, WantedPod};
    use ports::local_api::LocalPod;
    use serde_json::json;
    use std::sync::Arc;

    fn wanted(name: &str, text: &str) -> WantedPod {
        WantedPod {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            manifest: format!("{name}.yaml"),
            text: text.into(),
            contents: Vec::new(),
            instead_of: None,
        }
    }

    fn pod(name: &str, uid: &str, phase: &str, code: i64) -> LocalPod {
        let ended = json!([{ "state": { "terminated": { "exitCode": code } } }]);
        LocalPod {
            uid: uid.to_owned(),
            manifest: format!("{name}.yaml"),
            object: json!({ "status": { "phase": phase, "containerStatuses": ended } }),
            ..LocalPod::default()
        }
    }

    #[test]
    fn a_pod_is_identified_by_its_name_and_an_equal_manifest_changes_nothing() {
        let mut desired = DesiredPods::default();
        assert!(!desired.had_any);
        assert_eq!(desired.compare(&wanted("a", "1")), PodChange::New);
        desired.take(wanted("a", "1"));
        assert!(desired.had_any);
        assert_eq!(desired.compare(&wanted("a", "1\n")), PodChange::Same);
        assert_eq!(desired.compare(&wanted("a", "2")), PodChange::Changed);
        desired.take(wanted("a", "2"));
        let text = |rest: &str| {
            format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec:\n  containers:\n  - name: m\n    image: i:1\n{rest}"
            )
        };
        desired.take(wanted("a", &text("")));
        for (rest, expected) in [
            ("# a comment\n", PodChange::Same),
            ("    imagePullPolicy: IfNotPresent\n", PodChange::Same),
            ("    imagePullPolicy: Always\n", PodChange::Changed),
            ("    nonsense: [\n", PodChange::Changed),
        ] {
            assert_eq!(desired.compare(&wanted("a", &text(rest))), expected, "{rest}");
        }
        desired.take(wanted("a", "2"));
        desired.take(wanted("b", "3"));
        let (texts, version) = (desired.pods.iter().map(|pod| &pod.text), desired.version());
        for (text, (_, known)) in texts.zip(&version) {
            assert!(Arc::ptr_eq(text, known), "a manifest is kept once, however large it is");
        }
        let files = desired.files();
        assert_eq!(files.len(), 2);
        assert_eq!(files[0].name, "a.yaml");
    }

    #[test]
    fn all_have_ended_when_each_wanted_pod_has() {
        let desired = DesiredPods::of(vec![wanted("a", ""), wanted("b", "")]);
        for (pods, expected) in [
            (vec![], None),
            (vec![pod("a", "1", "Succeeded", 0)], None),
            (vec![pod("a", "1", "Succeeded", 0), pod("b", "2", "Running", 0)], None),
            (vec![pod("a", "1", "Succeeded", 0), pod("b", "2", "Succeeded", 0)], Some(0)),
            (vec![pod("a", "1", "Failed", 3), pod("b", "2", "Succeeded", 0)], Some(3)),
            (vec![pod("a", "1", "Failed", 0), pod("b", "2", "Failed", 4)], Some(1)),
            (vec![pod("a", "1", "Failed", 300), pod("b", "2", "Succeeded", 0)], Some(1)),
        ] {
            assert_eq!(desired.overall_exit_code(&pods), expected, "{pods:?}");
        }
        assert_eq!(
            DesiredPods::default().overall_exit_code(&[]),
            None,
            "nobody wanted, nobody ended"
        );
    }

    #[test]
    fn the_end_of_a_replaced_pod_is_not_the_end_of_its_replacement() {
        let mut desired = DesiredPods::of(vec![wanted("a", "1")]);
        desired.take(WantedPod { instead_of: Some("old".to_owned()), ..wanted("a", "2") });
        assert_eq!(desired.overall_exit_code(&[pod("a", "old", "Failed", 3)]), None);
        let both = [pod("a", "old", "Failed", 3), pod("a", "new", "Succeeded", 0)];
        assert_eq!(desired.overall_exit_code(&both), Some(0));
    }
}

mod exit_codes {
    use crate::run_pods::pod_exit::{ExitCodes, exit_code_of_ended};
    use ports::local_api::LocalPod;
    use serde_json::{Value, json};

    fn pod(uid: &str, phase: &str, containers: &Value, inits: &Value) -> LocalPod {
        let status = json!({ "phase": phase, "containerStatuses": containers,
            "initContainerStatuses": inits });
        LocalPod { uid: uid.to_owned(), object: json!({ "status": status }), ..LocalPod::default() }
    }

    fn ended(code: i64) -> Value {
        json!({ "state": { "terminated": { "exitCode": code, "reason": "Error" } } })
    }

    fn running() -> Value {
        json!({ "state": { "running": {} }, "lastState": { "terminated": { "exitCode": 5 } } })
    }

    /// A container in back-off when its pod was stopped.
    fn waiting_after(code: i64) -> Value {
        let unknown = json!({ "exitCode": 137, "reason": "ContainerStatusUnknown" });
        json!({ "state": { "terminated": unknown },
            "lastState": { "terminated": { "exitCode": code } } })
    }

    fn after(looks: &[Vec<LocalPod>]) -> u8 {
        let mut exit_codes = ExitCodes::default();
        looks.iter().for_each(|pods| exit_codes.update(pods));
        exit_codes.update(&[]);
        exit_codes.code()
    }

    #[test]
    fn a_stopped_pods_exit_code_comes_from_its_containers() {
        let never_begun = json!({ "state": { "terminated":
            { "exitCode": 137, "reason": "ContainerStatusUnknown" } } });
        for (containers, inits, expected) in [
            (json!([ended(0)]), json!([]), 0),
            (json!([ended(0), ended(3)]), json!([]), 3),
            (json!([ended(137)]), json!([]), 137),
            (json!([ended(300)]), json!([]), 1),
            (json!([waiting_after(4)]), json!([]), 4),
            (json!([never_begun.clone()]), json!([]), 0),
            (json!([running()]), json!([]), 0),
            (json!([ended(0)]), json!([ended(143)]), 0),
            (json!([never_begun]), json!([ended(9)]), 9),
            (Value::Null, Value::Null, 0),
        ] {
            let last = pod("a", "Running", &containers, &inits);
            let first = pod("a", "Running", &json!([running()]), &json!([]));
            assert_eq!(after(&[vec![first], vec![last]]), expected, "{containers}");
        }
    }

    #[test]
    fn the_last_look_counts_and_the_first_failure_stays() {
        let one = |uid: &str, code| pod(uid, "Running", &json!([ended(code)]), &json!([]));
        assert_eq!(after(&[vec![one("a", 3)], vec![one("a", 0)]]), 0, "it was started again");
        assert_eq!(after(&[vec![one("a", 3), one("b", 0)], vec![one("b", 4)]]), 3);
        assert_eq!(after(&[]), 0);
    }

    #[test]
    fn an_ended_pods_exit_code_comes_from_its_phase() {
        let sidecar = json!([ended(143)]);
        let done = pod("a", "Succeeded", &json!([ended(0)]), &sidecar);
        let failed = pod("a", "Failed", &json!([ended(3)]), &sidecar);
        assert_eq!((exit_code_of_ended(&done), exit_code_of_ended(&failed)), (Some(0), Some(3)));
        assert_eq!((after(&[vec![done]]), after(&[vec![failed]])), (0, 3));
        let late = pod("a", "Failed", &json!([ended(0)]), &json!([]));
        assert_eq!(exit_code_of_ended(&late), Some(1), "failed without a container that did");
        let preparing = pod("a", "Failed", &json!([]), &json!([ended(7)]));
        assert_eq!(exit_code_of_ended(&preparing), Some(7));
    }
}

mod from_image {
    use crate::run_pods::image_manifest::{ImagePod, PublishedPort, Variable, name_of};
    use crate::run_pods::manifest::pods;

    #[test]
    fn a_pod_is_called_after_its_image() {
        for (image, expected) in [
            ("busybox", "busybox"),
            ("docker.io/library/busybox:1.36", "busybox"),
            ("registry.example:5000/team/My_App:1.2@sha256:abc", "my-app"),
            ("localhost:5000/x", "x"),
            ("___", "pod"),
            ("", "pod"),
        ] {
            assert_eq!(name_of(image), expected, "{image}");
        }
        assert!(name_of(&"a".repeat(300)).len() <= 50);
    }

    #[test]
    fn ports_and_variables_are_what_other_tools_take() {
        for (text, is_good) in [
            ("80", true),
            ("8080:80", true),
            ("8080:80/udp", true),
            ("80/tcp", true),
            ("80/sctp", false),
            ("0:80", false),
            (":80", false),
            ("80:", false),
            ("a", false),
            ("", false),
        ] {
            assert_eq!(text.parse::<PublishedPort>().is_ok(), is_good, "{text}");
        }
        for (text, is_good) in
            [("A=b", true), ("A=", true), ("A=b=c", true), ("A", false), ("=b", false)]
        {
            assert_eq!(text.parse::<Variable>().is_ok(), is_good, "{text}");
        }
    }

    #[test]
    fn the_manifest_is_one_that_an_api_server_would_take() {
        let whole = ImagePod {
            image: "docker.io/library/busybox:1".to_owned(),
            name: Some("shell".to_owned()),
            ports: vec!["8080:80".parse().unwrap(), "53/udp".parse().unwrap()],
            environment: vec!["A=b=c".parse().unwrap()],
            stdin: true,
            tty: true,
            arguments: vec!["sh".to_owned(), "-c".to_owned(), "echo \"$A\"".to_owned()],
        };
        let bare = ImagePod { image: "web:1".to_owned(), ..ImagePod::default() };
        for (image, name) in [(&whole, "shell"), (&bare, "web")] {
            let text = image.manifest();
            let found = pods("--image", text.as_bytes()).expect(&text);
            assert_eq!(found[0].name, name, "{text}");
        }
        let text = whole.manifest();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["spec"]["restartPolicy"], "Never");
        let container = &value["spec"]["containers"][0];
        assert_eq!(container["ports"][1]["protocol"], "UDP");
        assert_eq!(container["args"][2], "echo \"$A\"");
        assert_eq!(container["stdinOnce"], true);
        let wrong = ImagePod { name: Some("No Name".to_owned()), ..bare };
        assert!(pods("--image", wrong.manifest().as_bytes()).is_err());
    }
}

#[test]
fn a_background_agent_takes_its_pods_up_with_the_settings_that_they_had() {
    use super::background_store::BackgroundPodStore;
    use super::desired_pods::WantedPod;
    let dir = tempfile::tempdir().unwrap();
    let background_store = BackgroundPodStore::below(dir.path());
    assert_eq!(background_store.runtime_config(None, &[]).unwrap(), None);
    let file = dir.path().join("mine.json");
    std::fs::write(&file, "{}").unwrap();
    let found = background_store.runtime_config(Some(&file), &[]).unwrap().unwrap();
    // The file need not exist any more by then.
    std::fs::remove_file(&file).unwrap();
    let pod = pods("two.yaml", TWO.as_bytes()).unwrap().remove(0);
    let left = [WantedPod::of(&pod, "two.yaml".to_owned())];
    assert_eq!(background_store.runtime_config(None, &left).unwrap(), Some(found.clone()));
    assert_eq!(std::fs::read_to_string(&found).unwrap(), "{}");
    // No pod that used them is left.
    assert_eq!(background_store.runtime_config(None, &[]).unwrap(), None);
    assert!(!found.exists());
    assert!(background_store.runtime_config(Some(&file), &[]).is_err(), "a file that is not there");
}

mod contents {
    use crate::run_pods::background_store::BackgroundPodStore;
    use crate::run_pods::contents::as_one_text;
    use crate::run_pods::desired_pods::{DesiredPods, PodChange, WantedPod};
    use crate::run_pods::manifest::{PodManifest, pods};
    use crate::run_pods::manifest_contents::ManifestContents;
    use ports::{ContentError, ContentKind, ContentName, PodContents};
    use tokio::sync::watch;

    const SECRET: &str =
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {k: hunter2}\n";

    fn map(value: &str) -> String {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m}}\ndata: {{k: '{value}'}}\n")
    }

    fn pod(name: &str, volumes: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers: [{{name: a, \
             image: i}}]\n  volumes: [{volumes}]\n"
        )
    }

    const USES_MAP: &str = "{name: v, configMap: {name: m}}";

    fn read(documents: &[&str]) -> Result<Vec<PodManifest>, Vec<String>> {
        pods("f", documents.join("---\n").as_bytes())
    }

    fn names(pod: &PodManifest) -> String {
        let names = pod.contents.iter().map(|document| document.content.name.to_string());
        names.collect::<Vec<_>>().join(",")
    }

    fn wanted(documents: &[&str]) -> WantedPod {
        WantedPod::of(&read(documents).unwrap()[0], "f".to_owned())
    }

    fn config_map() -> ContentName {
        let kind = ContentKind::ConfigMap;
        ContentName { kind, namespace: "default".into(), name: "m".into() }
    }

    #[test]
    fn a_pod_gets_what_it_refers_to_and_nothing_else() {
        let both = "{name: v, configMap: {name: m}}, {name: w, secret: {secretName: s}}";
        let optional = "{name: v, configMap: {name: gone, optional: true}}";
        let documents = [
            &*map("1"),
            &pod("none", ""),
            &pod("one", USES_MAP),
            SECRET,
            &pod("both", both),
            &pod("optional", optional),
        ];
        let found = read(&documents).unwrap();
        let found: Vec<String> = found.iter().map(names).collect();
        let map = "ConfigMap default/m";
        assert_eq!(found, ["", map, &format!("{map},Secret default/s"), ""]);
    }

    #[test]
    fn errors_of_files_with_objects() {
        let elsewhere = map("1").replace("{name: m}", "{name: m, namespace: other}");
        for (documents, expected) in [
            (vec![pod("a", USES_MAP)], "f:1: pod default/a needs the configmap \"m\", which is in"),
            (vec![elsewhere, pod("a", USES_MAP)], "f:6: pod default/a needs the configmap"),
            (vec![map("1"), map("2"), pod("a", "")], "f:6: ConfigMap default/m is in f:1 already"),
            (vec![map("1")], "f: expected a Pod, found none"),
            (vec![SECRET.replace("{k: hunter2}", "{'a/b': hunter2}")], "f:4: stringData"),
            (vec![format!("{SECRET}stringData: {{}}\n"), pod("a", "")], "f:5: stringData"),
            (
                vec![pod("a", "").replace("spec:\n", "spec:\n  serviceAccountName: x\n")],
                "f:5: spec.serviceAccountName: a static pod may not refer to serviceaccounts",
            ),
        ] {
            let texts: Vec<&str> = documents.iter().map(String::as_str).collect();
            let errors = read(&texts).unwrap_err();
            assert!(errors.len() == 1 && errors[0].starts_with(expected), "{errors:?}");
            assert!(!errors[0].contains("hunter2"), "{errors:?}");
        }
    }

    #[test]
    fn one_text_for_a_pod_with_what_it_uses() {
        let json = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec":
            {"containers": [{"name": "a", "image": "i", "envFrom": [{"configMapRef": {"name": "m"}}]}]}}"#;
        let documents = [&*map("1"), &pod("a", USES_MAP)].join("---\n");
        let of_json = {
            let files = [("j", json), ("m", &*map("1"))];
            let read = |(path, text): (&str, &str)| {
                crate::run_pods::manifest::documents(path, text.as_bytes()).unwrap()
            };
            crate::run_pods::contents::assign(files.into_iter().map(read).collect()).unwrap()
        };
        for pod in [pods("f", documents.as_bytes()).unwrap(), of_json] {
            let again = pods("g", as_one_text(&pod[0]).as_bytes()).unwrap();
            assert_eq!((again.len(), names(&again[0])), (1, "ConfigMap default/m".to_owned()));
            let line = |pod: &PodManifest| pod.location.split_once(':').unwrap().1.to_owned();
            assert_eq!(line(&again[0]), line(&pod[0]));
            let desired = DesiredPods::of(vec![WantedPod::of(&pod[0], "f".to_owned())]);
            let same = WantedPod::of(&again[0], "g".to_owned());
            assert_eq!(desired.compare(&same), PodChange::Same);
        }
    }

    #[test]
    fn new_content_changes_what_a_pod_uses_and_not_the_pod() {
        let (old, new) = (wanted(&[&map("1"), &pod("a", USES_MAP)]), map("2"));
        let mut desired = DesiredPods::of(vec![old.clone()]);
        let before = desired.version();
        let updated = wanted(&["# moved\n", &new, &pod("a", USES_MAP)]);
        assert_eq!(desired.compare(&updated), PodChange::Updated);
        assert_eq!(desired.compare(&wanted(&[&map("1"), &pod("a", "")])), PodChange::Changed);
        // Another pod may not give the name another meaning, unless it is given with this one.
        let other = wanted(&[&new, &pod("b", USES_MAP)]);
        let (name, known) = desired.conflict(std::slice::from_ref(&other)).unwrap();
        assert_eq!((name, &*known.name), (config_map(), "a"));
        assert!(desired.conflict(&[other, updated.clone()]).is_none());
        assert!(desired.conflict(&[wanted(&[&map("1"), &pod("b", USES_MAP)])]).is_none());
        desired.take(desired.with_contents_of(&updated).unwrap());
        assert_eq!(desired.version(), before);
        assert_eq!(desired.content(&config_map()).unwrap().data.0["k"], b"2");
    }

    #[tokio::test]
    async fn an_object_follows_its_documents_and_never_goes_from_under_a_pod() {
        let one = |value: &str| DesiredPods::of(vec![wanted(&[&map(value), &pod("a", USES_MAP)])]);
        let desired = watch::Sender::new(DesiredPods::default());
        let contents = ManifestContents::new(desired.subscribe());
        let mut watch = contents.watch(&config_map());
        assert_eq!(watch.next().await, Err(ContentError::NotFound));
        assert_eq!(contents.read(&config_map()).await, Err(ContentError::NotFound));
        for value in ["1", "2"] {
            desired.send_replace(one(value));
            assert_eq!(watch.next().await.unwrap().data.0["k"], value.as_bytes());
            assert_eq!(contents.read(&config_map()).await.unwrap().data.0["k"], value.as_bytes());
        }
        // The pod is stopped: it runs for a while without being desired.
        desired.send_replace(DesiredPods::default());
        desired.send_replace(one("3"));
        assert_eq!(watch.next().await.unwrap().data.0["k"], b"3");
    }

    #[tokio::test]
    async fn a_background_agent_keeps_what_its_pods_use() {
        let dir = tempfile::tempdir().unwrap();
        let store = BackgroundPodStore::below(dir.path());
        let pod = wanted(&[&map("1"), &pod("a", USES_MAP)]);
        store.save(&pod).await.unwrap();
        let loaded = store.load().await.unwrap().remove(0);
        assert_eq!(DesiredPods::of(vec![pod]).compare(&loaded), PodChange::Same);
        assert_eq!(loaded.contents[0].content.object.data.0["k"], b"1");
    }
}
