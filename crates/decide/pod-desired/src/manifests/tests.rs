//! Snapshots of sources, valid and invalid ones.

use super::*;

fn pod_text(name: &str, image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n\
         spec: {{containers: [{{name: main, image: {image}}}]}}\n"
    )
}

fn file(name: &str, text: &str) -> ManifestFile {
    ManifestFile {
        name: name.to_owned(),
        content: ManifestContent::Bytes(text.as_bytes().to_vec()),
    }
}

fn unreadable(name: &str) -> ManifestFile {
    let content = ManifestContent::Unreadable("permission denied".to_owned());
    ManifestFile { name: name.to_owned(), content }
}

fn manifests() -> Manifests {
    let reading = ManifestOptions { node_name: "node".to_owned(), gates: PodGates::default() };
    Manifests::new(reading, &[SourceKind::File, SourceKind::Url])
}

fn apply_snapshot(manifests: &mut Manifests, at: usize, files: &[ManifestFile]) -> SourceUpdate {
    manifests.apply_snapshot(at, &SourceSnapshot::All(files.to_vec()))
}

fn offered(manifests: &mut Manifests) -> Vec<String> {
    let (candidates, _) = manifests.candidates();
    let show = |each: &PodCandidate| {
        format!("{} {}", each.pod.full_name(), each.pod.spec.containers[0].image)
    };
    candidates.iter().map(show).collect()
}

#[test]
fn no_pod_is_removed_until_every_source_has_reported() {
    let mut manifests = manifests();
    assert!(!manifests.all_sources_reported());
    apply_snapshot(&mut manifests, 0, &[file("/m/a.yaml", &pod_text("a", "i:1"))]);
    assert!(!manifests.all_sources_reported());
    let result = manifests
        .apply_snapshot(1, &SourceSnapshot::Unreachable("http://x does not answer".into()));
    assert!(result.notices[0].text().contains("kept"), "{result:?}");
    assert!(!manifests.all_sources_reported(), "a source that cannot be read has not spoken");
    assert_eq!(offered(&mut manifests), ["a-node_default i:1"], "but others run meanwhile");
    assert!(manifests.source_errors()[0].starts_with("http://x does not answer;"));
    apply_snapshot(&mut manifests, 1, &[]);
    assert!(manifests.all_sources_reported());
    assert!(manifests.source_errors().is_empty(), "what is over is not told on");
}

#[test]
fn a_broken_manifest_keeps_the_pod_of_its_last_good_version_and_is_reported() {
    let mut manifests = manifests();
    let good = apply_snapshot(&mut manifests, 0, &[file("/m/a", &pod_text("a", "i:1"))]);
    assert_eq!(good.records.len(), 1, "{good:?}");
    let broken = [
        file("/m/a", "{"),
        file("/m/a", &pod_text("a", "i:1").replace("name: main", "name: Main_")),
        file("/m/a", &pod_text("renamed", "''")),
        file("/m/a", ""),
        unreadable("/m/a"),
    ];
    for bad in broken {
        let update = apply_snapshot(&mut manifests, 0, std::slice::from_ref(&bad));
        let text = update.notices.iter().find(|each| each.is_error()).map(Notice::text);
        assert!(
            text.is_some_and(|text| text.contains("/m/a") && text.contains("a-node_default kept")),
            "{bad:?} {update:?}"
        );
        assert!(update.records.is_empty(), "the good version stays saved: {update:?}");
        assert_eq!(offered(&mut manifests), ["a-node_default i:1"]);
        assert_eq!(manifests.source_errors().len(), 1);
        let again = apply_snapshot(&mut manifests, 0, &[bad]);
        assert_eq!(again, SourceUpdate::default(), "said once");
    }
    apply_snapshot(&mut manifests, 0, &[file("/m/a", &pod_text("a", "i:2"))]);
    assert_eq!(offered(&mut manifests), ["a-node_default i:2"]);
    assert!(manifests.source_errors().is_empty());
}

