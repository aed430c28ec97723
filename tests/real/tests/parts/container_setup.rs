//! CRI requests for pods: ours against a recording of the reference kubelet's.
//!
//! The recording's name contains the kubelet's version: a new pinned version fails here until a new
//! recording is made with KEELSON_WRITE_GOLDENS=1.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use node_testkit::bed::{Bed, BedTest};
use node_testkit::parts;
use node_testkit::start::{KubeletOptions, ReferenceKubelet};
use real_tests::container_setup::pods::{NODE, RESOLV_CONF, RUNNING, WAITING, uid};
use real_tests::container_setup::recorder::CriRecorder;
use real_tests::container_setup::{
    RecordedMachine, RecordedPaths, Recording, deterministic_setup, record, waiting,
};

const LIMIT: Duration = Duration::from_secs(90);

#[test]
fn our_cri_requests_equal_those_of_the_reference_kubelet() -> Result<()> {
    let recording = read()?;
    let places =
        RecordedPaths { root: "/root-of-kubelet".to_owned(), logs: "/pod-logs".to_owned() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ours = runtime.block_on(record(&recording.machine, &places))?;
    let mut differences = Vec::new();
    for (pod, theirs) in &recording.setup {
        let ours = ours.get(pod).cloned().unwrap_or_default();
        for part in theirs.keys().chain(ours.keys().filter(|key| !theirs.contains_key(*key))) {
            let nothing = Vec::new();
            let (theirs, ours) =
                (theirs.get(part).unwrap_or(&nothing), ours.get(part).unwrap_or(&nothing));
            differences.extend(setup_differences(&format!("{pod}/{part}"), theirs, ours));
        }
    }
    ensure!(differences.is_empty(), "differs:\n{}", differences.join("\n"));
    ensure!(ours.len() == recording.setup.len(), "a pod was not recorded");
    let ours = runtime.block_on(waiting(&recording.machine, &places))?;
    ensure!(ours == recording.waiting, "ours {ours:#?}\ntheirs {:#?}", recording.waiting);
    Ok(())
}

fn setup_differences(place: &str, theirs: &[String], ours: &[String]) -> Vec<String> {
    if theirs == ours {
        return Vec::new();
    }
    let only = |these: &[String], those: &[String], mark: &str| -> Vec<String> {
        let lines = these.iter().filter(|line| !those.contains(line));
        lines.map(|line| format!("  {mark}{line}")).collect()
    };
    let mut setup = vec![place.to_owned()];
    setup.extend(only(theirs, ours, "theirs "));
    setup.extend(only(ours, theirs, "ours   "));
    setup
}

#[test]
fn the_reference_kubelet_still_sends_the_recorded_requests() -> Result<()> {
    BedTest::new().needs(ReferenceKubelet::NEEDS).deadline(Duration::from_mins(4)).run(|bed| {
        let found = record_reference(bed)?;
        let golden = golden()?;
        if std::env::var_os("KEELSON_WRITE_GOLDENS").is_some() {
            let text = serde_json::to_string_pretty(&found)? + "\n";
            fs::write(&golden, text).with_context(|| golden.display().to_string())?;
        }
        let recorded = read()?;
        ensure!(found.waiting == recorded.waiting, "{:#?}", found.waiting);
        if found.machine != recorded.machine {
            eprintln!("another machine than the recorded one: only the pods' names are compared");
            let names = |recording: &Recording| recording.setup.keys().cloned().collect::<Vec<_>>();
            ensure!(names(&found) == names(&recorded), "other pods");
            return Ok(());
        }
        let mut differences = Vec::new();
        for (pod, parts) in &found.setup {
            for (part, lines) in parts {
                let then = recorded.setup.get(pod).and_then(|parts| parts.get(part));
                let then = then.cloned().unwrap_or_default();
                differences.extend(setup_differences(&format!("{pod}/{part}"), lines, &then));
            }
        }
        ensure!(differences.is_empty(), "differs:\n{}", differences.join("\n"));
        Ok(())
    })
}

fn golden() -> Result<PathBuf> {
    let version = parts::version("kubelet")?;
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("goldens");
    Ok(dir.join(format!("container-setup-{version}.json")))
}

fn read() -> Result<Recording> {
    let golden = golden()?;
    let text = fs::read_to_string(&golden)
        .with_context(|| format!("{}: take it with KEELSON_WRITE_GOLDENS=1", golden.display()))?;
    serde_json::from_str(&text).with_context(|| golden.display().to_string())
}

/// Runs all pods with the reference kubelet on the recording runtime.
fn record_reference(bed: &Bed) -> Result<Recording> {
    let manifests = bed.create_dir("manifests")?;
    let root = bed.create_dir("kubelet-root")?;
    let logs = bed.create_dir("pod-logs")?;
    let runtime = bed.create_dir("recorder")?;
    for (number, sample) in RUNNING.iter().chain(WAITING).enumerate() {
        let path = manifests.join(format!("{number:03}.yaml"));
        fs::write(&path, sample.manifest(number)).with_context(|| path.display().to_string())?;
    }
    let resolver = manifests.with_file_name("resolv.conf");
    fs::write(&resolver, RESOLV_CONF)?;
    let recorder = CriRecorder::default();
    let socket = runtime.join("r.sock");
    let _served = recorder.serve(&socket)?;
    let configuration = format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
         failCgroupV1: false\nfailSwapOn: false\ncgroupDriver: cgroupfs\n\
         containerRuntimeEndpoint: unix://{}\nstaticPodPath: {}\npodLogsDir: {}\n\
         resolvConf: {}\nclusterDNS: [10.96.0.10]\nclusterDomain: cluster.local\n\
         readOnlyPort: 10255\n\
         authentication: {{anonymous: {{enabled: true}}, webhook: {{enabled: false}}}}\n\
         authorization: {{mode: AlwaysAllow}}\nevictionHard: {{memory.available: 1Mi}}\n",
        socket.display(),
        manifests.display(),
        logs.display(),
        resolver.display(),
    );
    let options = KubeletOptions {
        configuration,
        flags: vec![
            format!("--hostname-override={NODE}"),
            format!("--root-dir={}", root.display()),
        ],
        ..KubeletOptions::default()
    };
    let _kubelet = ReferenceKubelet::start(bed, &options)?;
    let places =
        RecordedPaths { root: root.display().to_string(), logs: logs.display().to_string() };
    let started = Instant::now();
    loop {
        match (setup(&recorder, &places), waiting_reasons()) {
            (Ok(setup), Ok(waiting)) => {
                return Ok(Recording { machine: RecordedMachine::here()?, setup, waiting });
            }
            (Err(error), _) | (_, Err(error)) if started.elapsed() > LIMIT => return Err(error),
            _ => std::thread::sleep(Duration::from_millis(500)),
        }
    }
}

