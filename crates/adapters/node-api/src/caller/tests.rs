//! Who calls, by certificate and by token.

use super::*;
use rcgen::{CertificateParams, DnType, KeyPair};

fn certificate(names: &[(DnType, &str)]) -> Vec<u8> {
    let mut params = CertificateParams::default();
    for (kind, value) in names {
        params.distinguished_name.push(kind.clone(), *value);
    }
    let key = KeyPair::generate().expect("key");
    params.self_signed(&key).expect("certificate").der().to_vec()
}

#[test]
fn the_common_name_is_the_name_and_organizations_are_groups() {
    let der = certificate(&[
        (DnType::OrganizationName, "system:masters"),
        (DnType::CountryName, "DE"),
        (DnType::CommonName, "jörg"),
    ]);
    let caller = Caller::of_certificate(&der).expect("a caller");
    assert_eq!(caller.name, "jörg");
    assert_eq!(caller.groups, ["system:masters", "system:authenticated"]);
}

#[test]
fn a_certificate_without_a_name_is_nobody() {
    let der = certificate(&[(DnType::CommonName, ""), (DnType::OrganizationName, "o")]);
    assert_eq!(Caller::of_certificate(&der), None);
}

#[test]
fn cut_and_changed_certificates_do_no_harm() {
    let der = certificate(&[(DnType::CommonName, "a")]);
    for end in 0..der.len() {
        assert_eq!(Caller::of_certificate(&der[..end]), None, "cut at {end}");
    }
    for at in 0..der.len() {
        for bit in 0..8 {
            let mut changed = der.clone();
            changed[at] ^= 1 << bit;
            let _ = Caller::of_certificate(&changed);
        }
    }
}
