//! What a certificate is for, and when: X.509 in, facts out.
//!
//! Rule: pure. Only what rotation compares is read; parts that cannot be decoded are left out, so
//! that such a certificate is replaced instead of kept.

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use ports::{ApiTime, CertificateFacts, CertificateTemplate};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::oid::db::rfc4519::{COMMON_NAME, ORGANIZATION_NAME};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// The facts of the first certificate of a PEM text, and the time until which all of them are
/// valid; None if there is none in it.
pub fn certificate_facts(pem: &[u8]) -> Option<CertificateFacts> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().ok()?;
    let (first, others) = chain.split_first()?;
    let mut facts = facts(first)?;
    for other in others {
        let until = Certificate::from_der(other).ok()?.tbs_certificate().validity().not_after;
        facts.not_after = facts.not_after.min(time(until.to_system_time()));
    }
    Some(facts)
}

fn facts(der: &[u8]) -> Option<CertificateFacts> {
    let certificate = Certificate::from_der(der).ok()?;
    let certified = certificate.tbs_certificate();
    let values = |kind: ObjectIdentifier| {
        let of_kind = certified.subject().iter().filter(move |attribute| attribute.oid == kind);
        of_kind.filter_map(|attribute| {
            std::str::from_utf8(attribute.value.value()).ok().map(str::to_owned)
        })
    };
    let mut subject = CertificateTemplate {
        common_name: values(COMMON_NAME).last().unwrap_or_default(),
        organizations: values(ORGANIZATION_NAME).collect(),
        ..CertificateTemplate::default()
    };
    let names = certified.get_extension::<SubjectAltName>().ok().flatten();
    for name in names.into_iter().flat_map(|(_, names)| names.0) {
        match name {
            GeneralName::DnsName(name) => subject.dns_names.push(name.to_string()),
            GeneralName::IpAddress(bytes) => subject.ip_addresses.extend(ip(bytes.as_bytes())),
            _ => {}
        }
    }
    let validity = certified.validity();
    Some(CertificateFacts {
        subject,
        not_before: time(validity.not_before.to_system_time()),
        not_after: time(validity.not_after.to_system_time()),
    })
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

fn time(at: SystemTime) -> ApiTime {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    ApiTime::from_nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}
