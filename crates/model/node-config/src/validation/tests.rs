//! The rules one by one on values that no file can hold, and the text checks.
//!
//! Values that a file can hold are in the table of cases, which also runs against the reference.

use super::text_forms::{
    ImageName, go_boolean, image_name, is_namespaced_sysctl, is_sysctl_pattern,
};
use super::url::{UrlError, check_schemeless, parse_url};
use super::{quoted_list, validate};
use crate::feature_gates::FeatureGates;
use crate::flags;
use crate::{ConfigFiles, KubeletConfiguration, Severity, load};

fn plain_settings() -> KubeletConfiguration {
    let loaded = load(flags::parse(&[]), &ConfigFiles::default());
    loaded.config.expect("the defaults are valid").settings().clone()
}

fn refused_fields(settings: &KubeletConfiguration) -> Vec<String> {
    validate(settings, &flags::FlagSettings::default(), &FeatureGates::default())
        .into_iter()
        .filter(|diagnostic| diagnostic.severity == Severity::Error)
        .map(|diagnostic| diagnostic.field)
        .collect()
}

#[test]
fn defaults_are_clean() {
    assert_eq!(refused_fields(&plain_settings()), Vec::<String>::new());
}

#[test]
fn a_factor_that_is_no_number_is_refused() {
    let mut settings = plain_settings();
    settings.memory_throttling_factor = Some(f64::NAN);
    assert_eq!(refused_fields(&settings), ["memoryThrottlingFactor"]);
}

#[test]
fn the_memory_gate_needs_a_factor() {
    let mut settings = plain_settings();
    settings.memory_throttling_factor = None;
    assert_eq!(refused_fields(&settings), Vec::<String>::new());
    let requested = [("MemoryQoS".to_owned(), true)].into_iter().collect();
    let (gates, _) = FeatureGates::from_map(&requested);
    let diagnostics = validate(&settings, &flags::FlagSettings::default(), &gates);
    assert_eq!(diagnostics[0].field, "memoryThrottlingFactor");
}

#[test]
fn a_message_names_the_flag_of_its_field() {
    let mut settings = plain_settings();
    settings.max_pods = -1;
    let diagnostics =
        validate(&settings, &flags::FlagSettings::default(), &FeatureGates::default());
    assert_eq!(diagnostics.len(), 1);
    assert_eq!(diagnostics[0].to_string(), "maxPods: -1: must be 0 or more (flag --max-pods)");
}

#[test]
fn every_rule_runs_independently() {
    let mut settings = plain_settings();
    settings.port = 0;
    settings.hairpin_mode = "x".to_owned();
    settings.logging.format = "x".to_owned();
    settings.run_once = true;
    assert_eq!(refused_fields(&settings), ["port", "logging.format", "hairpinMode", "runOnce"]);
}

#[test]
fn lists_of_words_read_like_a_sentence() {
    assert_eq!(quoted_list(&[]), "");
    assert_eq!(quoted_list(&["a"]), "\"a\"");
    assert_eq!(quoted_list(&["a", "b", "c"]), "\"a\", \"b\" or \"c\"");
}

#[test]
fn booleans_of_go() {
    for (text, expected) in
        [("1", Some(true)), ("T", Some(true)), ("False", Some(false)), ("yes", None), ("", None)]
    {
        assert_eq!(go_boolean(text), expected, "{text}");
    }
}

#[test]
fn names_of_images() {
    use ImageName::{Invalid, Plain, WithTagOrDigest};
    let digest = format!("busybox@sha256:{}", "a".repeat(64));
    let long = format!("a/{}", "b".repeat(254));
    for (text, expected) in [
        ("busybox", Plain),
        ("registry.example/team/app", Plain),
        ("Registry.Example:5000/app", Plain),
        ("[fd00::1]:5000/app", Plain),
        ("a__b/c--d/e.f", Plain),
        ("busybox:1.37", WithTagOrDigest),
        (digest.as_str(), WithTagOrDigest),
        ("busybox@sha256:abc", Invalid),
        ("registry.example/App", Invalid),
        ("a___b", Invalid),
        ("-a", Invalid),
        ("a/", Invalid),
        ("/a", Invalid),
        ("", Invalid),
        ("a:b:c", Invalid),
        ("host:port/app", Invalid),
        (long.as_str(), Invalid),
    ] {
        assert_eq!(image_name(text), expected, "{text}");
    }
}

#[test]
fn patterns_of_sysctls() {
    for (text, valid, namespaced) in [
        ("net.core.somaxconn", true, true),
        ("net.*", true, true),
        ("net/ipv4/conf/eth0.1/rp_filter", true, true),
        ("fs.mqueue.msg_max", true, true),
        ("kernel.shm*", true, true),
        ("kernel.sem", true, true),
        ("kernel.panic", true, false),
        ("net*", true, false),
        ("*", true, false),
        ("net.*.x", false, true),
        ("Net.core", false, false),
        ("net..core", false, true),
        ("net.core-", false, true),
        ("", false, false),
    ] {
        assert_eq!(is_sysctl_pattern(text), valid, "{text}");
        assert_eq!(is_namespaced_sysctl(text), namespaced, "{text}");
    }
    assert!(!is_sysctl_pattern(&format!("net.{}", "a".repeat(250))));
}

#[test]
fn schemes_of_addresses() {
    for (text, expected) in [
        ("unix:///run/x.sock", Ok("unix")),
        ("DNS://resolver/name:1", Ok("dns")),
        ("/run/x.sock", Ok("")),
        ("unix:x", Ok("unix")),
        ("https://user:word@host:80/p?q#f", Ok("https")),
        ("https://[fd00::1]:80/", Ok("https")),
        ("https://[fd00::1%25eth0]/", Ok("https")),
        ("https://h/%41", Ok("https")),
        ("a\tb", Err(UrlError::ControlCharacter)),
        (":x", Err(UrlError::NoScheme)),
        ("10.0.0.1:80", Err(UrlError::NoScheme)),
        ("https://h/%4", Err(UrlError::Escape)),
        ("https://h%41/", Err(UrlError::Escape)),
        ("https://h:80:80/", Err(UrlError::Port)),
        ("https://h:x/", Err(UrlError::Port)),
        ("https://a b/", Err(UrlError::Host)),
        ("https://[fd00::1/", Err(UrlError::Host)),
        ("https://[x]/", Err(UrlError::Host)),
        ("https://a b@h/", Err(UrlError::User)),
    ] {
        let scheme = parse_url(text).map(|address| address.scheme);
        assert_eq!(scheme.as_deref(), expected.as_ref().copied(), "{text}");
    }
    for (text, path) in [
        ("unix:///run/x.sock", "/run/x.sock"),
        ("unix://x", ""),
        ("unix:x", ""),
        ("/run/x.sock?a#b", "/run/x.sock"),
    ] {
        assert_eq!(parse_url(text).unwrap().path, path, "{text}");
    }
    assert_eq!(check_schemeless("*.registry.example/team/*"), Ok(()));
    assert_eq!(check_schemeless("a{b}"), Err(UrlError::Host));
}
