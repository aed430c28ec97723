//! Which pods get access, what is recorded, and the reference's own format.

use super::*;

fn secret(name: &str, hash: &str) -> PullSecret {
    PullSecret {
        namespace: "ns".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        credential_hash: hash.to_owned(),
    }
}

fn account(name: &str) -> PullAccount {
    PullAccount { namespace: "ns".to_owned(), name: name.to_owned(), uid: format!("uid-{name}") }
}

fn record(credentials: PullCredentials) -> PulledRecord {
    PulledRecord {
        image_ref: "sha256:1".to_owned(),
        updated: ApiTime::from_nanos(5),
        credentials: BTreeMap::from([("r.example/i".to_owned(), credentials)]),
    }
}

fn of(owner: CredentialOwner) -> PullCredentials {
    PullCredentials::from(owner)
}

fn asked<'a>(
    image: &'a str,
    record: Option<&'a PulledRecord>,
    owners: &'a [CredentialOwner],
) -> AccessRequest<'a> {
    AccessRequest { image, record, is_being_pulled: false, owners }
}

fn policy(word: &str) -> Verification {
    let allowed = ["r.example/free".to_owned(), "s.example/team/*".to_owned()];
    Verification::from_config(word, &allowed).unwrap()
}

#[test]
fn the_policy_decides_which_images_are_verified() {
    let ours = record(of(CredentialOwner::Secret(secret("a", "1"))));
    let allowed = "NeverVerifyAllowlistedImages";
    for (word, image, record, is_being_pulled, expected) in [
        ("NeverVerify", "r.example/i:1", Some(&ours), false, ImageAccess::Granted),
        ("NeverVerify", "r.example/i:1", None, true, ImageAccess::Granted),
        ("NeverVerifyPreloadedImages", "r.example/i:1", None, false, ImageAccess::Granted),
        ("NeverVerifyPreloadedImages", "r.example/i:1", Some(&ours), false, ImageAccess::Pull),
        ("NeverVerifyPreloadedImages", "r.example/i:1", None, true, ImageAccess::Pull),
        (allowed, "r.example/free:1", None, false, ImageAccess::Granted),
        (allowed, "r.example/free@sha256:0", Some(&ours), false, ImageAccess::Granted),
        (allowed, "r.example/freely", None, false, ImageAccess::Pull),
        (allowed, "s.example/team/i:2", None, false, ImageAccess::Granted),
        (allowed, "s.example/teams/i:2", None, false, ImageAccess::Pull),
        (allowed, "r.example/i:1", None, false, ImageAccess::Pull),
        ("AlwaysVerify", "r.example/i:1", None, false, ImageAccess::Pull),
        ("AlwaysVerify", "r.example/free", None, false, ImageAccess::Pull),
    ] {
        let request = AccessRequest { is_being_pulled, ..asked(image, record, &[]) };
        assert_eq!(check_access(&policy(word), &request), expected, "{word} {image}");
    }
    let error = Verification::from_config("Sometimes", &[]).unwrap_err();
    assert!(error.to_string().contains("Sometimes"), "{error}");
}

#[test]
fn a_pod_cannot_use_an_image_pulled_with_another_pods_credentials() {
    use ImageAccess::{Granted, GrantedAndRecorded, Pull};
    let owned = |name: &str, hash: &str| CredentialOwner::Secret(secret(name, hash));
    let nothing = PullCredentials::default();
    let by_secret = of(owned("a", "1"));
    let by_account = of(CredentialOwner::Account(account("builder")));
    for (known, owners, expected) in [
        (of(CredentialOwner::Node), vec![], Granted),
        (of(CredentialOwner::Node), vec![owned("a", "1")], Granted),
        (nothing, vec![owned("a", "1")], Pull),
        (by_secret.clone(), vec![], Pull),
        (by_secret.clone(), vec![CredentialOwner::Node], Pull),
        (by_secret.clone(), vec![owned("a", "1")], Granted),
        (by_secret.clone(), vec![owned("b", "1")], GrantedAndRecorded(secret("b", "1"))),
        (by_secret.clone(), vec![owned("a", "2")], GrantedAndRecorded(secret("a", "2"))),
        (by_secret.clone(), vec![owned("b", "2")], Pull),
        (by_secret.clone(), vec![owned("b", "2"), owned("a", "1")], Granted),
        (by_secret.clone(), vec![CredentialOwner::Account(account("a"))], Pull),
        // A hash that could not be computed proves nothing.
        (of(owned("a", "")), vec![owned("b", "")], Pull),
        (by_account.clone(), vec![CredentialOwner::Account(account("builder"))], Granted),
        (by_account.clone(), vec![CredentialOwner::Account(account("other"))], Pull),
        (by_account, vec![owned("builder", "1")], Pull),
    ] {
        let record = record(known);
        let decision = check_access(
            &Verification::ExceptPreloaded,
            &asked("r.example/i:1", Some(&record), &owners),
        );
        assert_eq!(decision, expected, "{record:?} {owners:?}");
    }
    let record = record(of(CredentialOwner::Node));
    for (image, expected) in
        [("r.example/i", Granted), ("r.example/i@sha256:0", Granted), ("r.example/j:1", Pull)]
    {
        let decision =
            check_access(&Verification::ExceptPreloaded, &asked(image, Some(&record), &[]));
        assert_eq!(decision, expected, "{image}: another name is another question");
    }
}

