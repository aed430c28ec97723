//! Pulls through the agent and containerd from a registry with a password: the sources of
//! credentials, the effect of wrong ones, which pods may share a pull, and that no credentials are
//! ever leaked.

mod door;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use door::Door;
use node_testkit::bed::{Bed, Test};
use node_testkit::images::{self, Image};
use node_testkit::start::{Containerd, PASSWORD, Registry, RegistryOptions, USER};
use serde_json::{Value, json};

use crate::node::{Node, PATIENCE, archives, container, ensure_has, keelson, wait_for};

/// The credentials, as in the header and as in docker's configuration file.
const LOGIN: &str = "Basic YmVkOmJlZC1wYXNzd29yZA==";
const ENCODED: &str = "YmVkOmJlZC1wYXNzd29yZA==";
/// containerd's error without credentials.
const NO_LOGIN: &str = "no basic auth credentials";
const WRONG_PASSWORD: &str = "not-the-password-at-all";

/// A registry with a password, images in it, and the proxy before it.
struct Shop {
    /// The registry's process is stopped with it.
    _registry: Registry,
    door: Door,
}

impl Shop {
    fn open(bed: &Bed, image: &Image, names: &[&str]) -> Result<Self> {
        let registry = Registry::start(bed, RegistryOptions { tls: false, password: true })?;
        let back = Door::open(registry.address(), Some(LOGIN))?;
        for name in names {
            images::push(back.address(), &image.clone().named(&format!("shop.test/bed/{name}:1")))?;
        }
        let door = Door::open(registry.address(), None)?;
        Ok(Self { _registry: registry, door })
    }

    fn image(&self, name: &str) -> String {
        format!("{}/bed/{name}:1", self.door.address())
    }

    fn pulls(&self, name: &str) -> usize {
        self.door.pulls(&format!("bed/{name}"))
    }

    fn spec(&self, name: &str, policy: &str) -> String {
        format!(
            "  hostNetwork: true\n  containers:\n  - name: main\n    image: {}\n    \
             imagePullPolicy: {policy}\n    command: [sleep, \"1000\"]",
            self.image(name)
        )
    }
}

fn place(node: &Node<'_>, shop: &Shop, pod: &str, image: &str, policy: &str) -> Result<()> {
    node.place(pod, &shop.spec(image, policy))
}

#[test]
fn images_are_pulled_with_the_logins_of_the_node_and_none_is_told() -> Result<()> {
    let (mut kind, archives, busybox) = (keelson()?, archives()?, images::busybox()?);
    let needs = [Containerd::NEEDS, Registry::NEEDS].concat();
    Test::new().needs(&needs).deadline(Duration::from_secs(180)).run(move |bed| {
        let names = ["file", "always", "program", "shared", "wrong", "failing"];
        let shop = Shop::open(bed, &busybox, &names)?;
        let programs = Programs::write(bed, &shop)?;
        kind.command.extend(programs.flags.clone());
        // The highest log level, so that everything is logged.
        kind.command.push("--v=10".to_owned());
        let node = Node::start(bed, &kind, &archives, "serializeImagePulls: false\n")?;
        from_a_file(&node, &shop).context("docker's file")?;
        from_a_program(&node, &shop, &programs).context("a program")?;
        shared(&node, &shop).context("one pull for all who wait")?;
        refused(&node, &shop).context("a wrong login")?;
        nobody_rides(&node, &shop).context("an image that another's login brought")?;
        nothing_is_told(&node, bed)?;
        node.end()
    })
}

/// Writes docker's configuration file in the kubelet's root directory.
fn write_file(node: &Node<'_>, shop: &Shop, auth: &str) -> Result<()> {
    let place = |name: &str| format!("http://{}/bed/{name}", shop.door.address());
    let file = json!({"auths": {
        place("file"): {"auth": auth},
        place("always"): {"auth": auth},
    }});
    fs::write(node.home.root().join("config.json"), file.to_string())?;
    Ok(())
}