#[test]
fn a_manifest_that_was_never_good_names_the_pod_that_is_not_run() {
    let mut manifests = manifests();
    let bad = pod_text("a", "i:1").replace("name: main", "name: Main_");
    apply_snapshot(&mut manifests, 0, &[file("/m/x", &bad)]);
    assert!(manifests.source_errors()[0].ends_with("; not run: pod a-node_default"));
    apply_snapshot(&mut manifests, 0, &[file("/m/x", "{")]);
    assert!(
        manifests.source_errors()[0].ends_with("; no pod runs from it"),
        "nobody knows its name"
    );
}

#[test]
fn saved_pods_are_known_before_their_source_reports() {
    let mut first = manifests();
    let good = apply_snapshot(&mut first, 0, &[file("/m/a", &pod_text("a", "i:1"))]);
    let record = good.records[0].clone();
    let mut next = manifests();
    next.restore(&[(record.name, record.content.unwrap())]);
    assert!(offered(&mut next).is_empty(), "not to be run yet");
    let names = |manifests: &Manifests| -> Vec<String> {
        manifests.all().map(|candidate| candidate.pod.full_name()).collect()
    };
    assert_eq!(names(&next), ["a-node_default"]);
    apply_snapshot(&mut next, 0, &[]);
    assert!(names(&next).is_empty());
}

#[test]
fn a_file_that_is_gone_takes_its_pod_with_it_and_so_does_a_pod_gone_from_a_list() {
    let mut manifests = manifests();
    apply_snapshot(&mut manifests, 0, &[file("/m/a", &pod_text("a", "i:1"))]);
    let list = |names: &[&str]| {
        let items: Vec<String> = names
            .iter()
            .map(|name| {
                format!(
                    "{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{{\"name\":\"{name}\"}},\
                     \"spec\":{{\"containers\":[{{\"name\":\"c\",\"image\":\"i:1\"}}]}}}}"
                )
            })
            .collect();
        format!("{{\"apiVersion\":\"v1\",\"kind\":\"PodList\",\"items\":[{}]}}", items.join(","))
    };
    apply_snapshot(&mut manifests, 1, &[file("http://h/l", &list(&["b", "c"]))]);
    assert_eq!(offered(&mut manifests).len(), 3);
    apply_snapshot(&mut manifests, 1, &[file("http://h/l", &list(&["b"]))]);
    assert_eq!(offered(&mut manifests), ["a-node_default i:1", "b-node_default i:1"]);
    let gone = apply_snapshot(&mut manifests, 0, &[]);
    assert_eq!(offered(&mut manifests), ["b-node_default i:1"]);
    assert_eq!(gone.records.len(), 1);
    assert_eq!(gone.records[0].content, None);
}

#[test]
fn an_agent_that_starts_over_a_broken_manifest_knows_its_last_good_version() {
    let mut first = manifests();
    let update = apply_snapshot(&mut first, 0, &[file("/m/a", &pod_text("a", "i:1"))]);
    let record = &update.records[0];
    let saved = (record.name.clone(), record.content.clone().unwrap_or_default());

    let mut second = manifests();
    assert!(second.restore(std::slice::from_ref(&saved)).is_empty());
    assert!(offered(&mut second).is_empty(), "not before the source was heard");
    apply_snapshot(&mut second, 0, &[file("/m/a", "nonsense: [")]);
    assert_eq!(offered(&mut second), ["a-node_default i:1"]);

    let mut third = manifests();
    third.restore(std::slice::from_ref(&saved));
    let update = apply_snapshot(&mut third, 0, &[]);
    assert!(offered(&mut third).is_empty(), "removed while no agent ran");
    assert_eq!(update.records.len(), 1);

    let mut fourth = manifests();
    let notices = fourth.restore(&[("x".to_owned(), b"{\"version\":9}".to_vec())]);
    assert_eq!(notices.len(), 1);
}

