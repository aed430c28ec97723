//! Foreign configurations and results, and plugins that are shell scripts.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use cni_documents::addresses_of;
use cri_wire::v1;

use super::*;

const LIST: &str = r#"{"cniVersion":"1.0.0","name":"pods","plugins":[
  {"type":"first","capabilities":{"portMappings":true,"dns":false},"own":1},{"type":"second"}]}"#;

fn pod() -> PodNetwork {
    let mapping =
        v1::PortMapping { host_port: 8080, container_port: 80, ..v1::PortMapping::default() };
    let config = v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: "web".to_owned(),
            namespace: "default".to_owned(),
            uid: "u1".to_owned(),
            attempt: 0,
        }),
        port_mappings: vec![mapping],
        ..Default::default()
    };
    PodNetwork { sandbox: "abc".to_owned(), config }
}

fn record(text: &str) -> NetworkRecord {
    NetworkRecord {
        namespace: "/proc/self/ns/net".to_owned(),
        cni_configuration: text.as_bytes().to_vec(),
        ..Default::default()
    }
}

fn settings(dir: &Path) -> CniSettings {
    CniSettings {
        configurations: dir.join("net.d"),
        plugins: vec![dir.to_owned()],
        results: dir.join("results"),
        deadline: Duration::from_secs(5),
        calls: dir.join("calls"),
        collect_garbage: false,
    }
}

