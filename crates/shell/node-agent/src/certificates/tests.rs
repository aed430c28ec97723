//! Both tasks on a cluster that approves, denies, forgets and is away; time is paused.

use super::client::{self, ClientTask};
use super::serving::{self, ServingTask};
use super::*;
use crate::metrics::names;
use cluster_fake::{FakeClient, FakeCluster};
use node_certificates::client_template;
use ports::certificates::StoreFuture;
use ports::cluster_api::{ObjectPath, Resource};
use ports::cluster_objects::NodeAddress;
use ports::{ApiTime, CertificateStoreError, CertificateTemplate, SigningRequest};
use serde_json::json;
use std::sync::Mutex;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::sleep;

const START: i64 = 1_700_000_000_000_000_000;
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// A store in memory. Its certificates are `KEY BEGIN END`, in nanoseconds, and its requests `KEY`.
#[derive(Clone, Default)]
struct FakeStore(Arc<Mutex<StoreState>>);

#[derive(Default)]
struct StoreState {
    current: Option<CertificateFacts>,
    kept_key: Option<u32>,
    keys: u32,
    template: CertificateTemplate,
    saves: u32,
}

impl FakeStore {
    fn with(from: i64, to: i64) -> Self {
        let store = Self::default();
        store.0.lock().unwrap().current = Some(CertificateFacts {
            subject: client_template("n"),
            not_before: ApiTime::from_nanos(from),
            not_after: ApiTime::from_nanos(to),
        });
        store
    }

    fn saves(&self) -> u32 {
        self.0.lock().unwrap().saves
    }
}

fn done<'a, T: Send + 'a>(result: Result<T, CertificateStoreError>) -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(result))
}

impl CertificateStore for FakeStore {
    fn current(&self) -> StoreFuture<'_, Option<CertificateFacts>> {
        done(Ok(self.0.lock().unwrap().current.clone()))
    }
    fn request<'a>(&'a self, template: &'a CertificateTemplate) -> StoreFuture<'a, SigningRequest> {
        let mut state = self.0.lock().unwrap();
        let key = state.kept_key.unwrap_or(state.keys + 1);
        state.keys = state.keys.max(key);
        state.kept_key = Some(key);
        state.template = template.clone();
        let names = template.dns_names.join("-");
        done(Ok(SigningRequest { pem: key.to_string(), digest: format!("{key}{names}") }))
    }
    fn save(&self, certificate: Vec<u8>) -> StoreFuture<'_, CertificateFacts> {
        let mut state = self.0.lock().unwrap();
        let text = String::from_utf8(certificate).unwrap();
        let numbers: Vec<i64> = text.split(' ').map(|number| number.parse().unwrap()).collect();
        if state.kept_key.map(i64::from) != Some(numbers[0]) {
            return done(Err(CertificateStoreError::Unusable { cause: "another key".to_owned() }));
        }
        let facts = CertificateFacts {
            subject: state.template.clone(),
            not_before: ApiTime::from_nanos(numbers[1]),
            not_after: ApiTime::from_nanos(numbers[2]),
        };
        state.current = Some(facts.clone());
        state.kept_key = None;
        state.saves += 1;
        done(Ok(facts))
    }
    fn discard(&self) -> StoreFuture<'_, ()> {
        self.0.lock().unwrap().kept_key = None;
        done(Ok(()))
    }
}

struct Fixture {
    cluster: FakeCluster,
    api: FakeClient,
    store: FakeStore,
    inputs: Arc<CertificateInputs>,
    node_object: watch::Sender<Option<Arc<NodeObject>>>,
}

impl Fixture {
    fn new(store: FakeStore) -> Self {
        let cluster = FakeCluster::new(ApiTime::from_nanos(START));
        let api = cluster.client("node");
        let node_object = watch::Sender::new(None);
        let inputs = Arc::new(CertificateInputs {
            api: Arc::new(api.clone()),
            node_name: "n".to_owned(),
            clock: AgentClock::starting_at(ApiTime::from_nanos(START)),
            metrics: Metrics::default(),
            node_object: node_object.subscribe(),
        });
        Self { cluster, api, store, inputs, node_object }
    }