#[test]
fn the_first_of_two_manifests_with_the_same_pod_keeps_it() {
    let mut manifests = manifests();
    let b = file("/m/b", &pod_text("same", "b:1"));
    apply_snapshot(&mut manifests, 0, std::slice::from_ref(&b));
    assert_eq!(offered(&mut manifests), ["same-node_default b:1"]);
    let a = file("/m/a", &pod_text("same", "a:1"));
    apply_snapshot(&mut manifests, 0, &[a.clone(), b]);
    let (candidates, notices) = manifests.candidates();
    assert_eq!(candidates[0].manifest, "/m/b");
    assert!(notices[0].text().contains("/m/a") && notices[0].is_error(), "{notices:?}");
    assert!(manifests.candidates().1.is_empty(), "said once");
    assert_eq!(manifests.source_errors().len(), 1);
    apply_snapshot(&mut manifests, 0, &[a]);
    assert_eq!(offered(&mut manifests), ["same-node_default a:1"]);
}

#[test]
fn a_manifest_that_had_a_pod_before_the_agent_started_keeps_it() {
    let both = [file("/m/a", &pod_text("same", "a:1")), file("/m/b", &pod_text("same", "b:1"))];
    let mut first = manifests();
    apply_snapshot(&mut first, 0, &both);
    assert_eq!(offered(&mut first), ["same-node_default a:1"], "the first, where nobody had it");
    let mut next = manifests();
    next.restore_owner("same-node_default", "/m/b");
    assert!(offered(&mut next).is_empty(), "asked before anybody has spoken");
    apply_snapshot(&mut next, 0, &both);
    assert_eq!(offered(&mut next), ["same-node_default b:1"]);
    apply_snapshot(&mut next, 1, &[]);
    assert_eq!(offered(&mut next), ["same-node_default b:1"]);
    apply_snapshot(&mut next, 0, &[]);
    assert!(offered(&mut next).is_empty());
    apply_snapshot(&mut next, 0, &both);
    assert_eq!(offered(&mut next), ["same-node_default a:1"], "what nobody has is the first's");
}

#[test]
fn a_name_waits_for_the_source_that_had_it() {
    let ours = file("http://h/l", &pod_text("same", "url:1"));
    let mut first = manifests();
    let saved = apply_snapshot(&mut first, 1, std::slice::from_ref(&ours)).records.remove(0);
    let saved = (saved.name, saved.content.expect("a record"));
    for (snapshot, expected) in [
        (SourceSnapshot::All(vec![ours.clone()]), "same-node_default url:1"),
        (SourceSnapshot::Unreachable("away".to_owned()), "same-node_default url:1"),
        (SourceSnapshot::All(Vec::new()), "same-node_default a:1"),
    ] {
        let mut next = manifests();
        next.restore(std::slice::from_ref(&saved));
        next.restore_owner("same-node_default", "http://h/l");
        apply_snapshot(&mut next, 0, &[file("/m/a", &pod_text("same", "a:1"))]);
        assert!(offered(&mut next).is_empty(), "it may still come");
        next.apply_snapshot(1, &snapshot);
        assert_eq!(offered(&mut next), [expected], "{snapshot:?}");
    }
}

#[test]
fn in_a_list_only_the_broken_pod_keeps_its_last_good_version() {
    let list = |image: &str, second: &str| {
        let pod = |name: &str, container: &str| {
            format!(
                "{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{{\"name\":\"{name}\"}},\
                 \"spec\":{{\"containers\":[{{\"name\":\"{container}\",\"image\":\"{image}\"}}]}}}}"
            )
        };
        let pods = format!("{},{}", pod("b", "c"), pod("c", second));
        format!("{{\"apiVersion\":\"v1\",\"kind\":\"PodList\",\"items\":[{pods}]}}")
    };
    let mut manifests = manifests();
    apply_snapshot(&mut manifests, 1, &[file("http://h/l", &list("i:1", "c"))]);
    let update = apply_snapshot(&mut manifests, 1, &[file("http://h/l", &list("i:2", "C_"))]);
    assert_eq!(offered(&mut manifests), ["b-node_default i:2", "c-node_default i:1"]);
    let text = update.notices.iter().find(|each| each.is_error()).map_or("", Notice::text);
    assert!(text.ends_with("; pod c-node_default kept as its last good version said"), "{text}");
}

