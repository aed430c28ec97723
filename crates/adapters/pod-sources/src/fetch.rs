//! One GET of a manifest URL, redirects included.
//!
//! Rule: as Go's default client: ten redirects, and headers that may be secret are not sent to
//! another domain. All of it has one timeout.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use http_once::{GetRequest, RequestTarget, dial, exchange, is_redirect};
use rustls::ClientConfig;

use crate::MAX_MANIFEST_BYTES;

/// For connecting, all redirects and the body together (upstream: config/http.go).
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

const MAX_REDIRECTS: usize = 10;

/// Headers that are dropped when a redirect leaves the domain.
const SENSITIVE: &[&str] = &[
    "authorization",
    "cookie",
    "cookie2",
    "proxy-authenticate",
    "proxy-authorization",
    "www-authenticate",
];

pub(crate) async fn fetch(
    start: &RequestTarget,
    headers: &[(String, String)],
    tls: Option<Arc<ClientConfig>>,
) -> Result<Vec<u8>, String> {
    match tokio::time::timeout(FETCH_TIMEOUT, follow(start, headers, tls)).await {
        Ok(answer) => answer,
        Err(_) => {
            Err(format!("{}: no whole answer within {FETCH_TIMEOUT:?}", start.redacted_url()))
        }
    }
}

async fn follow(
    start: &RequestTarget,
    configured: &[(String, String)],
    tls: Option<Arc<ClientConfig>>,
) -> Result<Vec<u8>, String> {
    let mut target = start.clone();
    let mut headers = sent_headers(start, configured);
    for _ in 0..=MAX_REDIRECTS {
        let shown = target.redacted_url();
        if target.secure && tls.is_none() {
            return Err(format!("{shown}: no certificate authorities to check the server with"));
        }
        let get_request = GetRequest {
            target: &target,
            headers: &headers,
            body_limit: MAX_MANIFEST_BYTES,
            tls: tls.clone(),
        };
        let tcp_connection =
            dial(&target.host, target.port()).await.map_err(|error| format!("{shown}: {error}"))?;
        let answer = exchange(tcp_connection, &get_request)
            .await
            .map_err(|error| format!("{shown}: {error}"))?;
        if let (true, Some(location)) = (is_redirect(answer.status), &answer.location) {
            let next =
                target.join(location).map_err(|reason| format!("{shown}: redirect: {reason}"))?;
            if !is_same_domain(&start.host, &next.host) {
                headers.retain(|(name, _)| !is_sensitive(name));
            }
            target = next;
            continue;
        }
        if answer.truncated || answer.body.len() >= MAX_MANIFEST_BYTES {
            return Err(format!("{shown}: longer than {} MiB", MAX_MANIFEST_BYTES >> 20));
        }
        if answer.status != 200 {
            return Err(format!("{shown}: status {}", answer.status));
        }
        return Ok(answer.body);
    }
    Err(format!("{}: stopped after {MAX_REDIRECTS} redirects", start.redacted_url()))
}

fn sent_headers(start: &RequestTarget, configured: &[(String, String)]) -> Vec<(String, String)> {
    // Go's client takes the host from the URL alone.
    let own = |name: &str| name.eq_ignore_ascii_case("host");
    let mut headers: Vec<_> = configured.iter().filter(|(name, _)| !own(name)).cloned().collect();
    let has = |wanted: &str| configured.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
    if let Some(user) = start.user.as_ref().filter(|_| !has("authorization")) {
        let plain: Vec<u8> = percent_encoding::percent_decode_str(user).collect();
        let coded = base64::engine::general_purpose::STANDARD.encode(plain);
        headers.push(("Authorization".to_owned(), format!("Basic {coded}")));
    }
    if !has("user-agent") {
        let agent = concat!("keelson/", env!("CARGO_PKG_VERSION"));
        headers.push(("User-Agent".to_owned(), agent.to_owned()));
    }
    headers
}

fn is_sensitive(name: &str) -> bool {
    SENSITIVE.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Whether a redirect stays at the first host or goes to a subdomain of it.
fn is_same_domain(first: &str, next: &str) -> bool {
    let (first, next) = (first.to_ascii_lowercase(), next.to_ascii_lowercase());
    if first == next {
        return true;
    }
    // An address has no subdomains.
    let is_address = next.contains(':') || next.contains('%');
    !is_address && next.strip_suffix(&first).is_some_and(|above| above.ends_with('.'))
}

#[cfg(test)]
mod tests;
