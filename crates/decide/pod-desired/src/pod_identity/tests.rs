//! Which pod gets which UID.

use super::*;
use crate::manifests::{ManifestOptions, Manifests};
use pod_manifest::PodGates;
use pod_manifest::static_pod::{CONFIG_HASH_ANNOTATION, CONFIG_SEEN_ANNOTATION, SourceKind};
use ports::pod_sources::{ManifestContent, ManifestFile, SourceSnapshot};
use ports::runtime_objects::{ContainerRecord, ContainerState};

fn candidate(text: &str) -> PodCandidate {
    let reading = ManifestOptions { node_name: "n".to_owned(), gates: PodGates::default() };
    let mut manifests = Manifests::new(reading, &[SourceKind::File]);
    let content = ManifestContent::Bytes(text.as_bytes().to_vec());
    let file = ManifestFile { name: "/m/a".to_owned(), content };
    let update = manifests.apply_snapshot(0, &SourceSnapshot::All(vec![file]));
    assert!(!update.notices.iter().any(Notice::is_error), "{update:?}");
    manifests.candidates().0.remove(0)
}

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n\
                   spec: {containers: [{name: main, image: 'i:1'}]}\n";

fn hash(container: &Container) -> String {
    format!("hash of {}", container.image)
}

/// Seconds: UIDs depend on the time in microseconds, and closer times would be the same.
fn at<'a>(seconds: i64, running: &'a RuntimePods) -> IdentityContext<'a> {
    let now = ApiTime::from_nanos(seconds * 1_000_000_000);
    IdentityContext { now, running, container_hash: &hash }
}

fn uid(identified: &IdentifiedPod) -> &str {
    &identified.pod.metadata.uid
}

fn as_saved(identified: &IdentifiedPod) -> (String, Vec<u8>) {
    let record = identified.record.clone().unwrap();
    (record.name, record.content.unwrap())
}

#[test]
fn a_uid_is_given_once_and_outlives_the_agent_comments_and_new_defaults() {
    let nothing = RuntimePods::default();
    let mut identities = PodIdentities::default();
    let first = identities.identify(&candidate(POD), &at(1, &nothing));
    assert_eq!(uid(&first).len(), 32);
    assert_eq!(&**first.pod.metadata.annotations.get(CONFIG_HASH_ANNOTATION).unwrap(), uid(&first));
    let again = identities.identify(&candidate(POD), &at(2, &nothing));
    assert_eq!(again, IdentifiedPod { record: None, ..first.clone() });

    let mut next = PodIdentities::default();
    assert!(next.restore(&[as_saved(&first)]).is_empty());
    assert!(!next.may_adopt_running_uid(&candidate(POD)));
    let commented = candidate(&format!("# hello\n{POD}"));
    let same = next.identify(&commented, &at(3, &nothing));
    assert_eq!(uid(&same), uid(&first), "the same pod in other bytes");
    let seen =
        |each: &IdentifiedPod| each.pod.metadata.annotations.get(CONFIG_SEEN_ANNOTATION).cloned();
    assert_eq!(seen(&same), seen(&first));
    let mut other_defaults = candidate(&format!("# hello\n{POD}"));
    other_defaults.pod_hash = 7;
    assert_eq!(uid(&next.identify(&other_defaults, &at(4, &nothing))), uid(&first));
    assert_eq!(next.owners().collect::<Vec<_>>(), [("a-n_default", "/m/a")]);
}

#[test]
fn another_pod_gets_another_uid_and_an_earlier_one_its_own_again() {
    let nothing = RuntimePods::default();
    let mut identities = PodIdentities::default();
    let one = identities.identify(&candidate(POD), &at(1, &nothing));
    let edited = candidate(&POD.replace("i:1", "i:2"));
    assert!(!identities.may_adopt_running_uid(&edited), "its name had a UID: it waits for nobody");
    let two = identities.identify(&edited, &at(2, &nothing));
    let three = identities.identify(&candidate(POD), &at(3, &nothing));
    assert_ne!(uid(&one), uid(&two));
    assert_eq!(uid(&one), uid(&three));
}