#[test]
fn a_removed_manifest_is_reported_even_if_it_never_had_a_pod() {
    let mut manifests = manifests();
    apply_snapshot(&mut manifests, 0, &[file("/m/a", "{")]);
    let gone = apply_snapshot(&mut manifests, 0, &[]);
    let text = "manifest /m/a is gone, and with it no pod".to_owned();
    assert_eq!(gone.notices, [Notice::Information(text)]);
    assert!(!gone.notices[0].is_error(), "that is no mistake of anybody");
    assert_eq!(gone.records.len(), 1, "what an earlier agent saved of it goes too");
    assert!(manifests.source_errors().is_empty());
}

#[test]
fn a_file_with_the_text_of_a_read_error_is_a_different_file() {
    let mut manifests = manifests();
    apply_snapshot(&mut manifests, 0, &[file("/m/a", "permission denied")]);
    let read = manifests.source_errors();
    let update = apply_snapshot(&mut manifests, 0, &[unreadable("/m/a")]);
    assert_eq!(update.notices.len(), 1);
    assert_ne!(manifests.source_errors(), read);
    assert!(
        manifests.source_errors()[0].contains("permission denied"),
        "{:?}",
        manifests.source_errors()
    );
}

#[test]
fn ten_errors_are_listed_and_the_rest_is_counted() {
    for (errors, more) in
        [(9, None), (10, None), (11, Some("and 1 more")), (14, Some("and 4 more"))]
    {
        let containers: Vec<String> =
            (0..errors).map(|each| format!("{{name: Bad{each}, image: i}}")).collect();
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {{containers: [{}]}}\n",
            containers.join(", ")
        );
        let mut manifests = manifests();
        apply_snapshot(&mut manifests, 0, &[file("/m/a", &text)]);
        let source_error = manifests.source_errors().remove(0);
        assert_eq!(source_error.matches(".name: Bad").count(), errors.min(10), "{source_error}");
        assert_eq!(more.is_some(), source_error.contains(" more"), "{source_error}");
        assert!(more.is_none_or(|more| source_error.contains(more)), "{source_error}");
    }
}

#[test]
fn each_file_of_each_source_has_a_record_of_its_own() {
    let mut manifests = manifests();
    let mut names = BTreeSet::new();
    for (at, path) in [(0, "/m/a"), (0, "/m/b"), (1, "/m/a")] {
        let update = apply_snapshot(&mut manifests, at, &[file(path, &pod_text("a", "i:1"))]);
        let kept = update.records.iter().find(|record| record.content.is_some()).unwrap();
        assert_eq!(kept.name.len(), 32);
        names.insert(kept.name.clone());
        let gone = apply_snapshot(&mut manifests, at, &[]);
        assert_eq!(gone.records[0].name, kept.name, "and it is that one which goes");
    }
    assert_eq!(names.len(), 3);
}

#[test]
fn two_pods_with_one_stated_uid_do_not_both_run() {
    let mut manifests = manifests();
    let with_uid = |name: &str| {
        let named = pod_text(name, "i:1");
        named.replace("metadata: {", "metadata: {uid: 0a0a0a0a-1111-2222-3333-444444444444, ")
    };
    apply_snapshot(
        &mut manifests,
        0,
        &[file("/m/a", &with_uid("a")), file("/m/b", &with_uid("b"))],
    );
    let (candidates, notices) = manifests.candidates();
    assert_eq!((candidates.len(), notices.len()), (1, 1), "{notices:?}");
    assert_eq!(candidates[0].manifest, "/m/a");
}
