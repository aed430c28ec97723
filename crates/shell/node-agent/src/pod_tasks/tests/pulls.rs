//! Logins from credential provider plugins, records of pulls, and which pods may use present
//! images.

use super::bench::{AgentBench, pod};
use node_policy::credential_providers::{CredentialPlugin, ServiceAccountTokenUse};
use node_policy::image_access::{
    CredentialOwner, PullSecret, PulledRecord, Verification, intent_text, read_record, record_text,
};
use pod_model::GoDuration;
use ports::ApiTime;
use runtime_fake::Fault;
use std::time::Duration;

const VERSION: &str = "credentialprovider.kubelet.k8s.io/v1";

fn provider(name: &str, place: &str) -> CredentialPlugin {
    CredentialPlugin {
        name: name.to_owned(),
        match_images: vec![place.to_owned()],
        default_cache_duration: GoDuration::from_secs(3600),
        message_version: VERSION.to_owned(),
        service_account_token: ServiceAccountTokenUse::Unused,
    }
}

fn answer(scope: &str, more: &str, user: &str) -> String {
    format!(
        r#"{{"apiVersion":"{VERSION}","kind":"CredentialProviderResponse","cacheKeyType":"{scope}"{more},
        "auth":{{"*.example":{{"username":"{user}","password":"secret"}}}}}}"#
    )
}

fn of(name: &str, image: &str) -> String {
    pod(name, "").replace("'i:1'", &format!("'{image}'"))
}

fn pulling(image: &str) -> AgentBench {
    let bench = AgentBench::new();
    bench.runtime.set_pulls_succeed(true);
    bench.script.emit(&[("/m/a", &of("a", image))]);
    bench
}

fn all_run(bench: &AgentBench, count: usize) -> bool {
    let pods = bench.pods();
    let runs = |pod: &ports::local_api::LocalPod| {
        pod.object.pointer("/status/phase").is_some_and(|phase| phase == "Running")
    };
    pods.len() == count && pods.iter().all(runs)
}