#[test]
fn a_pod_of_an_earlier_agent_is_known_without_being_wanted() {
    let nothing = RuntimePods::default();
    let mut identities = PodIdentities::default();
    let first = identities.identify(&candidate(POD), &at(1, &nothing));
    let mut next = PodIdentities::default();
    assert_eq!(next.recorded(&candidate(POD)), None);
    next.restore(&[as_saved(&first)]);
    assert_eq!(next.recorded(&candidate(POD)), Some(first.pod.clone()));
    let edited = candidate(&POD.replace("i:1", "i:2"));
    assert_eq!(next.recorded(&edited), None, "another pod");
    let elsewhere = PodCandidate { manifest: "/m/b".to_owned(), ..candidate(POD) };
    assert_eq!(next.recorded(&elsewhere), None, "that of another manifest");

    let stated = POD.replace("{name: a}", "{name: a, uid: stated-1}");
    let stated_first = identities.identify(&candidate(&stated), &at(2, &nothing));
    let mut next = PodIdentities::default();
    next.restore(&[as_saved(&stated_first)]);
    let edited = next.recorded(&candidate(&stated.replace("i:1", "i:2"))).unwrap();
    assert_eq!(&*edited.metadata.uid, "stated-1", "it is one pod however it changes");
    assert_eq!(next.recorded(&candidate(&stated.replace("stated-1", "stated-2"))), None);
}

#[test]
fn a_stated_uid_counts() {
    let nothing = RuntimePods::default();
    let stated = POD.replace("{name: a}", "{name: a, uid: stated-1}");
    let mut identities = PodIdentities::default();
    let first = identities.identify(&candidate(&stated), &at(1, &nothing));
    assert_eq!(uid(&first), "stated-1");
    let edited = identities.identify(&candidate(&stated.replace("i:1", "i:2")), &at(2, &nothing));
    assert_eq!(uid(&edited), "stated-1");
    // Nothing that runs can change it, so nothing of the runtime need be known.
    assert!(!PodIdentities::default().may_adopt_running_uid(&candidate(&stated)));
    let found = running(|_| {});
    let own = PodIdentities::default().identify(&candidate(&stated), &at(1, &found));
    assert!(!own.adopted && uid(&own) == "stated-1");
}

#[test]
fn a_uid_that_a_later_version_saved_is_not_read() {
    let nothing = RuntimePods::default();
    let (name, content) =
        as_saved(&PodIdentities::default().identify(&candidate(POD), &at(1, &nothing)));
    let later = String::from_utf8(content).unwrap().replace("\"version\":1", "\"version\":2");
    let mut next = PodIdentities::default();
    let notices = next.restore(&[(name.clone(), later.into_bytes())]);
    assert!(matches!(&notices[..], [Notice::Warning(text)] if text.contains(&name)), "{notices:?}");
    assert!(next.may_adopt_running_uid(&candidate(POD)));
}

fn running(change: impl FnOnce(&mut RuntimePods)) -> RuntimePods {
    let sandbox = SandboxRecord {
        id: "s".to_owned(),
        name: "a-n".to_owned(),
        namespace: "default".to_owned(),
        uid: "lent".to_owned(),
        ready: true,
        annotations: [(CONFIG_SOURCE_ANNOTATION.to_owned(), "file".to_owned())].into(),
        ..SandboxRecord::default()
    };
    let container = ContainerRecord {
        sandbox_id: "s".to_owned(),
        name: "main".to_owned(),
        state: ContainerState::Running,
        annotations: [("io.kubernetes.container.hash".to_owned(), "hash of i:1".to_owned())].into(),
        ..ContainerRecord::default()
    };
    let mut pods = RuntimePods {
        sandboxes: vec![sandbox],
        containers: vec![container],
        ..RuntimePods::default()
    };
    change(&mut pods);
    pods
}

