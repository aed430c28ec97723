//! Which plugins are called, what a response means, and how long it is cached.

use super::*;

const V1: &str = VERSIONS[0];

fn provider(places: &[&str]) -> CredentialPlugin {
    CredentialPlugin {
        name: "p".to_owned(),
        match_images: places.iter().map(|place| (*place).to_owned()).collect(),
        default_cache_duration: GoDuration::from_secs(60),
        message_version: V1.to_owned(),
        service_account_token: ServiceAccountTokenUse::Unused,
    }
}

fn response(more: &str) -> Result<CredentialResponse, CredentialProviderError> {
    let text = format!(r#"{{"apiVersion":"{V1}","kind":"{KIND}"{more}}}"#);
    provider(&[]).parse_response(text.as_bytes())
}

fn names(logins: Option<&RegistryLogins>, image: &str) -> Option<Vec<String>> {
    logins.map(|all| all.matching(image).into_iter().map(|login| login.username).collect())
}

#[test]
fn a_plugin_is_asked_only_for_images_that_match_its_patterns() {
    for (places, image, expected) in [
        (&["r.example"][..], "r.example/i", true),
        (&["s.example", "r.example"][..], "r.example/i", true),
        (&["*.example"][..], "r.example/i", true),
        (&["*.example"][..], "a.r.example/i", false),
        (&["*.*.example"][..], "a.r.example/i", true),
        (&["r.example/team"][..], "r.example/team/i", true),
        (&["r.example/team"][..], "r.example/i", false),
        (&["r.example:5000"][..], "r.example:5000/i", true),
        (&["r.example:5000"][..], "r.example/i", false),
        (&["r.example"][..], "r.example:5000/i", false),
        (&["docker.io"][..], "docker.io/library/busybox", true),
        (&[][..], "r.example/i", false),
    ] {
        assert_eq!(provider(places).applies_to(image, ""), Ok(expected), "{places:?} {image}");
    }
}

#[test]
fn service_account_tokens_decide_which_plugin_is_asked() {
    use ServiceAccountTokenUse::{Optional, Required, Unused};
    for (token, account, expected) in [
        (Unused, "", Some(true)),
        (Unused, "builder", Some(true)),
        (Optional, "", Some(true)),
        (Optional, "builder", None),
        (Required, "", Some(false)),
        (Required, "builder", None),
    ] {
        let provider =
            CredentialPlugin { service_account_token: token, ..provider(&["r.example"]) };
        let asked = provider.applies_to("r.example/i", account);
        assert_eq!(asked.as_ref().ok().copied(), expected, "{token:?} {account:?}: {asked:?}");
        if let Err(error) = asked {
            let why = error.to_string();
            assert!(why.contains("tokenAttributes") && why.contains("builder"), "{why}");
        }
        assert_eq!(provider.applies_to("s.example/i", account), Ok(false), "not its image");
    }
}

#[test]
fn the_request_names_version_kind_and_image() {
    let request: Value = serde_json::from_slice(&provider(&[]).request("r.example/i")).unwrap();
    let expected = json!({
        "apiVersion": V1, "kind": "CredentialProviderRequest", "image": "r.example/i"
    });
    assert_eq!(request, expected);
}

#[test]
fn answers_are_read() {
    let response = response(
        r#","cacheKeyType":"Registry","cacheDuration":"1h30m","auth":{
            "r.example":{"username":"all","password":"x"},
            "r.example/team":{"username":"team"},
            "*.example":{"password":""}}"#,
    );
    let response = response.unwrap();
    assert_eq!(
        (response.scope, response.cache_duration),
        (CredentialScope::Registry, Some(GoDuration::from_secs(5400)))
    );
    assert_eq!(names(Some(&response.logins), "r.example/team/i").unwrap(), ["team", "all", ""]);
    for nothing in [r#","auth":null"#, r#","auth":{}"#, "", r#","cacheDuration":null"#] {
        let read = self::response(&format!(r#","cacheKeyType":"Image"{nothing}"#)).unwrap();
        assert!(read.logins.is_empty() && read.cache_duration.is_none(), "{nothing}");
    }
}

#[test]
fn invalid_responses_are_refused_without_leaking_content() {
    let whole = |version: &str, rest: &str| {
        provider(&[]).parse_response(format!(r#"{{"apiVersion":"{version}"{rest}}}"#).as_bytes())
    };
    let good = format!(r#","kind":"{KIND}","cacheKeyType":"Image""#);
    assert!(whole(V1, &good).is_ok());
    for (read, expected) in [
        (provider(&[]).parse_response(b"se\ncret"), "not JSON (line 1)"),
        (provider(&[]).parse_response(b""), "not JSON"),
        (provider(&[]).parse_response(b"[\"secret\"]"), "expected an object"),
        (whole(VERSIONS[1], &good), "apiVersion: \"credentialprovider.kubelet.k8s.io/v1beta1\""),
        (whole("secret", &good), "apiVersion: expected \"credentialprovider.kubelet.k8s.io/v1\""),
        (provider(&[]).parse_response(b"{}"), "apiVersion: expected"),
        (whole(V1, r#","kind":"secret","cacheKeyType":"Image""#), "kind: expected"),
        (response(""), "cacheKeyType: expected Image, Registry or Global"),
        (response(r#","cacheKeyType":"secret""#), "cacheKeyType: expected"),
        (response(r#","cacheKeyType":5"#), "cacheKeyType: expected text"),
        (
            response(r#","cacheKeyType":"Image","cacheDuration":"secret""#),
            "cacheDuration: expected",
        ),
        (response(r#","cacheKeyType":"Image","cacheDuration":5"#), "cacheDuration: expected"),
        (response(r#","cacheKeyType":"Image","auth":"secret""#), "auth: expected an object"),
        (response(r#","cacheKeyType":"Image","secret":"secret""#), "a field other than"),
        (
            response(r#","cacheKeyType":"Image","auth":{"secret":"secret"}"#),
            "auth, entry 1: expected an object",
        ),
        (
            response(
                r#","cacheKeyType":"Image","auth":{"r":{"username":"secret","email":"secret"}}"#,
            ),
            "auth, entry 1: a field other than username, password",
        ),
        (
            response(r#","cacheKeyType":"Image","auth":{"r":{"password":["secret"]}}"#),
            "auth, entry 1: password: expected text",
        ),
    ] {
        let why = read.unwrap_err().to_string();
        assert!(why.contains(expected) && why.contains("provider p"), "{why} has {expected}");
        assert!(!why.contains("secret"), "{why}");
    }
    let shown = response(r#","cacheKeyType":"Image","auth":{"r":{"password":"secret"}}"#);
    assert!(!format!("{shown:?}").contains("secret"));
}

/// A response with the user "me" for every image, with this scope and cache duration.
fn entries(scope: &str, duration: &str) -> CredentialResponse {
    response(&format!(
        r#","cacheKeyType":"{scope}"{duration},"auth":{{"*.example":{{"username":"me"}}}}"#
    ))
    .unwrap()
}

#[test]
fn a_response_is_cached_for_its_scope() {
    for (scope, same, registry, other) in [
        ("Image", true, false, false),
        ("Registry", true, true, false),
        ("Global", true, true, true),
    ] {
        let mut cache = CredentialCache::default();
        cache.keep(&provider(&[]), "r.example/i", &entries(scope, ""), Duration::ZERO);
        let has = |provider: &str, image: &str| {
            names(cache.find(provider, image, Duration::ZERO), image).is_some()
        };
        assert_eq!(has("p", "r.example/i"), same, "{scope}");
        assert_eq!(has("p", "r.example/j"), registry, "{scope}");
        assert_eq!(has("p", "s.example/i"), other, "{scope}");
        assert!(!has("q", "r.example/i"), "another program's");
    }
}

#[test]
fn a_response_is_cached_for_its_duration() {
    for (duration, default, expected) in [
        (r#","cacheDuration":"10s""#, 60, Some(10)),
        ("", 60, Some(60)),
        (r#","cacheDuration":null"#, 60, Some(60)),
        (r#","cacheDuration":"0s""#, 60, None),
        (r#","cacheDuration":"-1s""#, 60, None),
        ("", 0, None),
    ] {
        let provider = CredentialPlugin {
            default_cache_duration: GoDuration::from_secs(default),
            ..provider(&[])
        };
        let mut cache = CredentialCache::default();
        let began = Duration::from_secs(1000);
        cache.keep(&provider, "r.example/i", &entries("Image", duration), began);
        let has = |after: Duration| cache.find("p", "r.example/i", began + after).is_some();
        match expected {
            None => assert!(!has(Duration::ZERO), "{duration} {default}"),
            Some(seconds) => {
                let span = Duration::from_secs(seconds);
                assert!(has(span), "{duration} {default}");
                assert!(!has(span + Duration::from_nanos(1)), "{duration} {default}");
            }
        }
    }
}

#[test]
fn a_newer_response_replaces_the_older_and_expired_ones_are_removed() {
    let mut cache = CredentialCache::default();
    cache.keep(&provider(&[]), "r.example/i", &entries("Image", ""), Duration::ZERO);
    let other = response(r#","cacheKeyType":"Image","auth":{"r.example":{"username":"you"}}"#);
    cache.keep(&provider(&[]), "r.example/i", &other.unwrap(), Duration::from_secs(1));
    let found = cache.find("p", "r.example/i", Duration::from_secs(2));
    assert_eq!(names(found, "r.example/i").unwrap(), ["you"]);
    cache.keep(&provider(&[]), "r.example/j", &entries("Image", ""), Duration::from_secs(600));
    assert_eq!(cache.entries.len(), 1, "{:?}", cache.entries.keys());
}

#[test]
fn the_cache_is_bounded() {
    let mut cache = CredentialCache::default();
    for at in 0..MAX_CACHED_RESPONSES + 10 {
        let now = Duration::from_nanos(at as u64);
        cache.keep(&provider(&[]), &format!("r.example/i{at}"), &entries("Image", ""), now);
    }
    assert_eq!(cache.entries.len(), MAX_CACHED_RESPONSES);
    let now = Duration::from_secs(1);
    assert!(cache.find("p", "r.example/i0", now).is_none(), "the first to end makes room");
    assert!(cache.find("p", &format!("r.example/i{}", MAX_CACHED_RESPONSES + 9), now).is_some());
}