    fn certificate(
        &self,
        bootstrap: Option<&FakeClient>,
    ) -> (ManagedClientCertificate, LostReceiver) {
        let (lost, receiver) = watch::channel(None);
        let certificate = ManagedClientCertificate {
            store: Arc::new(self.store.clone()),
            bootstrap: bootstrap.map(|api| Arc::new(api.clone()) as Arc<dyn ClusterApi>),
            rotates: true,
            replace_now: false,
            lost,
        };
        (certificate, receiver)
    }

    fn start_client(&self, certificate: ManagedClientCertificate) -> JoinHandle<()> {
        let current = CurrentCertificate::new(None);
        let task = ClientTask::new(certificate, self.inputs.clone(), current);
        tokio::spawn(client::keep_current(Arc::new(task)))
    }

    fn start_serving(&self) -> JoinHandle<()> {
        let current = CurrentCertificate::new(None);
        let store = Arc::new(self.store.clone());
        let task = ServingTask::new(store, self.inputs.clone(), current);
        tokio::spawn(serving::keep_current(Arc::new(task)))
    }

    fn set_addresses(&self, addresses: &[(&str, &str)]) {
        let mut node_object = NodeObject::default();
        let address = |(kind, text): &(&str, &str)| NodeAddress {
            kind: (*kind).to_owned(),
            address: (*text).to_owned(),
        };
        node_object.status.addresses = addresses.iter().map(address).collect();
        self.node_object.send_replace(Some(Arc::new(node_object)));
    }

    /// The names of the requests that the cluster has been sent, and their senders.
    fn requests(&self) -> Vec<(String, String)> {
        let created = self.cluster.log().into_iter().filter(|logged| {
            logged.succeeded && logged.path.resource == Resource::SIGNING_REQUESTS
        });
        let created = created.filter(|logged| logged.body.is_some());
        created.map(|logged| (logged.client, logged.path.name)).collect()
    }

    fn csr(name: &str) -> ObjectPath {
        let name = name.to_owned();
        ObjectPath { resource: Resource::SIGNING_REQUESTS, namespace: None, name }
    }

    /// Signs a request with a certificate that lives from now.
    fn approve(&self, name: &str, life: Duration) {
        self.cluster.edit(&Self::csr(name), |object| {
            let key = object["spec"]["request"].as_str().unwrap().to_owned();
            // One decimal digit in base64.
            let key = (1..9).find(|digit| encode(&digit.to_string()) == key).unwrap();
            let begin = self.inputs.clock.now().nanos();
            let end = begin + i64::try_from(life.as_nanos()).unwrap();
            object["status"] = json!({
                "conditions": [{"type": "Approved"}],
                "certificate": encode(&format!("{key} {begin} {end}")),
            });
        });
    }

    fn deny(&self, name: &str) {
        self.cluster.edit(&Self::csr(name), |object| {
            object["status"] = json!({"conditions": [{"type": "Denied", "reason": "No"}]});
        });
    }

    fn errors(&self, metric: &'static crate::metrics::Metric) -> f64 {
        self.inputs.metrics.families(&[metric])[0].samples[0].value
    }
}

type LostReceiver = watch::Receiver<Option<ShutdownReason>>;

/// Base64, of texts that are short.
fn encode(text: &str) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    for chunk in text.as_bytes().chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let index = usize::try_from(bits >> (18 - 6 * place) & 63).unwrap();
            encoded.push(if place <= chunk.len() { ALPHABET[index].into() } else { '=' });
        }
    }
    encoded
}