#[test]
fn credentials_recorded_without_a_pull_are_bounded() {
    let secrets: Vec<PullSecret> =
        (0..MAX_RECORDED_WITHOUT_PULL).map(|at| secret(&format!("s{at}"), "1")).collect();
    let full = record(PullCredentials { secrets, ..PullCredentials::default() });
    let decision = |own: PullSecret| {
        let owners = [CredentialOwner::Secret(own)];
        check_access(&Verification::Always, &asked("r.example/i", Some(&full), &owners))
    };
    assert_eq!(decision(secret("other", "1")), ImageAccess::Granted);
    assert_eq!(decision(secret("s0", "2")), ImageAccess::Pull, "a changed login proves itself");
}

#[test]
fn pulls_are_written_down() {
    let now = ApiTime::from_nanos(9);
    let first =
        with_credentials(None, "sha256:1", "r.example/i:1", Some(of(CredentialOwner::Node)), now);
    let expected = PulledRecord { updated: now, ..record(of(CredentialOwner::Node)) };
    assert_eq!(first, Some(expected));
    let unproven = with_credentials(None, "sha256:1", "r.example/i:1", None, now).unwrap();
    assert!(unproven.credentials.is_empty());

    let by = |name: &str, hash: &str| of(CredentialOwner::Secret(secret(name, hash)));
    let secrets = |list: &[(&str, &str)]| PullCredentials {
        secrets: list.iter().map(|(name, hash)| secret(name, hash)).collect(),
        ..PullCredentials::default()
    };
    let by_account = |name: &str| of(CredentialOwner::Account(account(name)));
    for (before, new, after) in [
        (by("a", "1"), None, None),
        (by("a", "1"), Some(by("a", "1")), None),
        (by("b", "1"), Some(by("a", "1")), Some(secrets(&[("a", "1"), ("b", "1")]))),
        (by("a", "1"), Some(by("a", "2")), Some(secrets(&[("a", "2")]))),
        (by("a", "1"), Some(of(CredentialOwner::Node)), Some(of(CredentialOwner::Node))),
        (of(CredentialOwner::Node), Some(by("a", "1")), None),
        (of(CredentialOwner::Node), Some(of(CredentialOwner::Node)), None),
        (by_account("a"), Some(by_account("a")), None),
        (
            by_account("b"),
            Some(by_account("a")),
            Some(PullCredentials {
                accounts: vec![account("a"), account("b")],
                ..PullCredentials::default()
            }),
        ),
        (
            by_account("b"),
            Some(by("a", "1")),
            Some(PullCredentials { accounts: vec![account("b")], ..by("a", "1") }),
        ),
    ] {
        let before = record(before);
        let got = with_credentials(Some(&before), "sha256:1", "r.example/i", new.clone(), now);
        let expected = after.map(|after| PulledRecord { updated: now, ..record(after) });
        assert_eq!(got, expected, "{before:?} {new:?}");
    }
    let before = record(of(CredentialOwner::Node));
    let other =
        with_credentials(Some(&before), "sha256:1", "r.example/j:1", Some(by("a", "1")), now);
    let other = other.unwrap();
    assert_eq!(other.credentials.len(), 2);
    assert_eq!(other.credentials["r.example/j"], by("a", "1"));
    let nothing = Some(PullCredentials::default());
    assert_eq!(with_credentials(Some(&before), "sha256:1", "r.example/j:1", nothing, now), None);
}

#[test]
fn records_of_removed_images_are_removed() {
    let at = |image_ref: &str, nanos| PulledRecord {
        image_ref: image_ref.to_owned(),
        updated: ApiTime::from_nanos(nanos),
        credentials: BTreeMap::new(),
    };
    let records = [at("here", 1), at("gone", 1), at("new", 5), at("newer", 6)];
    assert_eq!(records_of_removed_images(&records, &["here"], ApiTime::from_nanos(5)), ["gone"]);
}