#[test]
fn a_running_pod_of_the_same_name_and_containers_lends_its_uid() {
    let found = running(|_| {});
    let adopted = PodIdentities::default().identify(&candidate(POD), &at(1, &found));
    assert!(adopted.adopted && adopted.record.is_some());
    assert_eq!(uid(&adopted), "lent");
    let between = running(|pods| pods.containers[0].state = ContainerState::Exited);
    let adopted = PodIdentities::default().identify(&candidate(POD), &at(1, &between));
    assert_eq!(uid(&adopted), "lent", "in a crash loop");

    type ManifestEdit = fn(&mut RuntimePods);
    let unlike: [(&str, ManifestEdit); 8] = [
        ("another hash", |pods| {
            pods.containers[0].annotations.clear();
        }),
        ("another name", |pods| "b-n".clone_into(&mut pods.sandboxes[0].name)),
        ("another namespace", |pods| "x".clone_into(&mut pods.sandboxes[0].namespace)),
        ("without a UID", |pods| pods.sandboxes[0].uid.clear()),
        ("not ready", |pods| pods.sandboxes[0].ready = false),
        ("of the API server", |pods| {
            let source = CONFIG_SOURCE_ANNOTATION.to_owned();
            pods.sandboxes[0].annotations.insert(source, "api".to_owned());
        }),
        ("a container too many", |pods| {
            let extra = ContainerRecord { name: "x".to_owned(), ..pods.containers[0].clone() };
            pods.containers.push(extra);
        }),
        ("no container to compare", |pods| pods.containers.clear()),
    ];
    for (why, change) in unlike {
        let found = running(change);
        let own = PodIdentities::default().identify(&candidate(POD), &at(1, &found));
        assert!(!own.adopted && uid(&own) != "lent", "{why}");
    }
}

#[test]
fn a_recorded_uid_wins_over_a_running_pod() {
    let nothing = RuntimePods::default();
    let found = running(|_| {});
    let mut identities = PodIdentities::default();
    let own = identities.identify(&candidate(POD), &at(1, &nothing));
    assert_eq!(uid(&identities.identify(&candidate(POD), &at(2, &found))), uid(&own));
    let edited = candidate(&POD.replace("name: main,", "name: main, args: [x],"));
    assert!(!identities.may_adopt_running_uid(&edited));
    let edited = identities.identify(&edited, &at(3, &found));
    assert!(uid(&edited) != "lent" && uid(&edited) != uid(&own), "an edit is another pod");
}

#[test]
fn each_pod_has_a_record_of_its_own_under_a_name_that_any_disk_takes() {
    let nothing = RuntimePods::default();
    let record = |name: &str| {
        let text = POD.replace("{name: a}", &format!("{{name: {name}}}"));
        PodIdentities::default().identify(&candidate(&text), &at(1, &nothing)).record.unwrap().name
    };
    let long = "a".repeat(200);
    let names = [record("a"), record("b"), record(&long)];
    for name in &names {
        assert!(name.len() == 32 && name.bytes().all(|each| each.is_ascii_hexdigit()), "{name}");
    }
    assert!(names[0] != names[1] && names[0] != names[2] && names[1] != names[2], "{names:?}");
    assert_eq!(record("a"), names[0]);
}

#[test]
fn uids_of_removed_pods_are_removed() {
    let nothing = RuntimePods::default();
    let mut identities = PodIdentities::default();
    let first = identities.identify(&candidate(POD), &at(1, &nothing));
    assert!(identities.retain_names(&["a-n_default".to_owned()].into()).is_empty());
    let gone = identities.retain_names(&BTreeSet::new());
    assert_eq!(gone[0].name, first.record.unwrap().name);
    assert_eq!(gone[0].content, None);
    assert!(identities.may_adopt_running_uid(&candidate(POD)));
    assert_eq!(identities.restore(&[("x".to_owned(), b"no".to_vec())]).len(), 1);
}

#[test]
fn golden_identity_on_disk() {
    let text = r#"{
      "version": 1, "fullName": "web_default", "uid": "u", "manifest": "/m/web.yaml",
      "bytesHash": "a", "podHash": "b", "seen": "2020-01-01T00:00:00Z"
    }"#;
    let pod_identity: PodIdentityRecord = serde_json::from_str(text).expect("an identity");
    let expected: serde_json::Value = serde_json::from_str(text).expect("JSON");
    assert_eq!(serde_json::to_value(&pod_identity).expect("JSON"), expected);
}
