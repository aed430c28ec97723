//! The store on a directory of its own, with an authority that signs its requests.

use super::*;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType, SignatureAlgorithm,
};
use rustls::pki_types::CertificateSigningRequestDer;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;
use x509_cert::der::Decode as _;
use x509_cert::request::CertReq;

/// The public key of a request.
struct RequestKey(Vec<u8>);

impl PublicKeyData for RequestKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }
    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

struct Signer {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Signer {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("signed").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Signs a request for this long, with the authority in the chain.
    fn sign(&self, request: &SigningRequest, life: Duration) -> Vec<u8> {
        let der = CertificateSigningRequestDer::from_pem_slice(request.pem.as_bytes());
        let parsed = CertReq::from_der(&der.expect("PEM")).expect("a signing request");
        let subject = parsed.info.subject.to_string();
        assert_eq!(subject, "CN=system:node:n,O=system:nodes");
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "system:node:n");
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        for name in template().dns_names {
            params.subject_alt_names.push(SanType::DnsName(Ia5String::try_from(name).expect("ok")));
        }
        let ips = template().ip_addresses;
        params.subject_alt_names.extend(ips.into_iter().map(SanType::IpAddress));
        let now = SystemTime::now();
        (params.not_before, params.not_after) = (now.into(), (now + life).into());
        let key = RequestKey(parsed.info.public_key.subject_public_key.raw_bytes().to_vec());
        let leaf = params.signed_by(&key, &self.issuer).expect("signed").pem();
        format!("a line that is no PEM\n{leaf}{}", self.pem).into_bytes()
    }
}

const HOUR: Duration = Duration::from_hours(1);

fn now() -> ApiTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    ApiTime::from_nanos(i64::try_from(since.as_nanos()).expect("fits"))
}