#[tokio::test(start_paused = true)]
async fn programs_are_asked_after_the_files_and_only_about_their_images() {
    let mut bench = pulling("r.example/i:1");
    let file = br#"{"auths": {"r.example": {"username": "file", "password": "x"}}}"#;
    bench.host.put_file("/node/config.json", file);
    bench.providers = vec![provider("other", "s.example"), provider("p", "*.example")];
    bench.programs.answer("p", Ok(&answer("Image", "", "program")));
    bench.runtime.inject_fault("pull_image", Fault::Refuses("denied".to_owned()));
    bench.begin();
    bench.until_running().await;
    let pulls = ["pull_image r.example/i:1 as file", "pull_image r.example/i:1 as program"];
    assert_eq!(bench.calls_of("pull_image"), pulls);
    let requests = bench.programs.requests();
    assert_eq!(requests.len(), 1, "{requests:?}");
    assert!(requests[0].starts_with("p ") && requests[0].contains(r#""image":"r.example/i""#));
}

#[tokio::test(start_paused = true)]
async fn a_cached_provider_answer_serves_every_matching_image() {
    for (scope, more, expected) in [
        ("Global", "", 2..=4),
        ("Registry", "", 2..=4),
        ("Image", "", 6..=6),
        // Not cached: containers that wait for one image still share the response.
        ("Global", r#","cacheDuration":"0s""#, 6..=6),
    ] {
        let mut bench = AgentBench::new();
        bench.runtime.set_pulls_succeed(true);
        bench.limits.max_parallel = None;
        bench.providers = vec![provider("p", "r.example")];
        bench.programs.answer("p", Ok(&answer(scope, more, "me")));
        bench.programs.take(Duration::from_secs(1));
        let texts: Vec<(String, String)> = (0..12)
            .map(|at| {
                (format!("/m/{at}"), of(&format!("p{at}"), &format!("r.example/i{}", at / 2)))
            })
            .collect();
        let files: Vec<(&str, &str)> =
            texts.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        bench.script.emit(&files);
        bench.begin();
        bench.until("twelve running pods", |bench| all_run(bench, 12)).await;
        let requests = bench.programs.requests();
        assert!(expected.contains(&requests.len()), "{scope}{more}: {} runs", requests.len());
        assert!(bench.programs.most_running() <= 4);
        assert_eq!(bench.calls_of("pull_image").len(), 6, "one pull per image");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_provider_is_named_without_its_output() {
    for (answer, words) in [
        (Err("exit status: 1"), "credential provider p: exit status: 1"),
        (Ok("secret"), "credential provider p: its answer: not JSON"),
    ] {
        let mut bench = pulling("r.example/i:1");
        bench.runtime.set_pulls_succeed(false);
        bench.providers = vec![provider("p", "r.example")];
        bench.programs.answer("p", answer);
        bench.begin();
        let message = "/containerStatuses/0/state/waiting/message";
        bench.until("a failure", |bench| bench.status(message).is_string()).await;
        let shown_message = bench.status(message).to_string();
        assert!(
            shown_message.contains("not found") && shown_message.contains(words),
            "{shown_message}"
        );
        assert!(!shown_message.contains("secret"), "{shown_message}");
        assert_eq!(bench.calls_of("pull_image").len(), 1, "it was tried without");
    }
}

#[tokio::test(start_paused = true)]
async fn pulls_are_written_down() {
    let mut bench = pulling("r.example/i:1");
    bench.begin();
    bench.until_running().await;
    assert!(bench.host.record_names("pulling").is_empty());
    let record = record(&bench, "sha256:r.example/i:1");
    assert!(record.credentials["r.example/i"].is_for_all, "{record:?}");
}

fn record(bench: &AgentBench, image_ref: &str) -> PulledRecord {
    let content = bench.host.record("pulled", image_ref).expect("a record");
    read_record(&content).unwrap()
}

/// A present image and its record.
fn with_record(bench: &AgentBench, image: &str, owner: CredentialOwner) {
    bench.runtime.add_image(image);
    let name = image.rsplit_once(':').map_or(image, |(name, _)| name).to_owned();
    let record = PulledRecord {
        image_ref: format!("sha256:{image}"),
        updated: ApiTime::default(),
        credentials: [(name, owner.into())].into(),
    };
    bench.host.put_record("pulled", &record.image_ref, &record_text(&record));
}

#[tokio::test(start_paused = true)]
async fn an_image_pulled_with_another_pods_login_is_not_shared() {
    let theirs = || CredentialOwner::Secret(PullSecret::default());
    for (policy, owner, pulls) in [
        (Some(Verification::ExceptPreloaded), theirs(), 1),
        (Some(Verification::ExceptPreloaded), CredentialOwner::Node, 0),
        (Some(Verification::Never), theirs(), 0),
        (Some(Verification::Always), theirs(), 1),
        (None, theirs(), 0),
    ] {
        let mut bench = pulling("r.example/i:1");
        with_record(&bench, "r.example/i:1", owner.clone());
        bench.verification = policy.clone();
        bench.begin();
        bench.until_running().await;
        assert_eq!(bench.calls_of("pull_image").len(), pulls, "{policy:?} {owner:?}");
        if pulls == 1 {
            let record = record(&bench, "sha256:r.example/i:1");
            assert!(record.credentials["r.example/i"].is_for_all, "it was let in without a login");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_image_of_another_login_is_treated_as_absent() {
    let mut bench = AgentBench::new();
    with_record(&bench, "r.example/i:1", CredentialOwner::Secret(PullSecret::default()));
    let never = of("a", "r.example/i:1").replace("IfNotPresent", "Never");
    bench.script.emit(&[("/m/a", &never)]);
    bench.begin();
    let reason = "/containerStatuses/0/state/waiting/reason";
    bench.until("a refusal", |bench| bench.status(reason) == "ErrImageNeverPull").await;
    assert!(bench.calls_of("pull_image").is_empty());
}

#[tokio::test(start_paused = true)]
async fn preexisting_images_are_shared_unless_a_pull_had_begun() {
    let broken = b"{".to_vec();
    let begun = intent_text("r.example/i:1");
    for (place, content, was_pulled, pulls) in [
        (None, Vec::new(), true, 0),
        (Some(("pulling", "r.example/i:1")), begun.clone(), true, 1),
        // No pull has brought it.
        (Some(("pulling", "r.example/i:1")), begun, false, 0),
        // Short for the same name.
        (
            Some(("pulling", "r.example/i:1@sha256:0")),
            intent_text("r.example/i:1@sha256:0"),
            true,
            0,
        ),
        (Some(("pulled", "sha256:r.example/i:1")), broken.clone(), true, 1),
        (Some(("pulling", "r.example/i:1")), broken, true, 1),
    ] {
        let mut bench = pulling("r.example/i:1");
        match was_pulled {
            true => bench.runtime.add_pulled_image("r.example/i:1"),
            false => bench.runtime.add_image("r.example/i:1"),
        }
        if let Some((dir, name)) = place {
            bench.host.put_record(dir, name, &content);
        }
        bench.begin();
        bench.until_running().await;
        assert_eq!(bench.calls_of("pull_image").len(), pulls, "{place:?} {was_pulled}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_killed_during_a_pull_leaves_a_pull_intent() {
    let mut bench = pulling("r.example/i:1");
    bench.runtime.inject_fault("pull_image", Fault::Hangs);
    bench.begin();
    bench.until("a pull", |bench| !bench.calls_of("pull_image").is_empty()).await;
    assert_eq!(bench.host.record_names("pulling"), ["r.example/i:1"]);
    assert!(bench.host.record_names("pulled").is_empty());
    bench.kill().await;
    bench.runtime.add_pulled_image("r.example/i:1");
    bench.script.emit(&[("/m/a", &of("a", "r.example/i:1"))]);
    bench.begin();
    bench.until_running().await;
    assert_eq!(bench.calls_of("pull_image").len(), 2, "nobody knows whose login brought it");
    assert!(bench.host.record_names("pulling").is_empty());
    assert!(record(&bench, "sha256:r.example/i:1").credentials["r.example/i"].is_for_all);
}

/// An agent that was killed during a pull, and the next one, which has no network.
async fn killed_in_a_pull() -> AgentBench {
    let mut bench = pulling("r.example/i:1");
    bench.runtime.inject_fault("pull_image", Fault::Hangs);
    bench.begin();
    bench.until("a pull", |bench| !bench.calls_of("pull_image").is_empty()).await;
    bench.kill().await;
    bench.runtime.set_pulls_succeed(false);
    bench.script.emit(&[("/m/b", &of("b", "i:1"))]);
    bench
}

#[tokio::test(start_paused = true)]
async fn an_image_imported_after_a_killed_pull_is_shared_without_a_network() {
    let mut bench = killed_in_a_pull().await;
    bench.runtime.add_image("r.example/i:1");
    bench.script.emit(&[("/m/a", &of("a", "r.example/i:1"))]);
    bench.begin();
    bench.until("it runs", |bench| bench.phase_of("a-n") == "Running").await;
    assert_eq!(bench.calls_of("pull_image").len(), 1);
    assert!(bench.host.record_names("pulling").is_empty());
    assert!(bench.host.record_names("pulled").is_empty(), "it was not pulled");
}

#[tokio::test(start_paused = true)]
async fn a_pull_that_brings_nothing_for_long_after_a_kill_is_forgotten() {
    let mut bench = killed_in_a_pull().await;
    bench.begin();
    bench.until("it runs", |bench| bench.phase_of("b-n") == "Running").await;
    tokio::time::sleep(Duration::from_secs(540)).await;
    assert_eq!(bench.host.record_names("pulling"), ["r.example/i:1"], "it may still end");
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(bench.host.record_names("pulling").is_empty());
    // Some importers name a digest as a pull does.
    bench.runtime.add_pulled_image("r.example/i:1");
    bench.script.emit(&[("/m/a", &of("a", "r.example/i:1"))]);
    bench.until("it runs", |bench| bench.phase_of("a-n") == "Running").await;
    assert_eq!(bench.calls_of("pull_image").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_image_that_a_runtime_brings_after_its_client_was_killed_was_pulled() {
    let mut bench = killed_in_a_pull().await;
    bench.begin();
    bench.until("it runs", |bench| bench.phase_of("b-n") == "Running").await;
    tokio::time::sleep(Duration::from_secs(200)).await;
    bench.runtime.add_pulled_image("r.example/i:1");
    bench.until("a record", |bench| bench.host.record_names("pulled").len() == 1).await;
    assert!(bench.host.record_names("pulling").is_empty());
    assert!(record(&bench, "sha256:r.example/i:1").credentials.is_empty(), "nobody's yet");
}

#[tokio::test(start_paused = true)]
async fn the_next_agent_removes_records_of_missing_images() {
    let mut bench = pulling("r.example/i:1");
    with_record(&bench, "r.example/old:1", CredentialOwner::Node);
    with_record(&bench, "r.example/here:1", CredentialOwner::Node);
    bench.runtime.remove_image_now("r.example/old:1");
    bench.begin();
    bench.until_running().await;
    let left = ["sha256:r.example/here:1", "sha256:r.example/i:1"];
    assert_eq!(bench.host.record_names("pulled"), left);
}

#[tokio::test(start_paused = true)]
async fn a_failed_pull_is_reported_once() {
    let mut bench = pulling("r.example/i:1");
    bench.runtime.set_pulls_succeed(false);
    bench.begin();
    let reason = "/containerStatuses/0/state/waiting/reason";
    bench.until("a back-off", |bench| bench.status(reason) == "ImagePullBackOff").await;
    let reported: Vec<(String, String, u32)> = bench
        .detail()
        .events
        .into_iter()
        .map(|event| (event.reason, event.message, event.count))
        .filter(|(reason, _, _)| reason != "MissingClusterDNS")
        .collect();
    let expected = [
        ("Pulling", "Pulling image \"r.example/i:1\""),
        ("Failed", "Failed to pull image \"r.example/i:1\": r.example/i:1: not found"),
        ("Failed", "Error: ErrImagePull"),
        ("BackOff", "Back-off pulling image \"r.example/i:1\""),
        ("Failed", "Error: ImagePullBackOff"),
    ]
    .map(|(reason, message)| (reason.to_owned(), message.to_owned(), 1));
    assert_eq!(reported, expected);
}

#[tokio::test(start_paused = true)]
async fn pulls_start_while_unfinished_pulls_cannot_be_resolved() {
    let mut bench = AgentBench::new();
    bench.host.put_record("pulling", "r.example/lost:1", &intent_text("r.example/lost:1"));
    bench.runtime.inject_fault("images", Fault::Hangs);
    let waits = of("a", "i:1");
    bench.script.emit(&[("/m/a", &waits)]);
    bench.begin();
    bench.until("the runtime is asked", |bench| bench.runtime.call_counts("images") == 1).await;
    bench.runtime.set_pulls_succeed(true);
    bench.script.emit(&[("/m/a", &waits), ("/m/b", &of("b", "r.example/new:1"))]);
    bench.until("it runs", |bench| bench.phase_of("b-n") == "Running").await;
    assert_eq!(bench.phase_of("a-n"), "Pending");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_cannot_list_unfinished_pulls_is_retried_after_a_delay() {
    let mut bench = AgentBench::new();
    bench.host.put_record("pulling", "r.example/lost:1", &intent_text("r.example/lost:1"));
    for _ in 0..9 {
        bench.runtime.inject_fault("images", Fault::Refuses("busy".to_owned()));
    }
    let names = ["a", "b", "c"];
    let manifests = names.map(|name| (format!("/m/{name}"), of(name, "i:1")));
    let manifests = manifests.each_ref().map(|(path, text)| (path.as_str(), text.as_str()));
    bench.script.emit(&manifests);
    bench.begin();
    bench.until("all run", |bench| all_run(bench, 3)).await;
    assert_eq!(bench.runtime.call_counts("images"), 1);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(
        bench.runtime.call_counts("images"),
        2,
        "and is asked again though nobody waits for it"
    );
}

fn in_namespace(name: &str, namespace: &str, image: &str) -> String {
    of(name, image).replace("}\nspec", &format!(", namespace: {namespace}}}\nspec"))
}

#[tokio::test(start_paused = true)]
async fn a_pull_carries_the_sandbox_config_of_its_pod() {
    let mut bench = AgentBench::new();
    bench.runtime.set_pulls_succeed(true);
    let more = ", namespace: shop, labels: {l: v}, annotations: {a: w}}\nspec";
    bench.script.emit(&[("/m/a", &of("a", "r.example/i:1").replace("}\nspec", more))]);
    bench.begin();
    bench.until_running().await;
    let (pulls, sandboxes) = (bench.runtime.pull_sandbox_configs(), bench.runtime.sandboxes());
    let ([Some(reported)], [made]) = (pulls.as_slice(), sandboxes.as_slice()) else {
        panic!("{pulls:?} {sandboxes:?}")
    };
    assert_eq!(
        (&reported.name, &reported.namespace, &reported.uid, reported.attempt),
        (&made.name, &made.namespace, &made.uid, made.attempt)
    );
    assert_eq!((&reported.labels, &reported.annotations), (&made.labels, &made.annotations));
    assert_eq!((reported.namespace.as_str(), reported.labels["l"].as_str()), ("shop", "v"));
    assert_eq!(reported.annotations["a"], "w");
    assert_eq!(reported.log_directory, format!("/logs/shop_a-n_{}", reported.uid));
    assert_eq!(reported.cgroup_parent, format!("/kubepods/besteffort/pod{}", reported.uid));
}

#[tokio::test(start_paused = true)]
async fn pods_of_one_namespace_share_a_pull_and_no_others() {
    let mut bench = AgentBench::new();
    bench.runtime.set_pulls_succeed(true);
    bench.limits.max_parallel = None;
    for _ in 0..4 {
        bench.runtime.inject_fault("pull_image", Fault::AnswersLate(Duration::from_secs(1)));
    }
    let pods = [("a", "shop"), ("b", "shop"), ("c", "bank"), ("d", "bank")];
    // `Always`, so that no pod uses an image that another one has pulled.
    let always = |text: String| text.replace("IfNotPresent", "Always");
    let texts = pods.map(|(name, namespace)| {
        (format!("/m/{name}"), always(in_namespace(name, namespace, "r.example/i:1")))
    });
    let texts = texts.each_ref().map(|(path, text)| (path.as_str(), text.as_str()));
    bench.script.emit(&texts);
    bench.begin();
    bench.until("four running pods", |bench| all_run(bench, 4)).await;
    let reported = bench.runtime.pull_sandbox_configs();
    let mut namespaces: Vec<&str> =
        reported.iter().flatten().map(|config| config.namespace.as_str()).collect();
    namespaces.sort_unstable();
    assert_eq!(namespaces, ["bank", "shop"]);
}

#[tokio::test(start_paused = true)]
async fn a_pull_for_a_removed_pod_is_not_started() {
    let mut bench = AgentBench::new();
    bench.runtime.set_pulls_succeed(true);
    bench.runtime.inject_fault("pull_image", Fault::AnswersLate(Duration::from_secs(60)));
    let mut many = of("a", "r.example/a0:1");
    for at in 1..4 {
        many += &format!("  - {{name: c{at}, image: 'r.example/a{at}:1'}}\n");
    }
    bench.script.emit(&[("/m/a", &many)]);
    bench.begin();
    bench.until("a pull", |bench| !bench.calls_of("pull_image").is_empty()).await;
    let pulling = |pod: &ports::local_api::LocalPod| {
        let events = bench.api().pod(&pod.uid).map(|detail| detail.events).unwrap_or_default();
        events.iter().filter(|event| event.reason == "Pulling").count()
    };
    bench.until("all are asked for", |bench| bench.pod().as_ref().map(pulling) == Some(4)).await;
    let under_way = bench.calls_of("pull_image");
    bench.script.emit(&[("/m/b", &of("b", "r.example/b:1"))]);
    bench.until("it runs", |bench| bench.phase_of("b-n") == "Running").await;
    let expected = [under_way[0].as_str(), "pull_image r.example/b:1"];
    assert_eq!(bench.calls_of("pull_image"), expected);
    bench.until("the record", |bench| bench.host.record_names("pulled").len() == 2).await;
}
