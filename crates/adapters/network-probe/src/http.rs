//! An HTTP GET probe and the meaning of its response (upstream: pkg/probe/http).
//!
//! Rule: 200 to 399 is a success; redirects are followed on the same host, ten times; one to
//! another host is a success with a warning. Certificates are not verified. The body of a failure
//! is never reported.

use std::sync::Arc;
use std::time::Duration;

use http_once::{GetRequest, HttpError, RequestTarget, dial, exchange, is_redirect};
use ports::probing::ProbeAttemptResult;
use rustls::ClientConfig;

#[cfg(test)]
mod tests;

/// How much of a body is read.
const MAX_BODY_BYTES: usize = 10 << 10;

const MAX_REDIRECTS: usize = 10;

pub(crate) struct HttpProbe<'a> {
    pub(crate) secure: bool,
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    pub(crate) path: &'a str,
    pub(crate) headers: &'a [(String, String)],
    pub(crate) user_agent: &'a str,
}

pub(crate) async fn attempt(
    request: &HttpProbe<'_>,
    tls: Option<Arc<ClientConfig>>,
    limit: Duration,
) -> ProbeAttemptResult {
    let target =
        RequestTarget::from_parts(request.secure, request.host, request.port, request.path);
    let url = target.url();
    match tokio::time::timeout(limit, follow(target, sent_headers(request), tls)).await {
        Ok(answer) => answer,
        Err(_) => ProbeAttemptResult::Failure(format!(
            "Get {url:?}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        )),
    }
}

async fn follow(
    first: RequestTarget,
    mut headers: Vec<(String, String)>,
    tls: Option<Arc<ClientConfig>>,
) -> ProbeAttemptResult {
    let mut target = first.clone();
    let mut followed = 0;
    loop {
        let failed = |reason: String| {
            ProbeAttemptResult::Failure(format!("Get {:?}: {reason}", target.url()))
        };
        let get_request = GetRequest {
            target: &target,
            headers: &headers,
            body_limit: MAX_BODY_BYTES,
            tls: tls.clone(),
        };
        let answer = match dial(&target.host, target.port()).await {
            Ok(tcp_connection) => exchange(tcp_connection, &get_request).await,
            Err(failure) => Err(failure),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(HttpError::PlainHttp) => {
                let text = format!("Get {:?}: {}", target.url(), HttpError::PlainHttp);
                return ProbeAttemptResult::PlainHttp(text);
            }
            Err(failure) => return failed(failure.to_string()),
        };
        let body = || String::from_utf8_lossy(&answer.body).into_owned();
        if let (true, Some(location)) = (is_redirect(answer.status), &answer.location) {
            let next = match target.join(location) {
                Ok(next) => next,
                Err(reason) => {
                    return ProbeAttemptResult::Failure(format!("Get {location:?}: {reason}"));
                }
            };
            if next.host.eq_ignore_ascii_case(&first.host) {
                if followed == MAX_REDIRECTS {
                    let url = next.url();
                    let reason = format!("Get {url:?}: stopped after {MAX_REDIRECTS} redirects");
                    return ProbeAttemptResult::Failure(reason);
                }
                followed += 1;
                // The pod's `Host` header is used only until a redirect names a host.
                if location.contains("//") {
                    headers.retain(|(name, _)| !name.eq_ignore_ascii_case("host"));
                }
                target = next;
                continue;
            }
        }
        return match answer.status {
            200..=299 => ProbeAttemptResult::Success(body()),
            300..=399 => ProbeAttemptResult::Warning(format!(
                "Probe terminated redirects, Response body: {}",
                body()
            )),
            status => {
                ProbeAttemptResult::Failure(format!("HTTP probe failed with statuscode: {status}"))
            }
        };
    }
}

/// The pod's headers, with defaults for those that it does not set; an empty one removes the
/// default.
fn sent_headers(request: &HttpProbe<'_>) -> Vec<(String, String)> {
    let of =
        |wanted: &str| request.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
    let is = |name: &str, wanted: &str| name.eq_ignore_ascii_case(wanted);
    let mut headers: Vec<(String, String)> = Vec::new();
    for (name, value) in request.headers {
        let dropped = is(name, "connection")
            || (is(name, "accept") && of("accept").is_some_and(|(_, first)| first.is_empty()))
            || (is(name, "user-agent") && value.is_empty())
            || (is(name, "host")
                && (value.is_empty() || headers.iter().any(|(n, _)| is(n, "host"))));
        if !dropped {
            headers.push((name.clone(), value.clone()));
        }
    }
    if of("user-agent").is_none() {
        headers.push(("User-Agent".to_owned(), request.user_agent.to_owned()));
    }
    if of("accept").is_none() {
        headers.push(("Accept".to_owned(), "*/*".to_owned()));
    }
    headers
}