fn from_a_file(node: &Node<'_>, shop: &Shop) -> Result<()> {
    write_file(node, shop, ENCODED)?;
    place(node, shop, "file", "file", "IfNotPresent")?;
    node.until_ready("file")?;
    let said = node.agent.ask(&["explain", "file"])?;
    let image = shop.image("file");
    let (pulling, pulled) =
        (format!("Pulling image {image:?}"), format!("Successfully pulled image {image:?} in "));
    ensure_has(&said, &[&pulling, &pulled, " including waiting). Image size: "])?;
    ensure!(shop.pulls("file") == 1, "{:?}", shop.door.asked("bed/file"));
    let record = record_of(node, shop, "file")?;
    ensure!(record.1["nodePodsAccessible"] == true, "{record:?}");

    place(node, shop, "file-again", "file", "IfNotPresent")?;
    node.until_ready("file-again")?;
    let present = format!(
        "Container image {image:?} already present on machine and can be accessed by the pod"
    );
    ensure_has(&node.agent.ask(&["explain", "file-again"])?, &[&present])?;
    ensure!(shop.pulls("file") == 1, "it was there");

    for (pod, pulls) in [("always", 1), ("always-again", 2)] {
        place(node, shop, pod, "always", "Always")?;
        node.until_ready(pod)?;
        ensure!(shop.pulls("always") == pulls, "{pod}: {:?}", shop.door.asked("bed/always"));
    }
    Ok(())
}

/// The path of the record of an image's pull, and its content for the image's name.
fn record_of(node: &Node<'_>, shop: &Shop, name: &str) -> Result<(PathBuf, Value)> {
    let image = format!("{}/bed/{name}", shop.door.address());
    for entry in fs::read_dir(node.home.root().join("image_manager/pulled"))? {
        let path = entry?.path();
        let record: Value = serde_json::from_slice(&fs::read(&path)?)?;
        if let Some(found) = record["credentialMapping"].get(&image) {
            return Ok((path, found.clone()));
        }
    }
    anyhow::bail!("no record of {image}")
}

/// Credential provider programs: one with correct credentials, one with wrong ones, one that fails.
struct Programs {
    flags: Vec<String>,
    /// A line for each run of the first program.
    asked: PathBuf,
}

impl Programs {
    fn write(bed: &Bed, shop: &Shop) -> Result<Self> {
        let folder = bed.make_folder("credential-providers")?;
        let asked = folder.join("asked");
        let version = "credentialprovider.kubelet.k8s.io/v1";
        let host = shop.door.address().to_string();
        let answer = |password: &str| {
            json!({
                "apiVersion": version, "kind": "CredentialProviderResponse",
                "cacheKeyType": "Registry", "cacheDuration": "1h",
                "auth": {&host: {"username": USER, "password": password}},
            })
        };
        let knows = format!(
            "read request; echo \"$request $1 $PLACE\" >> {}\ncat <<END\n{}\nEND",
            asked.display(),
            answer(PASSWORD)
        );
        script(&folder.join("knows"), &knows)?;
        script(&folder.join("errs"), &format!("cat <<END\n{}\nEND", answer(WRONG_PASSWORD)))?;
        script(&folder.join("fails"), &format!("echo {PASSWORD}; echo {PASSWORD} >&2; exit 7"))?;
        let provider = |name: &str, images: &[&str]| {
            let images: Vec<String> = images
                .iter()
                .map(|image| format!("*.0.0.1:{}/bed/{image}", shop.door.address().port()))
                .collect();
            json!({
                "name": name, "matchImages": images, "defaultCacheDuration": "0s",
                "apiVersion": version, "args": ["--tell"],
                "env": [{"name": "PLACE", "value": "bed"}],
            })
        };
        let config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig",
            "providers": [
                provider("knows", &["program", "shared"]),
                provider("errs", &["wrong"]),
                provider("fails", &["failing"]),
            ],
        });
        let file = folder.join("config.yaml");
        fs::write(&file, config.to_string())?;
        let flags = vec![
            format!("--image-credential-provider-config={}", file.display()),
            format!("--image-credential-provider-bin-dir={}", folder.display()),
        ];
        Ok(Self { flags, asked })
    }
}

