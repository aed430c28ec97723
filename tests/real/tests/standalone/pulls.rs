//! Pulls through the agent and containerd from a registry with a password: the sources of
//! credentials, the effect of wrong ones, which pods may share a pull, and that no credentials are
//! ever leaked.

mod registry_proxy;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::{Bed, BedTest};
use node_testkit::images::{self, TestImage};
use node_testkit::start::{Containerd, PASSWORD, RegistryOptions, RegistryServer, USER};
use registry_proxy::RegistryProxy;
use serde_json::{Value, json};

use crate::node::{StandaloneNode, WAIT_LIMIT, archives, container, ensure_has, keelson, wait_for};

/// The credentials, as in the header and as in docker's configuration file.
const LOGIN: &str = "Basic YmVkOmJlZC1wYXNzd29yZA==";
const ENCODED: &str = "YmVkOmJlZC1wYXNzd29yZA==";
/// containerd's error without credentials.
const NO_LOGIN: &str = "no basic auth credentials";
const WRONG_PASSWORD: &str = "not-the-password-at-all";

/// A registry with a password, images in it, and the proxy before it.
struct PrivateRegistry {
    /// The registry's process is stopped with it.
    _registry: RegistryServer,
    registry_proxy: RegistryProxy,
}

impl PrivateRegistry {
    fn open(bed: &Bed, image: &TestImage, names: &[&str]) -> Result<Self> {
        let registry = RegistryServer::start(bed, RegistryOptions { tls: false, password: true })?;
        let back = RegistryProxy::open(registry.address(), Some(LOGIN))?;
        for name in names {
            images::push(back.address(), &image.clone().named(&format!("shop.test/bed/{name}:1")))?;
        }
        let registry_proxy = RegistryProxy::open(registry.address(), None)?;
        Ok(Self { _registry: registry, registry_proxy })
    }

    fn image(&self, name: &str) -> String {
        format!("{}/bed/{name}:1", self.registry_proxy.address())
    }

    fn pulls(&self, name: &str) -> usize {
        self.registry_proxy.pulls(&format!("bed/{name}"))
    }

    fn spec(&self, name: &str, policy: &str) -> String {
        format!(
            "  hostNetwork: true\n  containers:\n  - name: main\n    image: {}\n    \
             imagePullPolicy: {policy}\n    command: [sleep, \"1000\"]",
            self.image(name)
        )
    }
}

fn place(
    node: &StandaloneNode<'_>,
    private_registry: &PrivateRegistry,
    pod: &str,
    image: &str,
    policy: &str,
) -> Result<()> {
    node.place(pod, &private_registry.spec(image, policy))
}

#[test]
fn images_are_pulled_with_node_credentials_and_none_is_leaked() -> Result<()> {
    let (mut kind, archives, busybox) = (keelson()?, archives()?, images::busybox()?);
    let needs = [Containerd::NEEDS, RegistryServer::NEEDS].concat();
    BedTest::new().needs(&needs).deadline(Duration::from_secs(180)).run(move |bed| {
        let names = ["file", "always", "program", "shared", "wrong", "failing"];
        let private_registry = PrivateRegistry::open(bed, &busybox, &names)?;
        let programs = CredentialProviders::write(bed, &private_registry)?;
        kind.command.extend(programs.flags.clone());
        // The highest log level, so that everything is logged.
        kind.command.push("--v=10".to_owned());
        let node = StandaloneNode::start(bed, &kind, &archives, "serializeImagePulls: false\n")?;
        from_a_file(&node, &private_registry).context("docker's file")?;
        from_a_program(&node, &private_registry, &programs).context("a program")?;
        shared(&node, &private_registry).context("one pull for all who wait")?;
        refused(&node, &private_registry).context("a wrong login")?;
        pull_credentials_are_checked_per_pod(&node, &private_registry)
            .context("an image that another's login brought")?;
        no_credential_is_leaked(&node, bed)?;
        node.end()
    })
}

/// Writes docker's configuration file in the kubelet's root directory.
fn write_file(
    node: &StandaloneNode<'_>,
    private_registry: &PrivateRegistry,
    auth: &str,
) -> Result<()> {
    let place =
        |name: &str| format!("http://{}/bed/{name}", private_registry.registry_proxy.address());
    let file = json!({"auths": {
        place("file"): {"auth": auth},
        place("always"): {"auth": auth},
    }});
    fs::write(node.home.root().join("config.json"), file.to_string())?;
    Ok(())
}

