//! Both versions of the API over a real socket, and the rate limit.

use plugin_wire::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
use plugin_wire::pod_resources_v1alpha1::pod_resources_lister_client as alpha_client;
use ports::plugins::ReportedContainer;

use super::*;

#[derive(Default)]
struct SinglePod {
    counted: Mutex<Vec<PodResourcesRequest>>,
}

fn devices(id: &str, numa_nodes: &[i64]) -> ReportedDevices {
    ReportedDevices {
        resource: "example.com/gpu".to_owned(),
        ids: vec![id.to_owned()],
        numa_nodes: numa_nodes.to_vec(),
    }
}

impl PodResourcesApi for SinglePod {
    fn count(&self, request: PodResourcesRequest) {
        self.counted.lock().expect("not poisoned").push(request);
    }

    fn pods(&self) -> Vec<ReportedPod> {
        let container = |name: &str, sidecar, id| ReportedContainer {
            name: name.to_owned(),
            sidecar,
            devices: vec![devices(id, &[0])],
        };
        vec![ReportedPod {
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            containers: vec![container("side", true, "a"), container("main", false, "b")],
        }]
    }

    fn allocatable(&self) -> Vec<ReportedDevices> {
        vec![devices("a", &[]), devices("b", &[1])]
    }

    fn pod(&self, namespace: &str, name: &str) -> Option<ReportedPod> {
        self.pods().into_iter().find(|it| it.namespace == namespace && it.name == name)
    }
}

#[tokio::test]
async fn both_versions_answer_and_requests_above_the_rate_are_refused() {
    let temporary = tempfile::tempdir().expect("a directory");
    let path = temporary.path().join("pod-resources/kubelet.sock");
    let socket = Arc::new(PodResourcesSocket::new(&path));
    let api = Arc::new(SinglePod::default());
    let served = api.clone();
    let serving = tokio::spawn(async move { socket.serve(served).await });
    let channel = crate::call::connect(path.to_str().expect("UTF-8")).await.expect("connected");
    let mut client = PodResourcesListerClient::new(channel.clone());
    let pods = client.list(v1::ListPodResourcesRequest {}).await.expect("a list").into_inner();
    let containers = &pods.pod_resources[0].containers;
    assert_eq!(containers.iter().map(|it| &*it.name).collect::<Vec<_>>(), ["side", "main"]);
    assert_eq!(containers[0].devices[0].device_ids, ["a"]);
    let allocatable = client.get_allocatable_resources(v1::AllocatableResourcesRequest {}).await;
    let allocatable = allocatable.expect("an answer").into_inner().devices;
    let nodes = |it: &v1::ContainerDevices| it.topology.as_ref().map(|it| it.nodes[0].id);
    assert_eq!(allocatable.iter().map(nodes).collect::<Vec<_>>(), [None, Some(1)]);
    let get = |name: &str| v1::GetPodResourcesRequest {
        pod_name: name.to_owned(),
        pod_namespace: "default".to_owned(),
    };
    assert!(
        client.get(get("web")).await.expect("it is there").into_inner().pod_resources.is_some()
    );
    let missing = client.get(get("other")).await.expect_err("it is not");
    assert_eq!(missing.message(), "pod other in namespace default not found");

    let mut first = alpha_client::PodResourcesListerClient::new(channel);
    let pods = first.list(v1alpha1::ListPodResourcesRequest {}).await.expect("a list").into_inner();
    let names: Vec<&str> = pods.pod_resources[0].containers.iter().map(|it| &*it.name).collect();
    assert_eq!(names, ["main"]);
    let counted = [
        PodResourcesRequest::List,
        PodResourcesRequest::Allocatable,
        PodResourcesRequest::Get { found: true },
        PodResourcesRequest::Get { found: false },
        PodResourcesRequest::AlphaList,
    ];
    assert_eq!(*api.counted.lock().expect("not poisoned"), counted);
    serving.abort();
}

#[tokio::test]
async fn a_burst_of_ten_passes_and_tokens_come_back() {
    let limit = RequestRate::new();
    let mut passed = 0;
    while limit.take().is_ok() {
        passed += 1;
        assert!(passed < 100, "without a limit");
    }
    assert!((10..=12).contains(&passed), "{passed}");
    assert_eq!(
        limit.take().map_err(|it| it.message().to_owned()),
        Err("rejected by rate limit".to_owned())
    );
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert_eq!(limit.take().map_err(|it| it.to_string()), Ok(()));
}
