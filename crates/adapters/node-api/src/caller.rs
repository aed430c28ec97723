//! Callers: a name and groups, from a client certificate's subject or a TokenReview.
//!
//! Rule: only what a verified certificate or a review contains. A certificate that TLS has verified
//! is parsed by x509-cert; its subject's strings are accepted as Go's crypto/x509 accepts them, and
//! one that Go rejects rejects the certificate. TLS verifies once, when a connection begins, so the
//! certificate's validity period is checked with each request.
//!
//! upstream: apiserver pkg/authentication/request/x509 (CommonNameUserConversion),
//! pkg/authentication/group, crypto/x509/parser.go (parseASN1String)

use std::collections::BTreeMap;
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};
use x509_cert::Certificate;
use x509_cert::der::asn1::Any;
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::oid::db::rfc4519::{COMMON_NAME, ORGANIZATION_NAME};
use x509_cert::der::{Decode as _, Tag, Tagged as _};

/// A caller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Caller {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

const ANONYMOUS: &str = "system:anonymous";
const ALL_AUTHENTICATED: &str = "system:authenticated";
const ALL_UNAUTHENTICATED: &str = "system:unauthenticated";
/// upstream: apiserver pkg/authentication/user
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// upstream: apimachinery pkg/util/asn1
const UID: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.57683.2");

impl Caller {
    /// The anonymous caller, without credentials.
    pub fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.to_owned(),
            groups: vec![ALL_UNAUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }
}

/// The caller that a client certificate names (its common name, in the groups of its
/// organizations), and the certificate's validity period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VerifiedCertificate {
    caller: Option<Caller>,
    not_before: SystemTime,
    not_after: SystemTime,
}

impl VerifiedCertificate {
    /// Parses DER; `None` if it is no certificate, or one whose subject is rejected.
    pub(crate) fn read(der: &[u8]) -> Option<Self> {
        let certificate = Certificate::from_der(der).ok()?;
        let certified = certificate.tbs_certificate();
        let attributes = certified.subject().iter();
        let subject: Vec<(ObjectIdentifier, String)> =
            attributes.map(|one| Some((one.oid, text(&one.value)?))).collect::<Option<_>>()?;
        let values = |kind: ObjectIdentifier| {
            let same = subject.iter().filter(move |(found, _)| *found == kind);
            same.map(|(_, text)| text.clone())
        };
        let uids: Vec<String> = values(UID).collect();
        let uid = match uids.as_slice() {
            [] => String::new(),
            [uid] if !uid.is_empty() => uid.clone(),
            _ => return None,
        };
        // The last of several.
        let name = values(COMMON_NAME).next_back().filter(|name| !name.is_empty());
        let caller = name.map(|name| {
            let mut groups: Vec<String> = values(ORGANIZATION_NAME).collect();
            let is_listed =
                |group: &String| [ALL_AUTHENTICATED, ALL_UNAUTHENTICATED].contains(&&**group);
            if name != ANONYMOUS && !groups.iter().any(is_listed) {
                groups.push(ALL_AUTHENTICATED.to_owned());
            }
            let extra = BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![fingerprint(der)])]);
            Caller { name, uid, groups, extra }
        });
        let validity = certified.validity();
        Some(Self {
            caller,
            not_before: validity.not_before.to_system_time(),
            not_after: validity.not_after.to_system_time(),
        })
    }

    /// The caller at this time; `None` if the certificate has no name.
    ///
    /// # Errors
    /// If the certificate is not valid at this time.
    pub(crate) fn caller_at(&self, now: SystemTime) -> Result<Option<&Caller>, NotValid> {
        if now < self.not_before || self.not_after < now {
            return Err(NotValid);
        }
        Ok(self.caller.as_ref())
    }
}

/// A certificate that has expired since its connection began, or is not valid yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotValid;

fn fingerprint(der: &[u8]) -> String {
    let digest = Sha256::digest(der);
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("X509SHA256={digest}")
}

/// The string types that Go accepts in a name; `None` if the bytes are invalid for the type.
fn text(value: &Any) -> Option<String> {
    let bytes = value.value();
    let checked = |is_right: fn(&u8) -> bool| {
        let right = bytes.iter().all(is_right);
        right.then(|| String::from_utf8(bytes.to_vec()).ok()).flatten()
    };
    match value.tag() {
        Tag::Utf8String => String::from_utf8(bytes.to_vec()).ok(),
        Tag::PrintableString => {
            checked(|byte| byte.is_ascii_alphanumeric() || b" '()*+,-./:=?&".contains(byte))
        }
        Tag::Ia5String => checked(u8::is_ascii),
        Tag::NumericString => checked(|byte| byte.is_ascii_digit() || *byte == b' '),
        // Decoded as Latin-1, as most parsers do.
        Tag::TeletexString => Some(bytes.iter().map(|byte| char::from(*byte)).collect()),
        Tag::BmpString => utf16_text(bytes),
        _ => None,
    }
}

/// Two bytes per character; a final zero character is a terminator.
fn utf16_text(bytes: &[u8]) -> Option<String> {
    let (pairs, []) = bytes.as_chunks::<2>() else { return None };
    let pairs = pairs.strip_suffix(&[[0, 0]]).unwrap_or(pairs);
    pairs.iter().map(|pair| utf16_character(u16::from_be_bytes(*pair))).collect()
}

/// No surrogates and no noncharacters.
fn utf16_character(value: u16) -> Option<char> {
    let is_none = matches!(value, 0xfdd0..=0xfdef | 0xfffe | 0xffff);
    char::from_u32(u32::from(value)).filter(|_| !is_none)
}

#[cfg(test)]
mod tests;