fn from_a_file(node: &StandaloneNode<'_>, private_registry: &PrivateRegistry) -> Result<()> {
    write_file(node, private_registry, ENCODED)?;
    place(node, private_registry, "file", "file", "IfNotPresent")?;
    node.until_ready("file")?;
    let output = node.agent.ask(&["explain", "file"])?;
    let image = private_registry.image("file");
    let (pulling, pulled) =
        (format!("Pulling image {image:?}"), format!("Successfully pulled image {image:?} in "));
    ensure_has(&output, &[&pulling, &pulled, " including waiting). Image size: "])?;
    ensure!(
        private_registry.pulls("file") == 1,
        "{:?}",
        private_registry.registry_proxy.asked("bed/file")
    );
    let record = record_of(node, private_registry, "file")?;
    ensure!(record.1["nodePodsAccessible"] == true, "{record:?}");

    place(node, private_registry, "file-again", "file", "IfNotPresent")?;
    node.until_ready("file-again")?;
    let present = format!(
        "Container image {image:?} already present on machine and can be accessed by the pod"
    );
    ensure_has(&node.agent.ask(&["explain", "file-again"])?, &[&present])?;
    ensure!(private_registry.pulls("file") == 1, "it was there");

    for (pod, pulls) in [("always", 1), ("always-again", 2)] {
        place(node, private_registry, pod, "always", "Always")?;
        node.until_ready(pod)?;
        ensure!(
            private_registry.pulls("always") == pulls,
            "{pod}: {:?}",
            private_registry.registry_proxy.asked("bed/always")
        );
    }
    Ok(())
}

