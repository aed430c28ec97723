//! Registration of CSI drivers against a cluster: two drivers at once, two of one name, faults of the
//! API server, an earlier node's CSINode.

use super::*;
use cluster_fake::FakeCluster;
use ports::ApiTime;
use ports::cluster_api::ObjectPath;
use ports::plugins::{PluginCallError, PluginFuture};
use serde_json::{Value, json};

/// Drivers by endpoints.
#[derive(Default)]
struct ScriptedDrivers {
    infos: Mutex<BTreeMap<String, CsiNodeInfo>>,
    /// Calls that fail before the next one succeeds.
    failures: Mutex<u32>,
}

impl CsiDrivers for ScriptedDrivers {
    fn node_info<'a>(&'a self, endpoint: &'a str) -> PluginFuture<'a, CsiNodeInfo> {
        Box::pin(async move {
            if endpoint == "/hangs" {
                std::future::pending::<()>().await;
            }
            let error = PluginCallError::Failed {
                call: "NodeGetInfo",
                socket: endpoint.to_owned(),
                code: "Unavailable".to_owned(),
                message: "not yet".to_owned(),
            };
            let mut failures = self.failures.lock().expect("not poisoned");
            if *failures > 0 {
                *failures -= 1;
                return Err(error);
            }
            let infos = self.infos.lock().expect("not poisoned");
            infos.get(endpoint).cloned().ok_or(error)
        })
    }
}

struct Bench {
    cluster: FakeCluster,
    drivers: Arc<ScriptedDrivers>,
    csi: Arc<CsiRegistration>,
}

impl Bench {
    fn new() -> Self {
        let cluster = FakeCluster::new(ApiTime::from_nanos(0));
        cluster.put(&ObjectPath::node("worker"), json!({ "metadata": { "name": "worker" } }));
        let drivers = Arc::new(ScriptedDrivers::default());
        let api = Arc::new(cluster.client("csi"));
        let csi = Arc::new(CsiRegistration::new(
            drivers.clone(),
            Some(api),
            "worker",
            watch::Sender::new(0),
        ));
        Self { cluster, drivers, csi }
    }

    fn driver(&self, endpoint: &str, max_volumes: i64, topology: &[(&str, &str)]) {
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let info = CsiNodeInfo {
            node_id: format!("id of {endpoint}"),
            max_volumes,
            topology: topology.iter().map(pair).collect(),
        };
        self.drivers.infos.lock().expect("not poisoned").insert(endpoint.to_owned(), info);
    }

    fn node(&self) -> Value {
        self.cluster.get(&ObjectPath::node("worker")).expect("a node")
    }

    fn node_ids(&self) -> Value {
        let text = &self.node()["metadata"]["annotations"]["csi.volume.kubernetes.io/nodeid"];
        text.as_str().map_or(Value::Null, |text| serde_json::from_str(text).expect("JSON"))
    }

