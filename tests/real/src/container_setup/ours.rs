//! The agent's side: the same pods through its decisions and its client.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use container_setup::inputs::{ContainerFacts, NodeFacts, PodFacts, ReadyVolume};
use container_setup::{container, environment, mounts, resolv_conf, sandbox};
use cri_client::{CallLimits, CriClient, Transport};
use cri_wire::v1::image_service_server::ImageServiceServer;
use cri_wire::v1::runtime_service_server::RuntimeServiceServer;
use document::problem::Origin;
use node_testkit::bed::NODE_ADDRESS;
use pod_manifest::static_pod::SourceKind;
use pod_manifest::{PodGates, StaticPodSource, Strictness, read_static_pods};
use pod_model::pod::{Container, Pod, VolumeSource};
use ports::pod_runtime::PodRuntime;
use ports::runtime_objects::{HandlerFeatures, ImageSpec};

use super::pods::{NODE, RESOLV_CONF, RUNNING, Sample, WAITING, uid};
use super::recorder::{POD_ADDRESS, Recorder};
use super::{MachineNote, Places, without_chance};

type Told = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// The agent's requests for every pod that reaches Running, on a machine with these properties.
pub async fn record(machine: &MachineNote, places: &Places) -> Result<Told> {
    let node = node(machine, places)?;
    let mut told = Told::new();
    for (number, sample) in RUNNING.iter().enumerate() {
        let recorder = Recorder::default();
        let client = client(&recorder);
        let pod = read(sample, number)?;
        run(&client, &pod, &node, places).await.context(sample.name)?;
        let (sandbox, containers) = recorder.of_pod(&uid(number)).context("nothing was told")?;
        told.insert(sample.name.to_owned(), without_chance(sandbox, containers, places));
    }
    Ok(told)
}

/// The waiting reason of the containers that cannot be set up.
pub async fn waiting(machine: &MachineNote, places: &Places) -> Result<BTreeMap<String, String>> {
    let node = node(machine, places)?;
    let client = client(&Recorder::default());
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

fn client(recorder: &Recorder) -> CriClient {
    let runtime = Transport::in_process("recorder", RuntimeServiceServer::new(recorder.clone()));
    let images = Transport::in_process("recorder", ImageServiceServer::new(recorder.clone()));
    CriClient::over(runtime, images, CallLimits::default())
}

fn node(machine: &MachineNote, places: &Places) -> Result<NodeFacts> {
    let mut node = NodeFacts {
        node_ips: vec![NODE_ADDRESS.parse().context("the node's address")?],
        pod_logs_directory: places.logs.clone(),
        ..NodeFacts::default()
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

fn read(sample: &Sample, number: usize) -> Result<Pod> {
    let source = StaticPodSource {
        node_name: NODE,
        kind: SourceKind::File,
        strictness: Strictness::Strict,
        gates: PodGates::default(),
    };
    let manifest = sample.manifest(number);
    let read = read_static_pods(manifest.as_bytes(), &Origin::Default, &source);
    let mut pods = read.pods.into_iter();
    pods.next().with_context(|| format!("{}: {:?}", sample.name, read.problems))
}

async fn run(client: &CriClient, pod: &Pod, node: &NodeFacts, places: &Places) -> Result<()> {
    let cgroup = container_setup::cgroups::of_pod(&[], pod);
    let pod_facts = PodFacts {
        // Without an API server the reference takes no handler to be able to do anything.
        handler: HandlerFeatures::default(),
        cgroup_parent: format!("/{}", cgroup.join("/")),
        ..PodFacts::default()
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
    node: &NodeFacts,
    places: &Places,
) -> Result<ContainerFacts> {
    let folder = format!("{}/pods/{}", places.root, pod.metadata.uid);
    let spec = ImageSpec { image: container.image.to_string(), ..ImageSpec::default() };
    let image = client.image(&spec).await?.context("an image")?;
    let pod_ips = if pod.spec.host_network { vec![] } else { vec![POD_ADDRESS.to_owned()] };
    let mut facts = ContainerFacts {
        image_ref: image.id.clone(),
        image,
        pod_ips,
        volumes: volumes(pod, &folder),
        termination_file: Some(format!("{folder}/containers/{}/x", container.name)),
        hosts_file: Some(format!("{folder}/etc-hosts")),
        ..ContainerFacts::default()
    };
    let env = environment::make(&environment::Source { pod, container, node, facts: &facts })?;
    for wanted in mounts::wanted_sub_paths(container, &facts, &env)? {
        let place = wanted.mount_index;
        let pinned =
            format!("{folder}/volume-subpaths/{}/{}/{place}", wanted.volume, container.name);
        facts.sub_paths.insert(place, pinned);
    }
    Ok(facts)
}

fn volumes(pod: &Pod, folder: &str) -> BTreeMap<String, ReadyVolume> {
    let ready = pod.spec.volumes.iter().map(|volume| {
        let path = match &volume.source {
            Some(VolumeSource::HostPath(host)) => host.path.to_string(),
            _ => format!("{folder}/volumes/kubernetes.io~empty-dir/{}", volume.name),
        };
        let is_own = matches!(volume.source, Some(VolumeSource::EmptyDir(_)));
        let volume_of = ReadyVolume { path, selinux_relabel: is_own, ..ReadyVolume::default() };
        (volume.name.to_string(), volume_of)
    });
    ready.collect()
}
