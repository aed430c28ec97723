//! Responses of registries, and image names.

use image_store::ImageReference;
use registry_client::address::HttpUrl;
use registry_client::challenge::{Challenge, best};

/// Header lines, then a line with a redirect's location. A challenge survives serialization; a
/// realm that is an address keeps its host, and a redirect to a path never leaves its host.
pub fn challenge(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (headers, location) = text.rsplit_once('\n').unwrap_or((text, ""));
    let headers: Vec<String> = headers.split('\n').map(ToOwned::to_owned).collect();
    let Some(Challenge::Bearer { realm, service, scope }) = best(&headers) else { return };
    assert!(realm.len() <= text.len(), "longer than the header");
    let parameter = |name: &str, value: &Option<String>| {
        value.as_ref().map(|value| format!(", {name}={}", quoted(value))).unwrap_or_default()
    };
    let header = format!(
        "Bearer realm={}{}{}",
        quoted(&realm),
        parameter("service", &service),
        parameter("scope", &scope)
    );
    let parsed = best(&[header]);
    assert_eq!(parsed, Some(Challenge::Bearer { realm: realm.clone(), service, scope }));
    let Ok(address) = HttpUrl::parse(&realm) else { return };
    let odd = |letter: char| letter.is_ascii_control() || " /?#@".contains(letter);
    assert!(!address.host.is_empty() && !address.host.contains(odd), "{:?}", address.host);
    let origin = HttpUrl::parse(&address.origin()).expect("its own origin is an address");
    assert!(origin.same_origin(&address), "{address} became {origin}");
    let Ok(next) = address.follow(location) else { return };
    let leaves = location.starts_with("//") || location.contains("://");
    assert!(leaves || next.same_origin(&address), "{location:?} leads from {address} to {next}");
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Any text as an image's name: its canonical form is a valid name of the same image, and is safe
/// to use as a path.
pub fn reference(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Ok(name) = ImageReference::parse(text) else { return };
    let whole = name.to_string();
    assert_eq!(ImageReference::parse(&whole).as_ref(), Ok(&name), "{text:?} became {whole:?}");
    assert!(whole.is_ascii() && !whole.bytes().any(|byte| byte <= b' '), "{whole:?}");
    let parts = name.repository().split('/');
    assert!(parts.into_iter().all(|part| !part.is_empty() && part != "." && part != ".."));
}