fn script(path: &Path, text: &str) -> Result<()> {
    fs::write(path, format!("#!/bin/sh\n{text}\n"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

fn from_a_program(node: &Node<'_>, shop: &Shop, programs: &Programs) -> Result<()> {
    place(node, shop, "program", "program", "Always")?;
    node.until_ready("program")?;
    ensure!(shop.pulls("program") == 1, "{:?}", shop.door.asked("bed/program"));
    let asked = fs::read_to_string(&programs.asked)?;
    let image = format!("\"image\":\"{}/bed/program\"", shop.door.address());
    ensure_has(&asked, &["\"kind\":\"CredentialProviderRequest\"", &image, "} --tell bed\n"])?;
    // What it said holds for the registry: it is not asked again.
    place(node, shop, "program-again", "program", "Always")?;
    node.until_ready("program-again")?;
    let lines = fs::read_to_string(&programs.asked)?.lines().count();
    ensure!(shop.pulls("program") == 2 && lines == 1, "asked {lines} times");
    Ok(())
}

fn shared(node: &Node<'_>, shop: &Shop) -> Result<()> {
    let pods = ["shared-a", "shared-b", "shared-c"];
    shop.door.shut(true);
    for pod in pods {
        place(node, shop, pod, "shared", "Always")?;
    }
    for pod in pods {
        node.until_explained(pod, "Pulling image")?;
    }
    shop.door.shut(false);
    for pod in pods {
        node.until_ready(pod)?;
    }
    ensure!(shop.pulls("shared") == 1, "{:?}", shop.door.asked("bed/shared"));
    Ok(())
}

fn waits_for(node: &Node<'_>, pod: &str, reason: &str) -> Result<String> {
    let found = node
        .until(reason, pod, |pod| container(pod, "main")["state"]["waiting"]["reason"] == reason)?;
    let message = container(&found, "main")["state"]["waiting"]["message"].as_str();
    Ok(message.context("a message")?.to_owned())
}

fn refused(node: &Node<'_>, shop: &Shop) -> Result<()> {
    place(node, shop, "wrong", "wrong", "IfNotPresent")?;
    place(node, shop, "failing", "failing", "IfNotPresent")?;
    let image = shop.image("wrong");
    // The first reason is shown for two seconds only; its event stays.
    let said = node.until_explained("wrong", "Error: ImagePullBackOff")?;
    let message = waits_for(node, "wrong", "ImagePullBackOff")?;
    let first = message.strip_prefix(&format!("Back-off pulling image {image:?}: ErrImagePull: "));
    let first = first.with_context(|| message.clone())?;
    // The runtime's own words, with nothing before them.
    ensure!(first.starts_with(&format!("failed to pull and unpack image {image:?}: ")), "{first}");
    ensure_has(first, &["401 Unauthorized"])?;
    let failed = format!("Failed to pull image {image:?}: {first}\n");
    let back_off = format!("Back-off pulling image {image:?}\n");
    ensure_has(&said, &[&failed, "Error: ErrImagePull\n", &back_off])?;
    let logins = shop.door.asked("bed/wrong");
    ensure!(!logins.is_empty() && logins.iter().all(|asked| asked.login != LOGIN), "{logins:?}");

    // A program that fails is named; the pull is tried without it.
    let message = waits_for(node, "failing", "ImagePullBackOff")?;
    ensure_has(&message, &[NO_LOGIN, "credential provider fails: ", "exit status: 7"])?;
    ensure!(shop.door.asked("bed/failing").is_empty(), "{:?}", shop.door.asked("bed/failing"));
    Ok(())
}

/// The image is present, pulled with a secret's credentials; a pod without the secret has to
/// present its own.
fn nobody_rides(node: &Node<'_>, shop: &Shop) -> Result<()> {
    let (path, _) = record_of(node, shop, "file")?;
    let mut record: Value = serde_json::from_slice(&fs::read(&path)?)?;
    let theirs = json!({"kubernetesSecrets": [
        {"uid": "1", "namespace": "team", "name": "login", "credentialHash": "00"}
    ]});
    record["credentialMapping"] = json!({format!("{}/bed/file", shop.door.address()): theirs});
    fs::write(&path, record.to_string())?;
    fs::remove_file(node.home.root().join("config.json"))?;
    place(node, shop, "rider", "file", "IfNotPresent")?;
    place(node, shop, "quiet-rider", "file", "Never")?;
    ensure_has(&waits_for(node, "rider", "ImagePullBackOff")?, &[NO_LOGIN])?;
    let message = waits_for(node, "quiet-rider", "ErrImageNeverPull")?;
    let image = shop.image("file");
    let absent = format!("Container image {image:?} is not present with pull policy of Never");
    ensure!(message == absent, "{message}");
    for pod in ["rider", "quiet-rider"] {
        node.agent.withdraw(pod)?;
        node.until_gone(pod)?;
    }
    // With node credentials that the registry accepts every pod may use it again.
    write_file(node, shop, ENCODED)?;
    place(node, shop, "owner", "file", "IfNotPresent")?;
    node.until_ready("owner")?;
    ensure!(shop.pulls("file") == 2, "{:?}", shop.door.asked("bed/file"));
    ensure!(record_of(node, shop, "file")?.1["nodePodsAccessible"] == true);
    Ok(())
}

/// No credentials in the log, in statuses, events or explanations, or on disk.
fn nothing_is_told(node: &Node<'_>, bed: &Bed) -> Result<()> {
    let mut told = vec![
        ("the log", fs::read_to_string(bed.logs().join("node-keelson.log"))?),
        ("ps", node.agent.ask(&["ps", "-o", "json"])?),
    ];
    for pod in ["file", "program", "wrong", "failing"] {
        told.push(("explain", node.agent.ask(&["explain", pod])?));
        told.push(("timeline", node.agent.ask(&["timeline", pod, "-o", "json"])?));
    }
    for folder in ["image_manager/pulled", "keelson/pods"] {
        for entry in fs::read_dir(node.home.root().join(folder))? {
            told.push((folder, fs::read_to_string(entry?.path())?));
        }
    }
    for (place, text) in told {
        for secret in [PASSWORD, WRONG_PASSWORD, ENCODED] {
            ensure!(!text.contains(secret), "{place} tells {secret:?}:\n{text}");
        }
    }
    // Pods that are refused try again now and then.
    let begun = node.home.root().join("image_manager/pulling");
    wait_for("no pull is under way", PATIENCE, || Ok(fs::read_dir(&begun)?.next().is_none()))
}

#[test]
fn as_many_pulls_run_side_by_side_as_configured() -> Result<()> {
    let (mut kind, archives, busybox) = (keelson()?, archives()?, images::busybox()?);
    let needs = [Containerd::NEEDS, Registry::NEEDS].concat();
    Test::new().needs(&needs).deadline(Duration::from_secs(120)).run(move |bed| {
        let names = ["a", "b", "c", "d", "e", "f"];
        let shop = Shop::open(bed, &busybox, &names)?;
        let more = bed.make_folder("drop-ins")?;
        kind.command.push(format!("--config-dir={}", more.display()));
        let mut node = Node::start(bed, &kind, &archives, "")?;
        let logins = json!({"auths": {shop.door.address().to_string(): {"auth": ENCODED}}});
        fs::write(node.home.root().join("config.json"), logins.to_string())?;
        ensure!(at_once(&node, &shop, &["a", "b", "c"], 1)? == 1, "one after the other by default");
        let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
                    serializeImagePulls: false\nmaxParallelImagePulls: 2\n";
        node = node.restart_agent(|_| Ok(fs::write(more.join("pulls.conf"), text)?))?;
        ensure!(at_once(&node, &shop, &["d", "e", "f"], 2)? == 2, "two side by side");
        node.end()
    })
}

/// Starts pods with these images before a closed proxy, which is opened once every pod reports that
/// it pulls and the expected number of pulls waits. Returns the maximum number of pulls that waited
/// at the same time.
fn at_once(node: &Node<'_>, shop: &Shop, names: &[&str], expected: usize) -> Result<usize> {
    shop.door.shut(true);
    for name in names {
        place(node, shop, name, name, "Always")?;
    }
    for name in names {
        node.until_explained(name, "Pulling image")?;
    }
    let what = format!("{expected} pulls wait");
    wait_for(&what, PATIENCE, || Ok(shop.door.waiting().len() >= expected))?;
    let most = shop.door.most_waiting();
    shop.door.shut(false);
    for name in names {
        node.until_ready(name)?;
        ensure!(shop.pulls(name) == 1, "{name}: {:?}", shop.door.asked(&format!("bed/{name}")));
    }
    Ok(most)
}
