//! The agent's side: the same pods through its decisions and its client.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use container_setup::inputs::{ContainerSetupInputs, NodeSetupInputs, PodSetupInputs, ReadyVolume};
use container_setup::{container, environment, mounts, resolv_conf, sandbox};
use cri_client::{CallLimits, CriClient, RuntimeTransport};
use cri_wire::v1::image_service_server::ImageServiceServer;
use cri_wire::v1::runtime_service_server::RuntimeServiceServer;
use document::diagnostic::Origin;
use node_testkit::bed::NODE_ADDRESS;
use pod_manifest::static_pod::SourceKind;
use pod_manifest::{PodGates, StaticPodSource, Strictness, read_static_pods};
use pod_model::pod::{Container, Pod, VolumeSource};
use ports::pod_runtime::PodRuntime;
use ports::runtime_objects::{HandlerFeatures, ImageSpec};

use super::pods::{NODE, RESOLV_CONF, RUNNING, SamplePod, WAITING, uid};
use super::recorder::{CriRecorder, POD_ADDRESS};
use super::{RecordedMachine, RecordedPaths, deterministic_setup};

type RecordedSetup = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// The agent's requests for every pod that reaches Running, on a machine with these properties.
pub async fn record(machine: &RecordedMachine, places: &RecordedPaths) -> Result<RecordedSetup> {
    let node = node(machine, places)?;
    let mut setup = RecordedSetup::new();
    for (number, sample) in RUNNING.iter().enumerate() {
        let recorder = CriRecorder::default();
        let client = client(&recorder);
        let pod = read(sample, number)?;
        run(&client, &pod, &node, places).await.context(sample.name)?;
        let (sandbox, containers) = recorder.of_pod(&uid(number)).context("nothing was told")?;
        setup.insert(sample.name.to_owned(), deterministic_setup(sandbox, containers, places));
    }
    Ok(setup)
}

/// The waiting reason of the containers that cannot be set up.
pub async fn waiting(
    machine: &RecordedMachine,
    places: &RecordedPaths,
) -> Result<BTreeMap<String, String>> {
    let node = node(machine, places)?;
    let client = client(&CriRecorder::default());
    let mut why = BTreeMap::new();
    for (number, sample) in WAITING.iter().enumerate() {
        let pod = read(sample, RUNNING.len() + number)?;
        match run(&client, &pod, &node, places).await {
            Ok(()) => bail!("{}: came to run", sample.name),
            Err(error) => {
                let reason = container_setup::CONTAINER_CONFIG_REASON;
                why.insert(sample.name.to_owned(), format!("{reason}: {error}"));
            }
        }
    }
    Ok(why)
}

fn client(recorder: &CriRecorder) -> CriClient {
    let runtime =
        RuntimeTransport::in_process("recorder", RuntimeServiceServer::new(recorder.clone()));
    let images =
        RuntimeTransport::in_process("recorder", ImageServiceServer::new(recorder.clone()));
    CriClient::over(runtime, images, CallLimits::default())
}

fn node(machine: &RecordedMachine, places: &RecordedPaths) -> Result<NodeSetupInputs> {
    let mut node = NodeSetupInputs {
        node_ips: vec![NODE_ADDRESS.parse().context("the node's address")?],
        pod_logs_directory: places.logs.clone(),
        ..NodeSetupInputs::default()
    };
    node.dns.cluster_servers = vec!["10.96.0.10".parse()?];
    node.dns.cluster_domain = "cluster.local".to_owned();
    node.dns.resolver = Some(resolv_conf::parse(RESOLV_CONF.as_bytes())?);
    node.security.seccomp_root = format!("{}/seccomp", places.root);
    node.security.thermal_throttle_paths.clone_from(&machine.thermal_throttle_paths);
    node.machine.cgroup_v2 = machine.cgroup_v2;
    node.machine.memory_bytes = machine.memory_bytes;
    node.machine.swap_controller = machine.swap_controller;
    node.machine.huge_page_sizes.clone_from(&machine.huge_page_sizes);
    Ok(node)
}

fn read(sample: &SamplePod, number: usize) -> Result<Pod> {
    let source = StaticPodSource {
        node_name: NODE,
        kind: SourceKind::File,
        strictness: Strictness::Strict,
        gates: PodGates::default(),
    };
    let manifest = sample.manifest(number);
    let read = read_static_pods(manifest.as_bytes(), &Origin::Default, &source);
    let mut pods = read.pods.into_iter();
    pods.next().with_context(|| format!("{}: {:?}", sample.name, read.diagnostics))
}

async fn run(
    client: &CriClient,
    pod: &Pod,
    node: &NodeSetupInputs,
    places: &RecordedPaths,
) -> Result<()> {
    let cgroup = container_setup::cgroups::of_pod(&[], pod);
    let pod_facts = PodSetupInputs {
        // Without an API server the reference takes no handler to be able to do anything.
        handler: HandlerFeatures::default(),
        cgroup_parent: format!("/{}", cgroup.join("/")),
        ..PodSetupInputs::default()
    };
    let (config, _) = sandbox::config(pod, node, &pod_facts, 0)?;
    let sandbox_id = client.run_sandbox(&config).await?;
    for (_, _, container) in pod.spec.all_containers() {
        let facts = facts(client, pod, container, node, places).await?;
        let made = container::config(pod, container, node, &pod_facts, &facts)?;
        PodRuntime::create_container(client, &sandbox_id, &made, &config).await?;
    }
    Ok(())
}

async fn facts(
    client: &CriClient,
    pod: &Pod,
    container: &Container,
    node: &NodeSetupInputs,
    places: &RecordedPaths,
) -> Result<ContainerSetupInputs> {
    let dir = format!("{}/pods/{}", places.root, pod.metadata.uid);
    let spec = ImageSpec { image: container.image.to_string(), ..ImageSpec::default() };
    let image = client.image(&spec).await?.context("an image")?;
    let pod_ips = if pod.spec.host_network { vec![] } else { vec![POD_ADDRESS.to_owned()] };
    let mut facts = ContainerSetupInputs {
        image_ref: image.id.clone(),
        image,
        pod_ips,
        volumes: volumes(pod, &dir),
        termination_file: Some(format!("{dir}/containers/{}/x", container.name)),
        hosts_file: Some(format!("{dir}/etc-hosts")),
        ..ContainerSetupInputs::default()
    };
    let env =
        environment::make(&environment::EnvironmentSource { pod, container, node, facts: &facts })?;
    for wanted in mounts::wanted_sub_paths(container, &facts, &env)? {
        let place = wanted.mount_index;
        let pinned = format!("{dir}/volume-subpaths/{}/{}/{place}", wanted.volume, container.name);
        facts.sub_paths.insert(place, pinned);
    }
    Ok(facts)
}

fn volumes(pod: &Pod, dir: &str) -> BTreeMap<String, ReadyVolume> {
    let ready = pod.spec.volumes.iter().map(|volume| {
        let path = match &volume.source {
            Some(VolumeSource::HostPath(host)) => host.path.to_string(),
            _ => format!("{dir}/volumes/kubernetes.io~empty-dir/{}", volume.name),
        };
        let is_own = matches!(volume.source, Some(VolumeSource::EmptyDir(_)));
        let volume_of = ReadyVolume { path, selinux_relabel: is_own, ..ReadyVolume::default() };
        (volume.name.to_string(), volume_of)
    });
    ready.collect()
}