fn template() -> CertificateTemplate {
    CertificateTemplate {
        common_name: "system:node:n".to_owned(),
        organizations: vec!["system:nodes".to_owned()],
        dns_names: vec!["n".to_owned(), "n.example".to_owned()],
        ip_addresses: vec!["10.0.0.1".parse().expect("IP"), "2001:db8::1".parse().expect("IP")],
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a directory");
    let name = |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
    let mut names: Vec<String> =
        entries.map(|entry| name(entry).into_string().expect("text")).collect();
    names.sort();
    names
}

#[tokio::test]
async fn an_issued_certificate_is_in_use_with_its_key_and_all_that_was_asked_for() {
    let home = tempfile::tempdir().expect("a directory");
    let store = CertificateDir::client(&home.path().join("pki"));
    assert_eq!(store.current().await, Ok(None));
    let request = store.request(&template()).await.expect("a request");
    let facts = store.save(Signer::new().sign(&request, HOUR)).await.expect("saved");
    assert_eq!(facts.subject, template());
    assert_eq!(store.current().await, Ok(Some(facts)));
    let dir = home.path().join("pki");
    let [dated, current] = &names(&dir)[..] else { panic!("{:?}", names(&dir)) };
    assert_eq!(current, "kubelet-client-current.pem");
    assert!(dated.starts_with("kubelet-client-20") && dated.len() == 38, "{dated}");
    assert_eq!(fs::read_link(dir.join(current)).expect("a link"), dir.join(dated));
    let mode = fs::metadata(dir.join(dated)).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = fs::read_to_string(store.current_path()).expect("text");
    let heads: Vec<&str> = text.lines().filter(|line| line.starts_with("-----BEGIN")).collect();
    let certificate = "-----BEGIN CERTIFICATE-----";
    assert_eq!(heads, [certificate, certificate, "-----BEGIN PRIVATE KEY-----"]);
    assert!(!text.contains("no PEM"));
}

#[tokio::test]
async fn a_key_is_kept_until_its_certificate_is_saved_or_it_is_discarded() {
    let home = tempfile::tempdir().expect("a directory");
    let store = CertificateDir::serving(home.path());
    let first = store.request(&template()).await.expect("a request");
    // The same after a restart; another for another subject, with the same key.
    let again = CertificateDir::serving(home.path()).request(&template()).await.expect("a request");
    assert_eq!(again.digest, first.digest);
    let other = CertificateTemplate { dns_names: vec!["n".to_owned()], ..template() };
    let other = store.request(&other).await.expect("a request");
    assert_ne!(other.digest, first.digest);
    assert_eq!(names(home.path()), ["kubelet-server.key.tmp"]);
    store.save(Signer::new().sign(&again, HOUR)).await.expect("saved");
    let next = store.request(&template()).await.expect("a request");
    assert_ne!(next.digest, first.digest);
    store.discard().await.expect("discarded");
    store.discard().await.expect("nothing to discard");
    let after = store.request(&template()).await.expect("a request");
    assert_ne!(after.digest, next.digest);
}

#[tokio::test]
async fn a_certificate_for_another_key_is_never_put_to_use() {
    let home = tempfile::tempdir().expect("a directory");
    let store = CertificateDir::client(home.path());
    let mine = store.request(&template()).await.expect("a request");
    let theirs = CertificateDir::serving(home.path()).request(&template()).await.expect("another");
    let signer = Signer::new();
    for wrong in [signer.sign(&theirs, HOUR), b"nothing".to_vec(), Vec::new()] {
        let refused = store.save(wrong).await;
        assert!(matches!(refused, Err(CertificateStoreError::Unusable { .. })), "{refused:?}");
    }
    assert_eq!(store.current().await, Ok(None));
    // The key is still there for the right one.
    store.save(signer.sign(&mine, HOUR)).await.expect("saved");
    let error = store.save(signer.sign(&mine, HOUR)).await.expect_err("its key is gone");
    assert!(error.to_string().contains("kubelet-client.key.tmp"), "{error}");
}

#[tokio::test]
async fn what_a_reference_kubelet_left_is_used() {
    let home = tempfile::tempdir().expect("a directory");
    // Its key has another form of PEM, and its request is under way.
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
    fs::write(home.path().join("kubelet-client.key.tmp"), key.serialize_pem()).expect("written");
    let store = CertificateDir::client(home.path());
    let request = store.request(&template()).await.expect("a request");
    let certificate = Signer::new().sign(&request, HOUR);
    // A replacement that was interrupted after the link was made.
    let mut both = certificate.clone();
    both.extend(key.serialize_pem().into_bytes());
    let dated = home.path().join("kubelet-client-2026-01-02-03-04-05.pem");
    fs::write(&dated, both).expect("written");
    std::os::unix::fs::symlink(&dated, home.path().join("kubelet-client-updated.pem"))
        .expect("a link");
    assert_eq!(store.prepare(None, now()), Ok(false));
    let facts = store.current().await.expect("readable").expect("a certificate");
    assert_eq!(facts.subject, template());
    assert_eq!(fs::read_link(store.current_path()).expect("a link"), dated);
}

#[tokio::test]
async fn a_configured_pair_stands_in_while_there_is_no_valid_one() {
    let home = tempfile::tempdir().expect("a directory");
    let signer = Signer::new();
    let pair = |name: &str| {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &signer.issuer).expect("signed").pem();
        (certificate, key.serialize_pem())
    };
    let common_name =
        |facts: Option<CertificateFacts>| facts.map(|facts| facts.subject.common_name);
    // Files of another place are read there, and replaced here.
    let (certificate, key) = pair("from files");
    let (certificate_file, key_file) = (home.path().join("a.crt"), home.path().join("a.key"));
    fs::write(&certificate_file, certificate).expect("written");
    fs::write(&key_file, key).expect("written");
    let dir = home.path().join("pki");
    let store = CertificateDir::client(&dir).with_files(certificate_file, key_file);
    assert_eq!(store.prepare(None, now()), Ok(false));
    let found = store.current().await.expect("readable");
    assert_eq!(common_name(found).as_deref(), Some("from files"));
    // A pair from a kubeconfig is put to use once.
    let (certificate, key) = pair("from a kubeconfig");
    let configured = Some((certificate.as_bytes(), key.as_bytes()));
    let store = CertificateDir::client(&dir);
    assert_eq!(store.prepare(configured, now()), Ok(true));
    assert_eq!(store.prepare(configured, now()), Ok(false));
    let found = store.current().await.expect("readable");
    assert_eq!(common_name(found).as_deref(), Some("from a kubeconfig"));
    // An expired one gives way to it.
    let request = store.request(&template()).await.expect("a request");
    let facts = store.save(signer.sign(&request, HOUR)).await.expect("saved");
    assert_eq!(store.prepare(configured, now()), Ok(false));
    let later = ApiTime::from_nanos(facts.not_after.nanos() + 1);
    assert_eq!(store.prepare(configured, later), Ok(true));
}

#[tokio::test]
async fn a_file_in_the_place_of_the_link_is_not_replaced() {
    let home = tempfile::tempdir().expect("a directory");
    let store = CertificateDir::client(home.path());
    let request = store.request(&template()).await.expect("a request");
    fs::write(store.current_path(), "another's").expect("written");
    let refused = store.save(Signer::new().sign(&request, HOUR)).await.expect_err("refused");
    assert!(refused.to_string().contains("expected a symlink"), "{refused}");
    assert_eq!(fs::read_to_string(store.current_path()).expect("text"), "another's");
    let unusable = store.current().await.expect_err("no certificate in it");
    assert!(matches!(unusable, CertificateStoreError::Unusable { .. }), "{unusable:?}");
}
