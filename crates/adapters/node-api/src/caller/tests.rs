//! Callers by their certificates. The result for each odd subject was compared with Go's parser.

use std::time::{Duration, UNIX_EPOCH};

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

use super::*;

const CN: &[u8] = &[0x55, 4, 3];
const O: &[u8] = &[0x55, 4, 10];
const OU: &[u8] = &[0x55, 4, 11];
/// 1.3.6.1.4.1.57683.2
const KUBE_UID: &[u8] = &[0x2b, 6, 1, 4, 1, 0x83, 0xc2, 0x53, 2];

const UTF8: u8 = 0x0c;
const NUMERIC: u8 = 0x12;
const PRINTABLE: u8 = 0x13;
const TELETEX: u8 = 0x14;
const IA5: u8 = 0x16;
const UNIVERSAL: u8 = 0x1c;
const BMP: u8 = 0x1e;

/// An attribute of a subject: its type, the tag of its string, and the string.
type Attribute<'a> = (&'a [u8], u8, &'a [u8]);
/// A name, a UID and groups.
type Read = Option<(String, String, Vec<String>)>;

fn certificate(names: &[(DnType, &str)]) -> Vec<u8> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for (kind, value) in names {
        params.distinguished_name.push(kind.clone(), *value);
    }
    let key = KeyPair::generate().expect("key");
    params.self_signed(&key).expect("certificate").der().to_vec()
}

fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let size = content.len().to_be_bytes();
    match content.len() {
        0..=0x7f => [&[tag, size[7]], &content[..]].concat(),
        0x80..=0xff => [&[tag, 0x81, size[7]], &content[..]].concat(),
        _ => [&[tag, 0x82, size[6], size[7]], &content[..]].concat(),
    }
}