fn plugin(dir: &Path, name: &str, script: &str) {
    let path = dir.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn wrong_configurations_are_refused_with_a_reason() {
    for (text, why) in [
        ("", "EOF"),
        ("[]", "no object"),
        ("{}", "no name"),
        (r#"{"name":"a/b","type":"x"}"#, "'/'"),
        (r#"{"name":"a"}"#, "no type"),
        (r#"{"name":"a","plugins":[]}"#, "no plugins"),
        (r#"{"name":"a","plugins":[1]}"#, "no object"),
        (r#"{"name":"a","plugins":{}}"#, "no list"),
        (r#"{"name":"a","plugins":[{"type":"../sh"}]}"#, "plain name"),
    ] {
        let failure = NetworkConfigList::parse("x", text.as_bytes()).unwrap_err();
        assert!(failure.to_string().contains(why), "{text}: {failure}");
    }
}

#[tokio::test]
async fn the_first_readable_file_by_name_counts() {
    let temp_dir = tempfile::tempdir().unwrap();
    let cni = Cni::new(settings(temp_dir.path()));
    let dir = temp_dir.path().join("net.d");
    assert_eq!(cni.configuration().await.unwrap(), None, "no dir");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("00-notes.txt"), "{}").unwrap();
    assert_eq!(cni.configuration().await.unwrap(), None);
    std::fs::write(dir.join("10-bad.conflist"), "{").unwrap();
    let failure = cni.configuration().await.unwrap_err();
    assert!(failure.text.contains("10-bad.conflist"), "{failure}");
    std::fs::write(dir.join("20-good.conf"), r#"{"name":"b","type":"x"}"#).unwrap();
    std::fs::write(dir.join("30-late.conflist"), LIST).unwrap();
    assert_eq!(cni.configuration().await.unwrap().unwrap().name, "b");
}

/// Keeps the texts of log events.
#[derive(Clone, Default)]
struct LogLines(std::sync::Arc<Mutex<Vec<String>>>);

impl LogLines {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl tracing::field::Visit for LogLines {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.lock().unwrap().push(format!("{}={value:?}", field.name()));
    }
}

impl tracing::Subscriber for LogLines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let fields = Self::default();
        event.record(&mut fields.clone());
        self.0.lock().unwrap().push(fields.take().join(" "));
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// The directory is read with every pod and every status: an error is logged once.
#[tokio::test]
async fn an_unreadable_configuration_is_logged_once_also_where_a_later_one_serves() {
    let temp_dir = tempfile::tempdir().unwrap();
    let cni = Cni::new(settings(temp_dir.path()));
    let dir = temp_dir.path().join("net.d");
    std::fs::create_dir(&dir).unwrap();
    let (bad, pipe) = (dir.join("10-bad.conflist"), dir.join("15-pipe.conf"));
    std::fs::write(dir.join("20-good.conf"), r#"{"name":"b","type":"x"}"#).unwrap();
    let lines = LogLines::default();
    let _guard = tracing::subscriber::set_default(lines.clone());
    cni.configuration().await.unwrap();
    assert!(lines.take().is_empty());
    std::fs::write(&bad, "{").unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    assert_eq!(cni.configuration().await.unwrap().unwrap().name, "b");
    let logged = lines.take();
    assert_eq!(logged.len(), 2, "{logged:?}");
    for (line, path, reason) in
        [(&logged[0], &bad, "EOF while parsing"), (&logged[1], &pipe, "no regular file")]
    {
        let all = [path.to_str().unwrap(), reason, r#"serving="b""#];
        assert!(all.iter().all(|part| line.contains(part)), "{line}");
    }
    cni.configuration().await.unwrap();
    assert!(lines.take().is_empty(), "again");
    // Another error of the same file, one that was fixed and came back, and no valid file.
    std::fs::write(&bad, "[]").unwrap();
    cni.configuration().await.unwrap();
    let logged = lines.take();
    assert!(logged.len() == 1 && logged[0].contains("is no object"), "{logged:?}");
    std::fs::rename(&bad, dir.join("aside")).unwrap();
    cni.configuration().await.unwrap();
    std::fs::rename(dir.join("aside"), &bad).unwrap();
    std::fs::remove_file(dir.join("20-good.conf")).unwrap();
    cni.configuration().await.unwrap_err();
    let logged = lines.take();
    assert!(logged.len() == 1 && logged[0].contains("10-bad.conflist"), "{logged:?}");
}

#[test]
fn a_plugin_reads_its_fields_the_previous_result_and_the_capabilities_it_asked_for() {
    let list = NetworkConfigList::parse("x", LIST.as_bytes()).unwrap();
    let capabilities = arguments::capabilities(&pod()).unwrap();
    let read = |at: usize, previous: Option<&Value>| -> Value {
        serde_json::from_slice(&list.plugins[at].input(&list, previous, &capabilities)).unwrap()
    };
    let first = read(0, None);
    assert_eq!(first["own"], 1);
    assert_eq!((&first["name"], &first["cniVersion"]), (&json!("pods"), &json!("1.0.0")));
    assert_eq!(first["runtimeConfig"]["portMappings"][0]["hostPort"], 8080);
    assert!(first["runtimeConfig"].get("dns").is_none() && first.get("prevResult").is_none());
    let second = read(1, Some(&json!({"ips": []})));
    assert_eq!(second["prevResult"], json!({"ips": []}));
    assert!(second.get("runtimeConfig").is_none());
}

#[test]
fn only_addresses_of_the_pods_interface_are_used() {
    let of = |text: &str| addresses_of(text.as_bytes(), "eth0").map_err(|error| error.to_string());
    let links = r#""interfaces":[{"name":"cni0"},{"name":"eth0","sandbox":"/n"}]"#;
    let both = format!(
        r#"{{{links},"ips":[{{"address":"fd00::2/64","interface":1}},
           {{"address":"10.1.0.2/24","interface":1}},{{"address":"10.9.9.9/24","interface":0}}]}}"#
    );
    assert_eq!(of(&both).unwrap(), ["10.1.0.2", "fd00::2"]);
    assert_eq!(of(r#"{"ips":[{"address":"10.1.0.3/24"}]}"#).unwrap(), ["10.1.0.3"]);
    assert_eq!(of(r#"{"ip4":{"ip":"10.1.0.4/24"}}"#).unwrap(), ["10.1.0.4"]);
    assert_eq!(of(r#"{"ips":[{"address":"fd00::3/64"}]}"#).unwrap(), ["fd00::3"]);
    for wrong in ["{}", "[]", "", r#"{"ips":[{"address":7}]}"#, r#"{"ips":[{"interface":99}]}"#] {
        assert!(of(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn bandwidths_are_quantities_within_limits() {
    let mut pod = pod();
    let mut with = |text: &str| {
        let key = "kubernetes.io/ingress-bandwidth".to_owned();
        pod.config.annotations.insert(key, text.to_owned());
        arguments::capabilities(&pod).map(|all| all["bandwidth"]["ingressRate"].as_u64())
    };
    assert_eq!(with("10M").unwrap(), Some(10_000_000));
    assert_eq!(with("1Ki").unwrap(), Some(1024));
    for wrong in ["", "10", "fast", "2P", "-1M"] {
        assert!(with(wrong).is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn add_passes_results_on_and_delete_goes_backwards() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log").display().to_string();
    let script = |name: &str, answer: &str| {
        format!(
            "cat >{log}.{name}.$CNI_COMMAND; echo $CNI_COMMAND {name} $CNI_CONTAINERID $CNI_IFNAME \
             $CNI_ARGS >>{log}; [ $CNI_COMMAND = DEL ] || echo '{answer}'"
        )
    };
    plugin(dir.path(), "first", &script("first", r#"{"ips":[{"address":"10.1.0.2/24"}]}"#));
    plugin(dir.path(), "second", &script("second", r#"{"ips":[{"address":"10.1.0.2/24"}],"x":1}"#));
    let cni = Cni::new(settings(dir.path()));
    let mut record = record(LIST);
    record.cni_result = cni.add(&pod(), &record).await.unwrap();
    assert_eq!(addresses_of(&record.cni_result, "eth0").unwrap(), ["10.1.0.2"]);
    let cached_result = dir.path().join("results/pods-abc-eth0");
    let cached: Value = serde_json::from_slice(&std::fs::read(&cached_result).unwrap()).unwrap();
    assert_eq!((&cached["kind"], &cached["result"]["x"]), (&json!("cniCacheV1"), &json!(1)));
    cni.remove(&pod(), &record).await.unwrap();
    assert!(!cached_result.exists());
    let lines = std::fs::read_to_string(&log).unwrap();
    let order: Vec<String> =
        lines.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(order, ["ADD first", "ADD second", "DEL second", "DEL first"]);
    assert!(lines.contains("abc eth0 IgnoreUnknown=1;K8S_POD_NAMESPACE=default"), "{lines}");
    let del: Value =
        serde_json::from_slice(&std::fs::read(format!("{log}.first.DEL")).unwrap()).unwrap();
    assert_eq!(del["prevResult"]["x"], 1);
}

#[tokio::test]
async fn a_failed_add_returns_the_plugins_error_and_is_rolled_back() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log").display().to_string();
    plugin(dir.path(), "first", &format!("echo $CNI_COMMAND >>{log}; echo '{{}}'"));
    let refuse = r#"[ $CNI_COMMAND = DEL ] || { echo '{"code":7,"msg":"no room","details":"at all"}'; exit 1; }"#;
    plugin(dir.path(), "second", refuse);
    let cni = Cni::new(settings(dir.path()));
    let failure = cni.add(&pod(), &record(LIST)).await.unwrap_err();
    assert_eq!(failure.text, "plugin second ADD failed: no room; at all");
    cni.teardown(&pod(), &record(LIST)).await.unwrap();
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "ADD\nDEL\n");
}

/// What a failed set-up left is not forgotten when its DEL fails too.
#[tokio::test]
async fn a_half_made_network_is_undone_when_the_plugin_or_the_configuration_is_mended() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().display().to_string();
    let script = format!(
        "input=$(cat); [ -e {here}/works ] || case $input in *mended*) ;; *) exit 1;; esac"
    );
    plugin(dir.path(), "first", &script);
    plugin(dir.path(), "second", "true");
    let cni = Cni::new(settings(dir.path()));
    assert!(cni.teardown(&pod(), &record(LIST)).await.is_err(), "it was taken for undone");
    // The configuration of another network is not used.
    std::fs::create_dir(dir.path().join("net.d")).unwrap();
    let place = dir.path().join("net.d/10-pods.conflist");
    let mended = LIST.replace(r#""own":1"#, r#""own":"mended""#);
    std::fs::write(&place, mended.replace(r#""pods""#, r#""others""#)).unwrap();
    assert!(cni.teardown(&pod(), &record(LIST)).await.is_err(), "by another network");
    std::fs::write(&place, &mended).unwrap();
    cni.teardown(&pod(), &record(LIST)).await.unwrap();
    // A complete set-up is torn down as it was made.
    let whole = NetworkRecord { complete: true, ..record(LIST) };
    assert!(cni.teardown(&pod(), &whole).await.is_err());
    std::fs::write(dir.path().join("works"), "").unwrap();
    cni.teardown(&pod(), &whole).await.unwrap();
}

#[test]
fn a_missing_plugin_is_an_error_before_any_plugin_runs() {
    let dir = tempfile::tempdir().unwrap();
    let cni = Cni::new(settings(dir.path()));
    let list = NetworkConfigList::parse("x", LIST.as_bytes()).unwrap();
    plugin(dir.path(), "first", "true");
    let failure = cni.find_plugins(&list).unwrap_err();
    assert!(failure.text.contains(r#""second" is in none of"#), "{failure}");
    plugin(dir.path(), "second", "true");
    cni.find_plugins(&list).unwrap();
}

#[tokio::test]
async fn a_plugin_gets_our_environment_and_no_other_cni_variables() {
    let dir = tempfile::tempdir().unwrap();
    let seen = dir.path().join("seen");
    plugin(dir.path(), "first", &format!("cat >/dev/null; env >{}", seen.display()));
    let settings = settings(dir.path());
    let (pod, input) = (pod(), b"{}".to_vec());
    let call = plugin::PluginCall { command: "DEL", kind: "first", pod: Some((&pod, "/n")), input };
    plugin::run(&settings, &call).await.unwrap();
    let seen = std::fs::read_to_string(&seen).unwrap();
    let ours: Vec<String> = std::env::vars()
        .filter(|(name, value)| !name.starts_with("CNI_") && name != "_" && !value.contains('\n'))
        // Shells set these themselves.
        .filter(|(name, _)| !matches!(name.as_str(), "PATH" | "PWD" | "OLDPWD" | "SHLVL"))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert!(!ours.is_empty(), "this test was started without an environment");
    for line in ours.iter().map(String::as_str).chain(["CNI_COMMAND=DEL", "CNI_NETNS=/n"]) {
        assert!(seen.lines().any(|found| found == line), "{line:?} is not in {seen}");
    }
}

#[tokio::test]
async fn a_hanging_plugin_is_killed_and_a_flooding_one_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(dir.path());
    settings.deadline = Duration::from_millis(300);
    plugin(dir.path(), "first", "exec sleep 100");
    plugin(dir.path(), "second", "true");
    let failure = Cni::new(settings.clone()).add(&pod(), &record(LIST)).await.unwrap_err();
    assert_eq!(failure.code, tonic::Code::DeadlineExceeded, "{failure}");
    settings.deadline = Duration::from_secs(20);
    plugin(dir.path(), "first", "head -c 5000000 /dev/zero");
    let failure = Cni::new(settings).add(&pod(), &record(LIST)).await.unwrap_err();
    assert!(failure.text.contains("its result"), "{failure}");
}

#[tokio::test]
async fn a_plugin_of_a_previous_server_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log").display().to_string();
    for name in ["first", "second"] {
        plugin(dir.path(), name, &format!("cat >/dev/null; echo $CNI_COMMAND >>{log}"));
    }
    // A plugin that outlived its server has its input locked.
    std::fs::create_dir(dir.path().join("calls")).unwrap();
    let held = std::fs::File::create(dir.path().join("calls/abc")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let cni = Cni::new(settings(dir.path()));
    let (pod, record) = (pod(), record(LIST));
    let removal = cni.remove(&pod, &record);
    tokio::pin!(removal);
    let early = tokio::time::timeout(Duration::from_millis(100), &mut removal).await;
    assert!(early.is_err(), "it did not wait");
    assert!(!Path::new(&log).exists(), "a plugin ran meanwhile");
    drop(held);
    removal.await.unwrap();
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "DEL\nDEL\n");
    assert!(!dir.path().join("calls/abc").exists());
}

#[tokio::test]
async fn garbage_is_collected_unless_the_configuration_forbids_it() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    plugin(dir.path(), "first", &format!("cat >/dev/null; echo $CNI_COMMAND >>{}", log.display()));
    std::fs::create_dir(dir.path().join("net.d")).unwrap();
    let settings = CniSettings { collect_garbage: true, ..settings(dir.path()) };
    for (more, asked) in [(r#","disableGC":true"#, false), ("", true)] {
        let text = format!(
            r#"{{"cniVersion":"1.1.0","name":"pods","plugins":[{{"type":"first"}}]{more}}}"#
        );
        std::fs::write(dir.path().join("net.d/10-pods.conflist"), text).unwrap();
        Cni::new(settings.clone()).collect(&[]).await;
        assert_eq!(log.exists(), asked, "{more}");
    }
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "GC\n");
}
