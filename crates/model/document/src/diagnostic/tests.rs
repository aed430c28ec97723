//! The text of findings.

use super::*;

#[test]
fn a_finding_is_one_line_with_place_field_value_and_message() {
    let origin = Origin::File { path: "/etc/kubelet.yaml".into(), line: 7, column: 3 };
    let diagnostic = Diagnostic::error("maxPods", "expected a whole number")
        .with_value("many\nlines")
        .at(origin);
    assert_eq!(
        diagnostic.to_string(),
        "/etc/kubelet.yaml:7: maxPods: many\\nlines: expected a whole number"
    );
    let diagnostic = Diagnostic::warning("", "no place, no field");
    assert_eq!(diagnostic.to_string(), "no place, no field");
    let diagnostic = Diagnostic::error("port", "expected 1 to 65535").at(Origin::flag("port"));
    assert_eq!(diagnostic.to_string(), "--port: port: expected 1 to 65535");
}

#[test]
fn a_file_without_known_line_shows_no_line() {
    let origin = Origin::DropIn { path: "a.conf".into(), line: 0, column: 0 };
    assert_eq!(Diagnostic::error("", "empty").at(origin).to_string(), "a.conf: empty");
}

#[test]
fn secrets_are_never_shown() {
    for field in [
        "staticPodURLHeader.Authorization",
        "staticPodURLHeader[a][0]",
        "providers[0].env[1].value",
        "providers[0].env[1].Value",
        "providers[0].env[1]",
        "providers[0].env",
        "staticPodUrlHeader.Authorization[0]",
        "STATICPODURLHEADER",
    ] {
        assert_eq!(
            Diagnostic::error(field, "x").with_value("Bearer abc").value.as_deref(),
            Some(MASK)
        );
    }
    let shown = shown_value("staticPodURL", "https://me:secret@host/pods?x=@");
    assert_eq!(shown, "https://<masked>@host/pods?<masked>");
    assert_eq!(shown_value("staticPodURL", "https://host/a@b"), "https://host/a@b");
    assert_eq!(shown_value("evictionHard.memory.available", "1"), "1");
}

#[test]
fn long_values_are_shortened_at_a_character() {
    let shown = shown_value("clusterDomain", &"ü".repeat(200));
    assert_eq!(shown.chars().count(), MAX_SHOWN_VALUE + 3);
    assert!(shown.ends_with("..."));
}

#[test]
fn a_url_shows_no_user_no_query_and_no_fragment() {
    for (field, value, expected) in [
        ("staticPodURL", "https://h/p?token=s3cr3t&a=s3cr3t", "https://h/p?<masked>"),
        ("staticPodURL", "https://h/p?token=s3cr3t s3cr3t\"s3cr3t", "https://h/p?<masked>"),
        ("staticPodURL", "https://h?s3cr3t#s3cr3t", "https://h?<masked>"),
        ("staticPodURL", "https://h/p#s3cr3t", "https://h/p#<masked>"),
        ("staticPodURL", "https://me:s3cr3t@h/p#s3cr3t", "https://<masked>@h/p#<masked>"),
        ("staticPodURL", "h/p?s3cr3t", "h/p?<masked>"),
        ("staticPodURL", "//me:s3cr3t@h/p?s3cr3t", "//<masked>@h/p?<masked>"),
        ("staticPodURL", "https://h/p?", "https://h/p?"),
        (
            "clusterDomain",
            "see http://h/?s3cr3t and http://i#s3cr3t.",
            "see http://h/?<masked> and http://i#<masked>",
        ),
        ("clusterDomain", "[\"http://h/?s3cr3t\",\"b?\"]", "[\"http://h/?<masked>\",\"b?\"]"),
        ("clusterDomain", "what? #5", "what? #5"),
    ] {
        assert_eq!(shown_value(field, value), expected);
        // Masking again changes nothing, in the text around it either.
        assert_eq!(shown_value(field, expected), expected);
    }
    let again = "a: https://h/p?<masked>: must not";
    assert_eq!(without_credentials(again), again);
    let diagnostic = Diagnostic::error("", "cannot fetch https://h/p?s3cr3t now");
    assert_eq!(diagnostic.to_string(), "cannot fetch https://h/p?<masked> now");
}

#[test]
fn unknown_fields_with_secret_names_are_masked() {
    for name in
        ["staticPodUrlHeaders", "a.bearerToken", "registryPassword", "apiKey", "env[0].vlaue"]
    {
        assert!(may_be_secret(name), "{name}");
    }
    for name in ["maxPod", "staticPodURLHeader2.x", "tokens.count", "clusterDomian", "env[0].name"]
    {
        assert!(!may_be_secret(name), "{name}");
    }
}
