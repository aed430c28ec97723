//! Keys and signing requests.
//!
//! Rule: pure but for the randomness of keys and signatures. Keys are ECDSA P-256, as upstream's; a
//! key of another kind that was left by a kubelet is used as it is. The digest covers the key and
//! the subject, never the signature, which is random.

use ports::{CertificateTemplate, SigningRequest};
use rcgen::string::Ia5String;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256,
    PublicKeyData as _, SanType,
};
use sha2::{Digest as _, Sha256};

/// A new key, in PEM.
pub(crate) fn new_key() -> Result<String, rcgen::Error> {
    Ok(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?.serialize_pem())
}

/// A request for this subject with this key.
pub(crate) fn signing_request(
    key_pem: &str,
    template: &CertificateTemplate,
) -> Result<SigningRequest, rcgen::Error> {
    let key = KeyPair::from_pem(key_pem)?;
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    for organization in &template.organizations {
        subject.push(DnType::OrganizationName, organization.as_str());
    }
    subject.push(DnType::CommonName, template.common_name.as_str());
    params.distinguished_name = subject;
    for name in &template.dns_names {
        params.subject_alt_names.push(SanType::DnsName(Ia5String::try_from(name.as_str())?));
    }
    let addresses = template.ip_addresses.iter().copied().map(SanType::IpAddress);
    params.subject_alt_names.extend(addresses);
    let pem = params.serialize_request(&key)?.pem()?;
    Ok(SigningRequest { pem, digest: digest(&key.subject_public_key_info(), template) })
}

fn digest(public_key: &[u8], template: &CertificateTemplate) -> String {
    let CertificateTemplate { common_name, organizations, dns_names, ip_addresses } = template;
    let ips: Vec<String> = ip_addresses.iter().map(ToString::to_string).collect();
    let mut hash = Sha256::new();
    hash.update(public_key);
    for list in [&vec![common_name.clone()], organizations, dns_names, &ips] {
        // Lengths keep two different lists from giving the same bytes.
        hash.update(list.len().to_be_bytes());
        for text in list {
            hash.update(text.len().to_be_bytes());
            hash.update(text.as_bytes());
        }
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