    /// Name and node id of each driver.
    fn listed(&self) -> Vec<(String, String)> {
        let csi_node = self.cluster.get(&ObjectPath::csi_node("worker")).expect("a CSINode");
        let drivers = csi_node["spec"]["drivers"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut listed: Vec<_> =
            drivers.iter().map(|it| (text(&it["name"]), text(&it["nodeID"]))).collect();
        listed.sort();
        listed
    }
}

fn plugin(name: &str, endpoint: &str, version: &str) -> PluginDescription {
    PluginDescription {
        plugin_type: PLUGIN_TYPE.to_owned(),
        name: name.to_owned(),
        endpoint: endpoint.to_owned(),
        versions: vec![version.to_owned()],
    }
}

fn pair(name: &str, id: &str) -> (String, String) {
    (name.to_owned(), id.to_owned())
}

#[tokio::test(start_paused = true)]
async fn two_drivers_at_once_are_both_there_and_one_leaves() {
    let bench = Bench::new();
    bench.driver("/disks", 8, &[("zone", "a")]);
    bench.driver("/files", 0, &[]);
    let (disks, files) = (plugin("disks", "/disks", "1.0.0"), plugin("files", "/files", "1.0.0"));
    let (one, two) =
        tokio::join!(bench.csi.register("/r/1", &disks), bench.csi.register("/r/2", &files));
    assert_eq!((one, two), (Ok(()), Ok(())));
    assert_eq!(bench.node_ids(), json!({ "disks": "id of /disks", "files": "id of /files" }));
    assert_eq!(bench.node()["metadata"]["labels"]["zone"], "a");
    assert_eq!(bench.listed(), [pair("disks", "id of /disks"), pair("files", "id of /files")]);
    let csi_node = bench.cluster.get(&ObjectPath::csi_node("worker")).expect("a CSINode");
    let owner = &csi_node["metadata"]["ownerReferences"][0];
    assert_eq!(owner["uid"], bench.node()["metadata"]["uid"]);
    assert_eq!(bench.csi.deregister("/r/1", &disks).await, Ok(()));
    assert_eq!(bench.node_ids(), json!({ "files": "id of /files" }));
    assert_eq!(bench.listed(), [pair("files", "id of /files")]);
    assert_eq!(bench.csi.held(), [("/r/2".to_owned(), files)]);
}

#[tokio::test(start_paused = true)]
async fn of_one_name_the_higher_version_is_used_until_it_goes() {
    let bench = Bench::new();
    bench.driver("/old", 0, &[]);
    bench.driver("/new", 0, &[]);
    let (old, new) = (plugin("disks", "/old", "1.0.0"), plugin("disks", "/new", "1.1.0"));
    assert_eq!(bench.csi.register("/r/old", &old).await, Ok(()));
    let refused = bench.csi.validate("/r/other", &old).expect_err("the same version");
    assert!(refused.contains("\"1.0.0\" at socket /r/old"), "{refused}");
    assert_eq!(bench.csi.validate("/r/old", &old), Ok(()), "the same socket");
    assert_eq!(bench.csi.validate("/r/new", &new), Ok(()));
    assert_eq!(bench.csi.register("/r/new", &new).await, Ok(()));
    assert_eq!(bench.listed(), [pair("disks", "id of /new")]);
    assert_eq!(bench.csi.deregister("/r/new", &new).await, Ok(()));
    assert_eq!(bench.listed(), [pair("disks", "id of /old")], "the entry stays");
    assert_eq!(bench.csi.deregister("/r/old", &old).await, Ok(()));
    assert_eq!(bench.listed(), []);
    assert_eq!(bench.node_ids(), Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_answers_late_is_asked_again_and_one_that_hangs_fails() {
    let bench = Bench::new();
    bench.driver("/disks", 0, &[]);
    *bench.drivers.failures.lock().expect("not poisoned") = 3;
    assert_eq!(bench.csi.register("/r/1", &plugin("disks", "/disks", "1.0.0")).await, Ok(()));
    let hanging = plugin("hangs", "/hangs", "1.0.0");
    let error = bench.csi.register("/r/2", &hanging).await.expect_err("hangs");
    assert_eq!(error, "NodeGetInfo at /hangs: no answer within 120 s");
    assert_eq!(bench.csi.held().len(), 1, "nothing is left of it");
    assert_eq!(bench.listed(), [pair("disks", "id of /disks")]);
}

#[tokio::test(start_paused = true)]
async fn conflicts_and_lost_answers_of_the_api_server_are_overcome() {
    let bench = Bench::new();
    bench.driver("/disks", 0, &[]);
    let client = bench.cluster.client("flaky");
    client.faults.turn(|faults| (faults.conflict_every, faults.lose_answer_every) = (2, 3));
    let csi = CsiRegistration::new(
        bench.drivers.clone(),
        Some(Arc::new(client)),
        "worker",
        watch::Sender::new(0),
    );
    let disks = plugin("disks", "/disks", "1.0.0");
    for _ in 0..5 {
        assert_eq!(csi.register("/r/1", &disks).await, Ok(()));
        assert_eq!(bench.listed(), [pair("disks", "id of /disks")]);
        assert_eq!(csi.deregister("/r/1", &disks).await, Ok(()));
        assert_eq!((bench.listed(), bench.node_ids()), (Vec::new(), Value::Null));
    }
}

#[tokio::test(start_paused = true)]
async fn the_csi_node_of_an_earlier_node_is_replaced_and_readiness_waits_for_it() {
    let bench = Bench::new();
    let earlier = json!({
        "metadata": { "name": "worker", "ownerReferences": [
            { "apiVersion": "v1", "kind": "Node", "name": "worker", "uid": "earlier" }
        ] },
        "spec": { "drivers": [{ "name": "stale", "nodeID": "x" }] },
    });
    bench.cluster.put(&ObjectPath::csi_node("worker"), earlier);
    let not_yet = Some("CSINode is not yet initialized".to_owned());
    assert_eq!(bench.csi.initialization_error(), not_yet);
    initialize_csi_node(bench.csi.clone()).await;
    assert_eq!(bench.csi.initialization_error(), None);
    assert_eq!(bench.listed(), []);
    let standalone =
        CsiRegistration::new(bench.drivers.clone(), None, "worker", watch::Sender::new(0));
    assert_eq!(standalone.initialization_error(), None);
    bench.driver("/disks", 0, &[]);
    assert_eq!(standalone.register("/r/1", &plugin("disks", "/disks", "1.0.0")).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn limits_are_asked_again_in_the_period_of_the_driver() {
    let bench = Bench::new();
    bench.driver("/disks", 3, &[]);
    let object = json!({ "metadata": { "name": "disks" }, "spec": { "nodeAllocatableUpdatePeriodSeconds": 30 } });
    bench.cluster.put(&ObjectPath::csi_driver("disks"), object);
    let task = tokio::spawn(update_limits(bench.csi.clone()));
    assert_eq!(bench.csi.register("/r/1", &plugin("disks", "/disks", "1.0.0")).await, Ok(()));
    let count = || {
        let csi_node = bench.cluster.get(&ObjectPath::csi_node("worker")).expect("a CSINode");
        csi_node["spec"]["drivers"][0]["allocatable"]["count"].as_i64()
    };
    assert_eq!(count(), Some(3));
    bench.driver("/disks", 5, &[]);
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert_eq!(count(), Some(3));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(count(), Some(5));
    task.abort();
}

#[test]
fn names_of_drivers_are_domain_names() {
    for name in ["disks", "disks.csi.example.com", "a", "A-1.b_c"] {
        assert!(is_driver_name(name), "{name:?}");
    }
    for name in ["", ".a", "a.", "a/b", "../x", "a b", &"x".repeat(64)] {
        assert!(!is_driver_name(name), "{name:?}");
    }
}