#[tokio::test(start_paused = true)]
async fn a_node_without_identity_gets_one_by_its_bootstrap_credentials_and_renews_it_itself() {
    let fixture = Fixture::new(FakeStore::default());
    let bootstrap = fixture.cluster.client("bootstrap");
    let (certificate, _lost) = fixture.certificate(Some(&bootstrap));
    let _task = fixture.start_client(certificate);
    sleep(MINUTE).await;
    let first = ("bootstrap".to_owned(), "node-csr-client-1".to_owned());
    assert_eq!(fixture.requests(), std::slice::from_ref(&first));
    fixture.approve("node-csr-client-1", HOUR * 10);
    sleep(MINUTE).await;
    assert_eq!(fixture.store.saves(), 1);
    assert!(fixture.errors(&names::CLIENT_RENEW_ERRORS) < 0.5);
    sleep(HOUR * 6).await;
    assert_eq!(fixture.requests(), std::slice::from_ref(&first));
    sleep(HOUR * 3).await;
    let second = ("node".to_owned(), "node-csr-client-2".to_owned());
    assert_eq!(fixture.requests(), [first, second]);
    fixture.approve("node-csr-client-2", HOUR * 10);
    sleep(MINUTE).await;
    assert_eq!(fixture.store.saves(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_pending_is_found_again_after_a_restart_and_after_long_waits() {
    let fixture = Fixture::new(FakeStore::default());
    let bootstrap = fixture.cluster.client("bootstrap");
    for _ in 0..3 {
        let (certificate, _lost) = fixture.certificate(Some(&bootstrap));
        let task = fixture.start_client(certificate);
        sleep(MINUTE * 40).await;
        task.abort();
    }
    assert_eq!(fixture.requests().len(), 1, "{:?}", fixture.requests());
    // The cluster forgets requests that are not approved.
    fixture.cluster.remove(&Fixture::csr("node-csr-client-1"));
    let (certificate, _lost) = fixture.certificate(Some(&bootstrap));
    let _task = fixture.start_client(certificate);
    sleep(MINUTE).await;
    fixture.approve("node-csr-client-1", HOUR);
    sleep(MINUTE).await;
    assert_eq!(fixture.store.saves(), 1);
}

#[tokio::test(start_paused = true)]
async fn after_a_denial_another_request_is_made() {
    let fixture = Fixture::new(FakeStore::default());
    let bootstrap = fixture.cluster.client("bootstrap");
    let (certificate, _lost) = fixture.certificate(Some(&bootstrap));
    let _task = fixture.start_client(certificate);
    sleep(MINUTE).await;
    fixture.deny("node-csr-client-1");
    sleep(MINUTE).await;
    assert_eq!(fixture.requests().last().unwrap().1, "node-csr-client-2");
    assert!(fixture.errors(&names::CLIENT_RENEW_ERRORS) > 0.5);
    // A certificate for a key that is not ours leads to another request, too.
    fixture.cluster.edit(&Fixture::csr("node-csr-client-2"), |object| {
        object["status"] = json!({
            "conditions": [{"type": "Approved"}],
            "certificate": encode("7 0 1"),
        });
    });
    sleep(MINUTE).await;
    assert_eq!(fixture.requests().last().unwrap().1, "node-csr-client-3");
    fixture.approve("node-csr-client-3", HOUR);
    sleep(MINUTE).await;
    assert_eq!(fixture.store.saves(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_rotation_a_certificate_is_requested_only_if_there_is_none() {
    let fixture = Fixture::new(FakeStore::default());
    let bootstrap = fixture.cluster.client("bootstrap");
    let (certificate, _lost) = fixture.certificate(Some(&bootstrap));
    let task = fixture.start_client(ManagedClientCertificate { rotates: false, ..certificate });
    sleep(MINUTE).await;
    fixture.approve("node-csr-client-1", HOUR);
    task.await.unwrap();
    assert_eq!(fixture.store.saves(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_certificate_from_the_configuration_is_replaced_at_once() {
    let end = START + i64::try_from((HOUR * 1000).as_nanos()).unwrap();
    let fixture = Fixture::new(FakeStore::with(START, end));
    let (certificate, _lost) = fixture.certificate(None);
    let _task = fixture.start_client(ManagedClientCertificate { replace_now: true, ..certificate });
    sleep(MINUTE).await;
    let asked = fixture.requests();
    assert_eq!(asked, [("node".to_owned(), "node-csr-client-1".to_owned())]);
    fixture.approve("node-csr-client-1", HOUR);
    sleep(MINUTE * 20).await;
    assert_eq!((fixture.store.saves(), fixture.requests().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_identity_that_is_lost_ends_the_agent_once_the_api_server_answers() {
    let hour = i64::try_from(HOUR.as_nanos()).unwrap();
    let fixture = Fixture::new(FakeStore::with(START, START + hour));
    fixture.api.faults.turn(|faults| faults.away = true);
    let (certificate, lost) = fixture.certificate(None);
    let _task = fixture.start_client(certificate);
    sleep(HOUR * 3).await;
    assert_eq!(*lost.borrow(), None, "the API server is away");
    assert!(fixture.errors(&names::CLIENT_RENEW_ERRORS) > 100.0);
    fixture.api.faults.reset();
    fixture.api.faults.turn(|faults| faults.unauthenticated = true);
    sleep(MINUTE).await;
    let reason = lost.borrow().clone().expect("a reason");
    assert!(reason.to_string().contains("has expired and the server is responsive"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn a_serving_certificate_is_for_the_addresses_of_the_node() {
    let fixture = Fixture::new(FakeStore::default());
    let task = fixture.start_serving();
    sleep(HOUR).await;
    fixture.set_addresses(&[("Hostname", "a")]);
    sleep(HOUR).await;
    assert_eq!(fixture.requests(), []);
    fixture.set_addresses(&[("Hostname", "a"), ("InternalIP", "10.0.0.1")]);
    sleep(MINUTE).await;
    // The name changes while the request is pending.
    fixture.set_addresses(&[("Hostname", "b"), ("InternalIP", "10.0.0.1")]);
    sleep(MINUTE).await;
    let names: Vec<String> = fixture.requests().into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["node-csr-serving-1a", "node-csr-serving-1b"]);
    fixture.approve("node-csr-serving-1b", HOUR * 10);
    sleep(MINUTE).await;
    assert_eq!(fixture.store.saves(), 1);
    // Nothing changes, then an address does: long before the certificate would be renewed.
    fixture.set_addresses(&[("Hostname", "b"), ("InternalIP", "10.0.0.1")]);
    sleep(HOUR).await;
    assert_eq!(fixture.requests().len(), 2);
    fixture.set_addresses(&[("Hostname", "b"), ("InternalIP", "10.0.0.2")]);
    sleep(MINUTE).await;
    fixture.approve("node-csr-serving-2b", HOUR * 10);
    sleep(MINUTE).await;
    assert_eq!(fixture.store.saves(), 2);
    let rotated = fixture.inputs.metrics.families(&[&names::SERVER_ROTATION]);
    let count = rotated[0].samples.iter().find(|sample| sample.suffix == "_count").unwrap();
    assert!((count.value - 1.0).abs() < 0.5, "{count:?}");
    drop(fixture.node_object);
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_metric_shows_how_long_the_certificate_is_valid() {
    let clock = AgentClock::starting_at(ApiTime::from_nanos(START));
    let current = CurrentCertificate::new(None);
    let metric = CertificateTtl::new(CertificatePurpose::Client, current.subscribe(), &clock);
    let line = || {
        let text = ports::metrics::text(metric.families());
        text.lines().last().unwrap_or_default().to_owned()
    };
    assert_eq!(line(), "kubelet_certificate_manager_client_ttl_seconds +Inf");
    current.send_replace(Some(CertificateFacts {
        subject: client_template("n"),
        not_before: ApiTime::from_nanos(START),
        not_after: ApiTime::from_nanos(START + 90_500_000_000),
    }));
    assert_eq!(line(), "kubelet_certificate_manager_client_ttl_seconds 90");
    sleep(MINUTE * 2).await;
    assert_eq!(line(), "kubelet_certificate_manager_client_ttl_seconds -29");
}