type RecordedSetup = BTreeMap<String, BTreeMap<String, Vec<String>>>;

fn setup(recorder: &CriRecorder, places: &RecordedPaths) -> Result<RecordedSetup> {
    let mut all = RecordedSetup::new();
    for (number, sample) in RUNNING.iter().enumerate() {
        let (sandbox, containers) =
            recorder.of_pod(&uid(number)).with_context(|| format!("no {}", sample.name))?;
        let wanted = sample.manifest(number).matches("image: \"").count();
        ensure!(containers.len() == wanted, "{}: {} of {wanted}", sample.name, containers.len());
        all.insert(sample.name.to_owned(), deterministic_setup(sandbox, containers, places));
    }
    Ok(all)
}

/// The kubelet's own list of pods.
fn pods_of_kubelet() -> Result<serde_json::Value> {
    let mut stream = TcpStream::connect(("127.0.0.1", 10255))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(b"GET /pods HTTP/1.0\r\nHost: kubelet\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").context("no body")?;
    serde_json::from_str(body).with_context(|| answer.clone())
}

/// The waiting reasons of containers.
fn waiting_reasons() -> Result<BTreeMap<String, String>> {
    let list = pods_of_kubelet()?;
    let mut waiting_reasons = BTreeMap::new();
    for sample in WAITING {
        let name = format!("{}-{NODE}", sample.name);
        let items = list["items"].as_array().context("no items")?;
        let pod = items.iter().find(|pod| pod["metadata"]["name"] == name.as_str());
        let pod = pod.with_context(|| format!("no {name}"))?;
        let state = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
        let (reason, message) = (state["reason"].as_str(), state["message"].as_str());
        match (reason, message) {
            (Some(reason), Some(message)) => {
                waiting_reasons.insert(sample.name.to_owned(), format!("{reason}: {message}"));
            }
            _ => bail!("{name} does not wait yet: {}", pod["status"]),
        }
    }
    Ok(waiting_reasons)
}
