//! Certificates given, created and kept.

use super::*;
use std::os::unix::fs::PermissionsExt as _;

fn made(dir: Option<&Path>) -> CertificateSource {
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    CertificateSource::SelfSigned { dir: dir.map(Path::to_owned), names }
}

fn settings(source: CertificateSource, suites: &[&str]) -> TlsSettings {
    let cipher_suites = suites.iter().map(|it| (*it).to_owned()).collect();
    TlsSettings { source, tls13_only: false, cipher_suites, client_authorities: None }
}

#[test]
fn a_made_certificate_is_kept_and_found_again() {
    let dir = tempfile::tempdir().expect("folder");
    let below = dir.path().join("certs");
    let first = CertificatePair::load(&made(Some(&below))).expect("made");
    let again = CertificatePair::load(&made(Some(&below))).expect("read");
    assert!(first == again);
    let mode = fs::metadata(below.join(SAVED_KEY)).expect("key").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let other = CertificatePair::load(&made(None)).expect("made");
    assert!(first != other);
}

#[test]
fn a_mismatched_certificate_and_key_are_refused() {
    let (one, other) = (
        CertificatePair::load(&made(None)).expect("one"),
        CertificatePair::load(&made(None)).expect("two"),
    );
    let plain = settings(made(None), &[]);
    assert!(server_config(&one, &plain, &[]).is_ok());
    let mixed = CertificatePair { certificate: one.certificate.clone(), key: other.key };
    assert!(server_config(&mixed, &plain, &[]).is_err());
    let empty = CertificatePair { certificate: Vec::new(), key: one.key.clone() };
    let error = server_config(&empty, &plain, &[]).expect_err("empty");
    assert!(error.contains("no certificate in it"), "{error}");
    let gone =
        CertificateSource::Files { certificate: "/nowhere/c".into(), key: "/nowhere/k".into() };
    assert!(CertificatePair::load(&gone).is_err_and(|error| error.contains("/nowhere/c")));
}

#[test]
fn suites_are_chosen_by_name() {
    let pair = CertificatePair::load(&made(None)).expect("made");
    let suites =
        ["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"];
    let config = server_config(&pair, &settings(made(None), &suites), &[]).expect("config");
    let named = config.crypto_provider().cipher_suites.iter();
    assert_eq!(named.filter(|suite| suite.tls13().is_none()).count(), 2);
    let old = server_config(&pair, &settings(made(None), &["TLS_RSA_WITH_RC4_128_SHA"]), &[]);
    assert!(old.is_err_and(|error| error.contains("RC4") && error.contains("expected some of")));
}

#[test]
fn the_kubelets_self_signed_pair_is_generated_once_and_never_partially() {
    let dir = tempfile::tempdir().expect("dir");
    let pki = dir.path().join("pki");
    let source =
        |host: &str| CertificateSource::Kubelet { dir: pki.clone(), host: host.to_owned() };
    let first = CertificatePair::load(&source("node-1")).expect("made");
    assert!(first == CertificatePair::load(&source("other")).expect("read"));
    assert!(server_config(&first, &settings(source("node-1"), &[]), &[]).is_ok());
    let mode = |name: &str| {
        let file = fs::metadata(pki.join(name)).expect("file");
        file.permissions().mode() & 0o777
    };
    assert_eq!((mode("kubelet.crt"), mode("kubelet.key")), (0o644, 0o600));
    // The certificate and its issuer.
    assert_eq!(CertificateDer::pem_slice_iter(&first.certificate).count(), 2);
    // It works with suites that need RSA.
    let rsa = settings(source("node-1"), &["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]);
    assert!(server_config(&first, &rsa, &[]).is_ok());
    fs::remove_file(pki.join("kubelet.key")).expect("removed");
    let half = CertificatePair::load(&source("node-1"));
    assert!(half.is_err_and(|error| {
        error.ends_with("kubelet.key, certificate and key must be supplied as a pair")
    }));
}

#[test]
fn suites_that_are_not_known_here_are_named() {
    let names = ["TLS_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"];
    let (known, unknown) = known_suites(&names.map(str::to_owned));
    assert_eq!((known, unknown), (vec![names[1].to_owned()], vec![names[0].to_owned()]));
}
