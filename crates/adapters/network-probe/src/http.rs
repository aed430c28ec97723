//! An HTTP GET probe and the meaning of its response (upstream: pkg/probe/http).
//!
//! Rule: 200 to 399 is a success; redirects are followed on the same host, ten times; one to
//! another host is a success with a warning. Certificates are not verified. The body of a failure
//! is never reported.

use std::sync::Arc;
use std::time::Duration;

use http_once::{Ask, Failure, Target, dial, exchange, is_redirect};
use ports::probing::TryAnswer;
use rustls::ClientConfig;

#[cfg(test)]
mod tests;

/// How much of a body is read.
const LONGEST_BODY: usize = 10 << 10;

const MOST_REDIRECTS: usize = 10;

pub(crate) struct HttpTry<'a> {
    pub(crate) secure: bool,
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    pub(crate) path: &'a str,
    pub(crate) headers: &'a [(String, String)],
    pub(crate) user_agent: &'a str,
}

pub(crate) async fn attempt(
    request: &HttpTry<'_>,
    tls: Option<Arc<ClientConfig>>,
    limit: Duration,
) -> TryAnswer {
    let target = Target::at(request.secure, request.host, request.port, request.path);
    let url = target.url();
    match tokio::time::timeout(limit, follow(target, sent_headers(request), tls)).await {
        Ok(answer) => answer,
        Err(_) => TryAnswer::Failure(format!(
            "Get {url:?}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        )),
    }
}

async fn follow(
    first: Target,
    mut headers: Vec<(String, String)>,
    tls: Option<Arc<ClientConfig>>,
) -> TryAnswer {
    let mut target = first.clone();
    let mut followed = 0;
    loop {
        let failed = |why: String| TryAnswer::Failure(format!("Get {:?}: {why}", target.url()));
        let ask =
            Ask { target: &target, headers: &headers, body_limit: LONGEST_BODY, tls: tls.clone() };
        let answer = match dial(&target.host, target.port()).await {
            Ok(line) => exchange(line, &ask).await,
            Err(failure) => Err(failure),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(Failure::PlainHttp) => {
                let text = format!("Get {:?}: {}", target.url(), Failure::PlainHttp);
                return TryAnswer::PlainHttp(text);
            }
            Err(failure) => return failed(failure.to_string()),
        };
        let body = || String::from_utf8_lossy(&answer.body).into_owned();
        if let (true, Some(place)) = (is_redirect(answer.status), &answer.location) {
            let next = match target.join(place) {
                Ok(next) => next,
                Err(why) => return TryAnswer::Failure(format!("Get {place:?}: {why}")),
            };
            if next.host.eq_ignore_ascii_case(&first.host) {
                if followed == MOST_REDIRECTS {
                    let url = next.url();
                    let why = format!("Get {url:?}: stopped after {MOST_REDIRECTS} redirects");
                    return TryAnswer::Failure(why);
                }
                followed += 1;
                // The pod's `Host` header is used only until a redirect names a host.
                if place.contains("//") {
                    headers.retain(|(name, _)| !name.eq_ignore_ascii_case("host"));
                }
                target = next;
                continue;
            }
        }
        return match answer.status {
            200..=299 => TryAnswer::Success(body()),
            300..=399 => {
                TryAnswer::Warning(format!("Probe terminated redirects, Response body: {}", body()))
            }
            status => TryAnswer::Failure(format!("HTTP probe failed with statuscode: {status}")),
        };
    }
}

/// The pod's headers, with defaults for those that it does not set; an empty one removes the
/// default.
fn sent_headers(request: &HttpTry<'_>) -> Vec<(String, String)> {
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
