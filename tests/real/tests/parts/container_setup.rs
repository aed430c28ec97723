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
use node_testkit::bed::{Bed, Test};
use node_testkit::parts;
use node_testkit::start::{KubeletOptions, ReferenceKubelet};
use real_tests::container_setup::pods::{NODE, RESOLV_CONF, RUNNING, WAITING, uid};
use real_tests::container_setup::recorder::Recorder;
use real_tests::container_setup::{
    MachineNote, Places, Recording, record, waiting, without_chance,
};

const LIMIT: Duration = Duration::from_secs(90);

#[test]
fn we_tell_a_runtime_what_the_reference_tells_it() -> Result<()> {
    let recording = read()?;
    let places = Places { root: "/root-of-kubelet".to_owned(), logs: "/pod-logs".to_owned() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ours = runtime.block_on(record(&recording.machine, &places))?;
    let mut differences = Vec::new();
    for (pod, theirs) in &recording.told {
        let ours = ours.get(pod).cloned().unwrap_or_default();
        for part in theirs.keys().chain(ours.keys().filter(|key| !theirs.contains_key(*key))) {
            let nothing = Vec::new();
            let (theirs, ours) =
                (theirs.get(part).unwrap_or(&nothing), ours.get(part).unwrap_or(&nothing));
            differences.extend(compared(&format!("{pod}/{part}"), theirs, ours));
        }
    }
    ensure!(differences.is_empty(), "differs:\n{}", differences.join("\n"));
    ensure!(ours.len() == recording.told.len(), "a pod was not recorded");
    let ours = runtime.block_on(waiting(&recording.machine, &places))?;
    ensure!(ours == recording.waiting, "ours {ours:#?}\ntheirs {:#?}", recording.waiting);
    Ok(())
}

fn compared(place: &str, theirs: &[String], ours: &[String]) -> Vec<String> {
    if theirs == ours {
        return Vec::new();
    }
    let only = |these: &[String], those: &[String], mark: &str| -> Vec<String> {
        let lines = these.iter().filter(|line| !those.contains(line));
        lines.map(|line| format!("  {mark}{line}")).collect()
    };
    let mut told = vec![place.to_owned()];
    told.extend(only(theirs, ours, "theirs "));
    told.extend(only(ours, theirs, "ours   "));
    told
}

#[test]
fn the_reference_still_says_what_was_recorded() -> Result<()> {
    Test::new().needs(ReferenceKubelet::NEEDS).deadline(Duration::from_mins(4)).run(|bed| {
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
            let names = |recording: &Recording| recording.told.keys().cloned().collect::<Vec<_>>();
            ensure!(names(&found) == names(&recorded), "other pods");
            return Ok(());
        }
        let mut differences = Vec::new();
        for (pod, parts) in &found.told {
            for (part, lines) in parts {
                let then = recorded.told.get(pod).and_then(|parts| parts.get(part));
                let then = then.cloned().unwrap_or_default();
                differences.extend(compared(&format!("{pod}/{part}"), lines, &then));
            }
        }
        ensure!(differences.is_empty(), "differs:\n{}", differences.join("\n"));
        Ok(())
    })
}

fn golden() -> Result<PathBuf> {
    let version = parts::version("kubelet")?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("goldens");
    Ok(folder.join(format!("container-setup-{version}.json")))
}

fn read() -> Result<Recording> {
    let golden = golden()?;
    let text = fs::read_to_string(&golden)
        .with_context(|| format!("{}: take it with KEELSON_WRITE_GOLDENS=1", golden.display()))?;
    serde_json::from_str(&text).with_context(|| golden.display().to_string())
}

/// Runs all pods with the reference kubelet on the recording runtime.
fn record_reference(bed: &Bed) -> Result<Recording> {
    let manifests = bed.make_folder("manifests")?;
    let root = bed.make_folder("kubelet-root")?;
    let logs = bed.make_folder("pod-logs")?;
    let runtime = bed.make_folder("recorder")?;
    for (number, sample) in RUNNING.iter().chain(WAITING).enumerate() {
        let path = manifests.join(format!("{number:03}.yaml"));
        fs::write(&path, sample.manifest(number)).with_context(|| path.display().to_string())?;
    }
    let resolver = manifests.with_file_name("resolv.conf");
    fs::write(&resolver, RESOLV_CONF)?;
    let recorder = Recorder::default();
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
    let places = Places { root: root.display().to_string(), logs: logs.display().to_string() };
    let started = Instant::now();
    loop {
        match (told(&recorder, &places), why()) {
            (Ok(told), Ok(waiting)) => {
                return Ok(Recording { machine: MachineNote::here()?, told, waiting });
            }
            (Err(error), _) | (_, Err(error)) if started.elapsed() > LIMIT => return Err(error),
            _ => std::thread::sleep(Duration::from_millis(500)),
        }
    }
}

type Told = BTreeMap<String, BTreeMap<String, Vec<String>>>;

fn told(recorder: &Recorder, places: &Places) -> Result<Told> {
    let mut all = Told::new();
    for (number, sample) in RUNNING.iter().enumerate() {
        let (sandbox, containers) =
            recorder.of_pod(&uid(number)).with_context(|| format!("no {}", sample.name))?;
        let wanted = sample.manifest(number).matches("image: \"").count();
        ensure!(containers.len() == wanted, "{}: {} of {wanted}", sample.name, containers.len());
        all.insert(sample.name.to_owned(), without_chance(sandbox, containers, places));
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
fn why() -> Result<BTreeMap<String, String>> {
    let list = pods_of_kubelet()?;
    let mut why = BTreeMap::new();
    for sample in WAITING {
        let name = format!("{}-{NODE}", sample.name);
        let items = list["items"].as_array().context("no items")?;
        let pod = items.iter().find(|pod| pod["metadata"]["name"] == name.as_str());
        let pod = pod.with_context(|| format!("no {name}"))?;
        let state = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
        let (reason, message) = (state["reason"].as_str(), state["message"].as_str());
        match (reason, message) {
            (Some(reason), Some(message)) => {
                why.insert(sample.name.to_owned(), format!("{reason}: {message}"));
            }
            _ => bail!("{name} does not wait yet: {}", pod["status"]),
        }
    }
    Ok(why)
}