/// Replaces a certificate's subject by this list of sets of attributes. It is not signed again.
fn with_subject(subject: &[&[Attribute<'_>]]) -> Vec<u8> {
    let sets: Vec<Vec<u8>> = subject
        .iter()
        .map(|set| {
            let pair = |(kind, tag, value): &Attribute<'_>| {
                element(0x30, &[&element(6, &[kind]), &element(*tag, &[value])])
            };
            let pairs: Vec<Vec<u8>> = set.iter().map(pair).collect();
            element(0x31, &[&pairs.concat()])
        })
        .collect();
    let subject = element(0x30, &[&sets.concat()]);
    // Long, so that lengths have two bytes.
    let mark = "mark".repeat(25);
    let own = element(0x30, &[&element(6, &[OU]), &element(UTF8, &[mark.as_bytes()])]);
    let own = element(0x30, &[&element(0x31, &[&own])]);
    let der = certificate(&[(DnType::OrganizationalUnitName, &mark)]);
    // Issuer and subject are the same: the second is the subject.
    let at = der.windows(own.len()).rposition(|part| part == own).expect("the subject");
    assert_eq!((der[1], der[5]), (0x82, 0x82));
    let end = 8 + usize::from(der[6]) * 256 + usize::from(der[7]);
    let inner = element(0x30, &[&der[8..at], &subject, &der[at + own.len()..end]]);
    element(0x30, &[&inner, &der[end..]])
}

fn of_certificate(der: &[u8]) -> Option<Caller> {
    VerifiedCertificate::read(der)?.caller
}

fn caller(subject: &[&[Attribute<'_>]]) -> Read {
    let caller = of_certificate(&with_subject(subject))?;
    Some((caller.name, caller.uid, caller.groups))
}

#[test]
fn the_common_name_is_the_name_and_organizations_are_groups() {
    let der = certificate(&[
        (DnType::OrganizationName, "system:masters"),
        (DnType::CountryName, "DE"),
        (DnType::CommonName, "j\u{f6}rg"),
    ]);
    let caller = of_certificate(&der).expect("a caller");
    assert_eq!(caller.name, "j\u{f6}rg");
    assert_eq!(caller.groups, ["system:masters", "system:authenticated"]);
    let id = &caller.extra["authentication.kubernetes.io/credential-id"];
    assert!(
        matches!(&id[..], [one] if one.starts_with("X509SHA256=") && one.len() == 75),
        "{id:?}"
    );
}

#[test]
fn a_certificate_without_a_common_name_identifies_no_caller() {
    let der = certificate(&[(DnType::CommonName, ""), (DnType::OrganizationName, "o")]);
    assert_eq!(of_certificate(&der), None);
    assert!(VerifiedCertificate::read(&der).is_some(), "it is a certificate all the same");
    assert_eq!(caller(&[]), None);
}

/// Rows: a subject, and the name, the UID and the groups in it; `None` if Go has an error or no
/// name.
#[test]
fn subjects_are_read_as_go_reads_them() {
    let groups = |groups: &[&str]| groups.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
    let named = |name: &str, of: &[&str]| {
        let of = [of, &["system:authenticated"]].concat();
        Some((name.to_owned(), String::new(), groups(&of)))
    };
    let rows: &[(&[&[Attribute<'_>]], Read)] = &[
        // Several names: the last. Several organizations: all, in order.
        (&[&[(CN, UTF8, b"a")], &[(CN, UTF8, b"b")]], named("b", &[])),
        (&[&[(CN, UTF8, b"a")], &[(CN, UTF8, b"")]], None),
        (&[&[(O, UTF8, b"z")], &[(CN, UTF8, b"a")], &[(O, UTF8, b"y")]], named("a", &["z", "y"])),
        (&[&[(O, UTF8, b"z")], &[(O, UTF8, b"z")], &[(CN, UTF8, b"a")]], named("a", &["z", "z"])),
        // Several in one set.
        (&[&[(CN, UTF8, b"a"), (O, UTF8, b"x"), (O, UTF8, b"y")]], named("a", &["x", "y"])),
        (&[&[(OU, UTF8, b"x"), (CN, UTF8, b"a")]], named("a", &[])),
        // String types.
        (&[&[(CN, UTF8, "\u{20ac}".as_bytes())]], named("\u{20ac}", &[])),
        (&[&[(CN, UTF8, b"\xff")]], None),
        (&[&[(CN, UTF8, b"a\0b")]], named("a\0b", &[])),
        (&[&[(CN, PRINTABLE, b"system:node:a*&")]], named("system:node:a*&", &[])),
        (&[&[(CN, PRINTABLE, b"a@b")]], None),
        (&[&[(CN, PRINTABLE, b"a_b")]], None),
        (&[&[(CN, IA5, b"a@b")]], named("a@b", &[])),
        (&[&[(CN, IA5, b"\xe9")]], None),
        (&[&[(CN, NUMERIC, b"12 3")]], named("12 3", &[])),
        (&[&[(CN, NUMERIC, b"12a")]], None),
        (&[&[(CN, TELETEX, b"j\xf6rg")]], named("j\u{f6}rg", &[])),
        (&[&[(CN, BMP, b"\0j\0\xf6\x20\xac")]], named("j\u{f6}\u{20ac}", &[])),
        (&[&[(CN, BMP, b"\0a\0\0")]], named("a", &[])),
        (&[&[(CN, BMP, b"\0a\0")]], None),
        (&[&[(CN, BMP, b"\xd8\x3d\xde\x00")]], None),
        (&[&[(CN, BMP, b"\xfd\xd0")]], None),
        (&[&[(CN, BMP, b"\xff\xff")]], None),
        (&[&[(CN, UNIVERSAL, b"\0\0\0a")]], None),
        (&[&[(CN, 0x04, b"a")]], None),
        (&[&[(CN, 0x02, b"\x01")]], None),
        // An invalid string in another attribute rejects the certificate.
        (&[&[(CN, UTF8, b"a")], &[(OU, PRINTABLE, b"@")]], None),
        (&[&[(CN, UTF8, b"a")], &[(OU, UNIVERSAL, b"\0\0\0a")]], None),
        // The groups that every caller is in are not added.
        (
            &[&[(CN, UTF8, b"a")], &[(O, UTF8, b"system:authenticated")]],
            Some(("a".into(), String::new(), groups(&["system:authenticated"]))),
        ),
        (
            &[&[(CN, UTF8, b"a")], &[(O, UTF8, b"system:unauthenticated")]],
            Some(("a".into(), String::new(), groups(&["system:unauthenticated"]))),
        ),
        (
            &[&[(CN, UTF8, b"system:anonymous")], &[(O, UTF8, b"g")]],
            Some(("system:anonymous".into(), String::new(), groups(&["g"]))),
        ),
        // The UID of Kubernetes.
        (
            &[&[(CN, UTF8, b"a")], &[(KUBE_UID, UTF8, b"1-2")]],
            Some(("a".into(), "1-2".into(), groups(&["system:authenticated"]))),
        ),
        (&[&[(CN, UTF8, b"a")], &[(KUBE_UID, UTF8, b"")]], None),
        (&[&[(CN, UTF8, b"a")], &[(KUBE_UID, UTF8, b"1")], &[(KUBE_UID, UTF8, b"2")]], None),
    ];
    for (subject, expected) in rows {
        assert_eq!(caller(subject), *expected, "{subject:?}");
    }
}

#[test]
fn a_certificate_counts_from_its_first_second_to_its_last() {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "a");
    let at = |second: u64| UNIX_EPOCH + Duration::from_secs(second);
    // The later one is past 2050, where certificates write years in full.
    let (begin, end) = (1_700_000_000, 2_600_000_000);
    (params.not_before, params.not_after) = (at(begin).into(), at(end).into());
    let key = KeyPair::generate().expect("key");
    let der = params.self_signed(&key).expect("certificate").der().to_vec();
    let certificate = VerifiedCertificate::read(&der).expect("a certificate");
    for (second, valid) in
        [(begin - 1, false), (begin, true), (end - 1, true), (end, true), (end + 1, false)]
    {
        let name = certificate.caller_at(at(second)).map(|caller| caller.map(|one| &*one.name));
        assert_eq!(name, if valid { Ok(Some("a")) } else { Err(NotValid) }, "{second}");
    }
}

#[test]
fn truncated_and_corrupted_certificates_are_refused() {
    let der = certificate(&[(DnType::CommonName, "a")]);
    for end in 0..der.len() {
        assert_eq!(of_certificate(&der[..end]), None, "cut at {end}");
    }
    assert_eq!(of_certificate(&[&der[..], b"\0"].concat()), None, "more than it");
    for at in 0..der.len() {
        for bit in 0..8 {
            let mut changed = der.clone();
            changed[at] ^= 1 << bit;
            let _ = of_certificate(&changed);
        }
    }
}
