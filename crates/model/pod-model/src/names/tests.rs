//! Name checks against tables and golden results of Kubernetes.

use proptest::prelude::*;

use super::*;

#[test]
fn agrees_with_kubernetes_on_every_golden_line() {
    let mut lines = include_str!("golden.txt").lines();
    assert!(lines.next().is_some_and(|first| first.starts_with("# Kubernetes v1.36.3")));
    let mut checked = 0;
    for line in lines {
        let Some((name, golden)) = line.split_once('\t') else { panic!("golden line {line:?}") };
        let ours: String = [
            check_qualified_name(name),
            check_label_value(name),
            check_dns_subdomain(name),
            check_dns_label(name),
        ]
        .iter()
        .map(|result| if result.is_ok() { 'y' } else { 'n' })
        .collect();
        assert_eq!(ours, golden, "{name:?}");
        checked += 1;
    }
    assert!(checked > 600, "only {checked} golden lines");
}

#[test]
fn errors_name_the_broken_rule() {
    let rule = |result: Result<(), NameError>| result.map_err(|error| (error.part, error.rule));
    assert_eq!(rule(check_qualified_name("a/b/c")), Err((NamePart::Whole, NameRule::Slashes)));
    assert_eq!(rule(check_qualified_name("/a")), Err((NamePart::Prefix, NameRule::Empty)));
    assert_eq!(rule(check_qualified_name("a/")), Err((NamePart::Name, NameRule::Empty)));
    assert_eq!(
        rule(check_qualified_name("a/b-")),
        Err((NamePart::Name, NameRule::Edge { character: '-' }))
    );
    assert_eq!(
        rule(check_label_value(&"a".repeat(64))),
        Err((NamePart::Whole, NameRule::TooLong { limit: 63, actual: 64 }))
    );
    assert_eq!(rule(check_dns_subdomain("a..b")), Err((NamePart::Whole, NameRule::EmptyLabel)));
    assert_eq!(rule(check_dns_subdomain("a-.b")), Err((NamePart::Whole, NameRule::HyphenAtDot)));
    assert_eq!(rule(check_dns_label("")), Err((NamePart::Whole, NameRule::Empty)));
    let shown = check_dns_label("My-Node").map_err(|error| error.to_string());
    assert_eq!(
        shown,
        Err("DNS label \"My-Node\": 'M' is not allowed; allowed are small letters, digits and '-'"
            .to_owned())
    );
    let shown = check_qualified_name("A.io/x").map_err(|error| error.to_string());
    assert!(shown.is_err_and(|text| text.contains("prefix before '/'")));
}

#[test]
fn taint_effects_and_ports_are_checked() {
    for effect in [TaintEffect::NoSchedule, TaintEffect::PreferNoSchedule, TaintEffect::NoExecute] {
        assert_eq!(TaintEffect::parse(&effect.to_string()), Ok(effect));
    }
    for wrong in ["", "noschedule", "NoSchedule ", "Evict"] {
        let error = check_taint_effect(wrong).map_err(|error| error.rule);
        assert_eq!(error, Err(NameRule::UnknownEffect), "{wrong:?}");
    }
    for (port, good) in [(-1, false), (0, false), (1, true), (65535, true), (65536, false)] {
        assert_eq!(check_port(port).is_ok(), good, "{port}");
    }
}

proptest! {
    #[test]
    fn checks_of_labels_subdomains_and_keys_agree(text in any::<String>()) {
        // Every DNS label is a subdomain, and a key's name part follows the rules of a label value,
        // except that it must not be empty.
        if check_dns_label(&text).is_ok() {
            prop_assert!(check_dns_subdomain(&text).is_ok());
        }
        let key = format!("example.com/{text}");
        prop_assert_eq!(check_qualified_name(&key).is_ok(), !text.is_empty() && check_label_value(&text).is_ok());
    }
}
