//! Certificates at every stage of their lives, and subjects that changed.

use super::*;
use crate::request::client_template;

const HOUR: i64 = 3_600_000_000_000;

fn at(hours: i64) -> ApiTime {
    ApiTime::from_nanos(hours * HOUR)
}

fn certificate(from: i64, to: i64) -> CertificateFacts {
    CertificateFacts { subject: client_template("n"), not_before: at(from), not_after: at(to) }
}

#[test]
fn a_certificate_is_renewed_between_seven_and_nine_tenths_of_its_life() {
    let certificate = certificate(0, 1000);
    let template = client_template("n");
    let table = [
        (0, 0, CertificateStep::WaitUntil(at(700))),
        (699, 0, CertificateStep::WaitUntil(at(700))),
        (700, 0, CertificateStep::Request),
        (700, 500, CertificateStep::WaitUntil(at(800))),
        (800, 500, CertificateStep::Request),
        (899, 999, CertificateStep::WaitUntil(ApiTime::from_nanos(8998 * HOUR / 10))),
        (900, 999, CertificateStep::Request),
        // More than the largest number counts as the largest.
        (900, u16::MAX, CertificateStep::Request),
        (1001, 0, CertificateStep::Request),
        // From a clock that is ahead.
        (-5, 0, CertificateStep::WaitUntil(at(700))),
    ];
    for (now, random, expected) in table {
        let step = next_step(Some(&certificate), Some(&template), at(now), random);
        assert_eq!(step, expected, "at {now} with {random}");
    }
}

#[test]
fn lives_that_make_no_sense_are_renewed_at_once() {
    let template = client_template("n");
    for (from, to) in [(5, 5), (5, 1)] {
        let step = next_step(Some(&certificate(from, to)), Some(&template), at(5), 999);
        assert_eq!(step, CertificateStep::Request, "{from} to {to}");
    }
    let endless = CertificateFacts {
        subject: client_template("n"),
        not_before: ApiTime::from_nanos(i64::MIN),
        not_after: ApiTime::from_nanos(i64::MAX),
    };
    let step = next_step(Some(&endless), Some(&template), at(0), 0);
    assert!(matches!(step, CertificateStep::WaitUntil(_)), "{step:?}");
}

#[test]
fn a_certificate_must_be_for_what_is_wanted_now() {
    let (now, random) = (at(1), 0);
    let wanted = CertificateTemplate {
        dns_names: vec!["a".to_owned()],
        ip_addresses: vec!["10.0.0.1".parse().expect("an address")],
        ..client_template("n")
    };
    let has = |change: fn(&mut CertificateTemplate)| {
        let mut facts = certificate(0, 1000);
        facts.subject = wanted.clone();
        change(&mut facts.subject);
        facts
    };
    let table: &[(CertificateFacts, bool)] = &[
        (has(|_| {}), true),
        (has(|of| of.dns_names.push("more".to_owned())), true),
        (has(|of| of.dns_names.clear()), false),
        (has(|of| of.ip_addresses.clear()), false),
        (has(|of| of.organizations.clear()), false),
        (has(|of| of.common_name = "system:node:other".to_owned()), false),
    ];
    for (facts, expected) in table {
        assert_eq!(satisfies(facts, &wanted), *expected, "{facts:?}");
        let step = next_step(Some(facts), Some(&wanted), now, random);
        assert_eq!(step == CertificateStep::Request, !expected, "{facts:?}");
    }
    assert_eq!(next_step(None, Some(&wanted), now, random), CertificateStep::Request);
    assert_eq!(next_step(None, None, now, random), CertificateStep::WaitForTemplate);
    let any = certificate(0, 1);
    assert_eq!(next_step(Some(&any), None, at(9), random), CertificateStep::WaitForTemplate);
}

#[test]
fn pauses_grow_to_a_limit() {
    let pauses: Vec<u64> = (0..8).map(|failed| attempt_pause(failed).as_secs()).collect();
    assert_eq!(pauses, [2, 2, 4, 8, 16, 32, 32, 32]);
    let polls: Vec<u64> =
        [0, 4, 5, 10, 15, 20, u32::MAX].map(|reads| poll_pause(reads).as_secs()).to_vec();
    assert_eq!(polls, [1, 1, 2, 4, 8, 15, 15]);
}