/// The path of the record of an image's pull, and its content for the image's name.
fn record_of(
    node: &StandaloneNode<'_>,
    private_registry: &PrivateRegistry,
    name: &str,
) -> Result<(PathBuf, Value)> {
    let image = format!("{}/bed/{name}", private_registry.registry_proxy.address());
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
struct CredentialProviders {
    flags: Vec<String>,
    /// A line for each run of the first program.
    asked: PathBuf,
}

impl CredentialProviders {
    fn write(bed: &Bed, private_registry: &PrivateRegistry) -> Result<Self> {
        let dir = bed.create_dir("credential-providers")?;
        let asked = dir.join("asked");
        let version = "credentialprovider.kubelet.k8s.io/v1";
        let host = private_registry.registry_proxy.address().to_string();
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
        script(&dir.join("knows"), &knows)?;
        script(&dir.join("errs"), &format!("cat <<END\n{}\nEND", answer(WRONG_PASSWORD)))?;
        script(&dir.join("fails"), &format!("echo {PASSWORD}; echo {PASSWORD} >&2; exit 7"))?;
        let provider = |name: &str, images: &[&str]| {
            let images: Vec<String> = images
                .iter()
                .map(|image| {
                    format!(
                        "*.0.0.1:{}/bed/{image}",
                        private_registry.registry_proxy.address().port()
                    )
                })
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
        let file = dir.join("config.yaml");
        fs::write(&file, config.to_string())?;
        let flags = vec![
            format!("--image-credential-provider-config={}", file.display()),
            format!("--image-credential-provider-bin-dir={}", dir.display()),
        ];
        Ok(Self { flags, asked })
    }
}

fn script(path: &Path, text: &str) -> Result<()> {
    fs::write(path, format!("#!/bin/sh\n{text}\n"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

fn from_a_program(
    node: &StandaloneNode<'_>,
    private_registry: &PrivateRegistry,
    programs: &CredentialProviders,
) -> Result<()> {
    place(node, private_registry, "program", "program", "Always")?;
    node.until_ready("program")?;
    ensure!(
        private_registry.pulls("program") == 1,
        "{:?}",
        private_registry.registry_proxy.asked("bed/program")
    );
    let asked = fs::read_to_string(&programs.asked)?;
    let image = format!("\"image\":\"{}/bed/program\"", private_registry.registry_proxy.address());
    ensure_has(&asked, &["\"kind\":\"CredentialProviderRequest\"", &image, "} --tell bed\n"])?;
    // What it said holds for the registry: it is not asked again.
    place(node, private_registry, "program-again", "program", "Always")?;
    node.until_ready("program-again")?;
    let lines = fs::read_to_string(&programs.asked)?.lines().count();
    ensure!(private_registry.pulls("program") == 2 && lines == 1, "asked {lines} times");
    Ok(())
}

fn shared(node: &StandaloneNode<'_>, private_registry: &PrivateRegistry) -> Result<()> {
    let pods = ["shared-a", "shared-b", "shared-c"];
    private_registry.registry_proxy.shut(true);
    for pod in pods {
        place(node, private_registry, pod, "shared", "Always")?;
    }
    for pod in pods {
        node.until_explained(pod, "Pulling image")?;
    }
    private_registry.registry_proxy.shut(false);
    for pod in pods {
        node.until_ready(pod)?;
    }
    ensure!(
        private_registry.pulls("shared") == 1,
        "{:?}",
        private_registry.registry_proxy.asked("bed/shared")
    );
    Ok(())
}

fn waits_for(node: &StandaloneNode<'_>, pod: &str, reason: &str) -> Result<String> {
    let found = node
        .until(reason, pod, |pod| container(pod, "main")["state"]["waiting"]["reason"] == reason)?;
    let message = container(&found, "main")["state"]["waiting"]["message"].as_str();
    Ok(message.context("a message")?.to_owned())
}

fn refused(node: &StandaloneNode<'_>, private_registry: &PrivateRegistry) -> Result<()> {
    place(node, private_registry, "wrong", "wrong", "IfNotPresent")?;
    place(node, private_registry, "failing", "failing", "IfNotPresent")?;
    let image = private_registry.image("wrong");
    // The first reason is shown for two seconds only; its event stays.
    let output = node.until_explained("wrong", "Error: ImagePullBackOff")?;
    let message = waits_for(node, "wrong", "ImagePullBackOff")?;
    let first = message.strip_prefix(&format!("Back-off pulling image {image:?}: ErrImagePull: "));
    let first = first.with_context(|| message.clone())?;
    // The runtime's own words, with nothing before them.
    ensure!(first.starts_with(&format!("failed to pull and unpack image {image:?}: ")), "{first}");
    ensure_has(first, &["401 Unauthorized"])?;
    let failed = format!("Failed to pull image {image:?}: {first}\n");
    let back_off = format!("Back-off pulling image {image:?}\n");
    ensure_has(&output, &[&failed, "Error: ErrImagePull\n", &back_off])?;
    let logins = private_registry.registry_proxy.asked("bed/wrong");
    ensure!(!logins.is_empty() && logins.iter().all(|asked| asked.login != LOGIN), "{logins:?}");

    // A program that fails is named; the pull is tried without it.
    let message = waits_for(node, "failing", "ImagePullBackOff")?;
    ensure_has(&message, &[NO_LOGIN, "credential provider fails: ", "exit status: 7"])?;
    ensure!(
        private_registry.registry_proxy.asked("bed/failing").is_empty(),
        "{:?}",
        private_registry.registry_proxy.asked("bed/failing")
    );
    Ok(())
}

/// The image is present, pulled with a secret's credentials; a pod without the secret has to
/// present its own.
fn pull_credentials_are_checked_per_pod(
    node: &StandaloneNode<'_>,
    private_registry: &PrivateRegistry,
) -> Result<()> {
    let (path, _) = record_of(node, private_registry, "file")?;
    let mut record: Value = serde_json::from_slice(&fs::read(&path)?)?;
    let theirs = json!({"kubernetesSecrets": [
        {"uid": "1", "namespace": "team", "name": "login", "credentialHash": "00"}
    ]});
    record["credentialMapping"] =
        json!({format!("{}/bed/file", private_registry.registry_proxy.address()): theirs});
    fs::write(&path, record.to_string())?;
    fs::remove_file(node.home.root().join("config.json"))?;
    place(node, private_registry, "rider", "file", "IfNotPresent")?;
    place(node, private_registry, "quiet-rider", "file", "Never")?;
    ensure_has(&waits_for(node, "rider", "ImagePullBackOff")?, &[NO_LOGIN])?;
    let message = waits_for(node, "quiet-rider", "ErrImageNeverPull")?;
    let image = private_registry.image("file");
    let absent = format!("Container image {image:?} is not present with pull policy of Never");
    ensure!(message == absent, "{message}");
    for pod in ["rider", "quiet-rider"] {
        node.agent.withdraw(pod)?;
        node.until_gone(pod)?;
    }
    // With node credentials that the registry accepts every pod may use it again.
    write_file(node, private_registry, ENCODED)?;
    place(node, private_registry, "owner", "file", "IfNotPresent")?;
    node.until_ready("owner")?;
    ensure!(
        private_registry.pulls("file") == 2,
        "{:?}",
        private_registry.registry_proxy.asked("bed/file")
    );
    ensure!(record_of(node, private_registry, "file")?.1["nodePodsAccessible"] == true);
    Ok(())
}

/// No credentials in the log, in statuses, events or explanations, or on disk.
fn no_credential_is_leaked(node: &StandaloneNode<'_>, bed: &Bed) -> Result<()> {
    let mut outputs = vec![
        ("the log", fs::read_to_string(bed.logs().join("node-keelson.log"))?),
        ("ps", node.agent.ask(&["ps", "-o", "json"])?),
    ];
    for pod in ["file", "program", "wrong", "failing"] {
        outputs.push(("explain", node.agent.ask(&["explain", pod])?));
        outputs.push(("timeline", node.agent.ask(&["timeline", pod, "-o", "json"])?));
    }
    for dir in ["image_manager/pulled", "keelson/pods"] {
        for entry in fs::read_dir(node.home.root().join(dir))? {
            outputs.push((dir, fs::read_to_string(entry?.path())?));
        }
    }
    for (place, text) in outputs {
        for secret in [PASSWORD, WRONG_PASSWORD, ENCODED] {
            ensure!(!text.contains(secret), "{place} tells {secret:?}:\n{text}");
        }
    }
    // Pods that are refused try again now and then.
    let begun = node.home.root().join("image_manager/pulling");
    wait_for("no pull is under way", WAIT_LIMIT, || Ok(fs::read_dir(&begun)?.next().is_none()))
}

#[test]
fn parallel_pulls_are_limited_as_configured() -> Result<()> {
    let (mut kind, archives, busybox) = (keelson()?, archives()?, images::busybox()?);
    let needs = [Containerd::NEEDS, RegistryServer::NEEDS].concat();
    BedTest::new().needs(&needs).deadline(Duration::from_secs(120)).run(move |bed| {
        let names = ["a", "b", "c", "d", "e", "f"];
        let private_registry = PrivateRegistry::open(bed, &busybox, &names)?;
        let more = bed.create_dir("drop-ins")?;
        kind.command.push(format!("--config-dir={}", more.display()));
        let mut node = StandaloneNode::start(bed, &kind, &archives, "")?;
        let logins = json!({"auths": {private_registry.registry_proxy.address().to_string(): {"auth": ENCODED}}});
        fs::write(node.home.root().join("config.json"), logins.to_string())?;
        ensure!(at_once(&node, &private_registry, &["a", "b", "c"], 1)? == 1, "one after the other by default");
        let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
                    serializeImagePulls: false\nmaxParallelImagePulls: 2\n";
        node = node.restart_agent(|_| Ok(fs::write(more.join("pulls.conf"), text)?))?;
        ensure!(at_once(&node, &private_registry, &["d", "e", "f"], 2)? == 2, "two side by side");
        node.end()
    })
}

/// Starts pods with these images before a closed proxy, which is opened once every pod reports that
/// it pulls and the expected number of pulls waits. Returns the maximum number of pulls that waited
/// at the same time.
fn at_once(
    node: &StandaloneNode<'_>,
    private_registry: &PrivateRegistry,
    names: &[&str],
    expected: usize,
) -> Result<usize> {
    private_registry.registry_proxy.shut(true);
    for name in names {
        place(node, private_registry, name, name, "Always")?;
    }
    for name in names {
        node.until_explained(name, "Pulling image")?;
    }
    let what = format!("{expected} pulls wait");
    wait_for(
        &what,
        WAIT_LIMIT,
        || Ok(private_registry.registry_proxy.waiting().len() >= expected),
    )?;
    let most = private_registry.registry_proxy.most_waiting();
    private_registry.registry_proxy.shut(false);
    for name in names {
        node.until_ready(name)?;
        ensure!(
            private_registry.pulls(name) == 1,
            "{name}: {:?}",
            private_registry.registry_proxy.asked(&format!("bed/{name}"))
        );
    }
    Ok(most)
}