#[test]
fn an_interrupted_pull_is_known_by_any_name_of_its_image() {
    for (intended, name, expected) in [
        ("busybox", "docker.io/library/busybox:latest", true),
        ("busybox:1", "docker.io/library/busybox:latest", false),
        ("r.example:5000/i", "r.example:5000/i:latest", true),
        ("r.example/i:1", "r.example/i:1", true),
        ("r.example/i:1", "r.example/j:1", false),
        ("r.example/i:1@sha256:0", "r.example/i@sha256:0", true),
        ("r.example/i@sha256:0", "r.example/i@sha256:1", false),
        ("r.example/i@sha256:0", "r.example/i:1", false),
    ] {
        assert_eq!(
            has_pull_completed(intended, ["x.example/x:1", name]),
            expected,
            "{intended} {name}"
        );
    }
    assert!(!has_pull_completed("busybox", []));
}

#[test]
fn an_image_without_a_digest_of_its_repository_was_imported() {
    for (intended, digests, expected) in [
        ("busybox", vec!["docker.io/library/busybox@sha256:0"], true),
        ("r.example/i:1", vec!["r.example/i@sha256:0"], true),
        ("r.example/i@sha256:0", vec!["r.example/i@sha256:0"], true),
        ("r.example/i:1", vec!["x.example/i@sha256:0", "r.example/i@sha256:0"], true),
        ("r.example/i:1", vec![], false),
        // As an importer names its images.
        ("r.example/i:1", vec!["docker.io/library/import-2026-01-01@sha256:0"], false),
        ("r.example/i:1", vec!["r.example/j@sha256:0"], false),
    ] {
        assert_eq!(matches_pull(intended, digests.clone()), expected, "{intended} {digests:?}");
    }
}

#[test]
fn records_are_written_as_the_reference_writes_them() {
    let text = String::from_utf8(intent_text("r.example/i:1")).unwrap();
    let expected = r#"{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"r.example/i:1"}"#;
    assert_eq!(text, format!("{expected}\n"));
    assert_eq!(read_intent(text.as_bytes()).unwrap(), "r.example/i:1");

    let mut whole = record(of(CredentialOwner::Secret(secret("a", "1"))));
    whole.updated = ApiTime::from_nanos(1_700_000_000_000_000_000);
    whole.credentials.insert("j".to_owned(), of(CredentialOwner::Node));
    whole.credentials.insert("k".to_owned(), of(CredentialOwner::Account(account("b"))));
    let text = String::from_utf8(record_text(&whole)).unwrap();
    let expected = concat!(
        r#"{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","#,
        r#""lastUpdatedTime":"2023-11-14T22:13:20Z","imageRef":"sha256:1","credentialMapping":{"#,
        r#""j":{"nodePodsAccessible":true},"#,
        r#""k":{"kubernetesServiceAccounts":[{"uid":"uid-b","namespace":"ns","name":"b"}]},"#,
        r#""r.example/i":{"kubernetesSecrets":[{"uid":"uid-a","namespace":"ns","name":"a","credentialHash":"1"}]}}}"#,
        "\n"
    );
    assert_eq!(text, expected);
    assert_eq!(read_record(text.as_bytes()), Ok(whole));
}

#[test]
fn unreadable_records_are_refused() {
    let older = r#"{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1alpha1","lastUpdatedTime":null,"imageRef":"x"}"#;
    let read = read_record(older.as_bytes()).unwrap();
    assert_eq!((read.image_ref.as_str(), read.updated), ("x", ApiTime::default()));
    let record = |rest: &str| {
        let head = r#""apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"ImagePulledRecord""#;
        read_record(format!("{{{head}{rest}}}").as_bytes())
    };
    assert!(record(r#","imageRef":"x""#).is_ok());
    for (read, expected) in [
        (record(""), "imageRef"),
        (record(r#","imageRef":"x","more":1"#), "more"),
        (record(r#","imageRef":"x","lastUpdatedTime":"soon""#), "lastUpdatedTime"),
        (record(r#","imageRef":"x","credentialMapping":{"i":{"onlyFor":"x"}}"#), "onlyFor"),
        (read_record(b""), "EOF"),
        (read_record(older.replace("v1alpha1", "v2").as_bytes()), "apiVersion"),
        (read_record(older.replace("ImagePulledRecord", "Other").as_bytes()), "kind"),
    ] {
        let why = read.unwrap_err().to_string();
        assert!(why.contains(expected), "{why} has {expected}");
    }
    assert!(read_intent(older.as_bytes()).is_err());
    assert!(read_intent(b"{").is_err());
}
