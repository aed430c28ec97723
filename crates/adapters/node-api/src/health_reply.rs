//! The response of `/healthz`, as a function of the request and the checks.
//!
//! Rule: bytes and status as upstream's (apiserver/pkg/server/healthz): `/healthz` for all checks,
//! `/healthz/NAME` for one, nothing else; `?verbose` lists the checks, `?exclude=NAME` leaves one
//! out; reasons are withheld in the list and given for a single check. Any method is answered.

use crate::health_counts::HealthCheckCounts;
use percent_encoding::percent_decode_str;
use ports::HealthCheck;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A response, before it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HealthReply {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// Answers a request for `path` with the query string `query`; `counts` gets the results.
pub(crate) fn answer(
    path: &str,
    query: &str,
    checks: &[Arc<dyn HealthCheck>],
    counts: &HealthCheckCounts,
) -> HealthReply {
    answer_named("healthz", path, query, checks, Some(counts))
}

/// The same under another name than `healthz`.
pub(crate) fn answer_named(
    page: &str,
    path: &str,
    query: &str,
    checks: &[Arc<dyn HealthCheck>],
    counts: Option<&HealthCheckCounts>,
) -> HealthReply {
    let below = path.strip_prefix('/').and_then(|path| path.strip_prefix(page));
    if below == Some("") {
        return all_checks(page, query, checks, counts);
    }
    let one = below
        .and_then(|below| below.strip_prefix('/'))
        .and_then(|name| checks.iter().find(|check| check.name() == name));
    match one.map(|check| check.check()) {
        None => HealthReply { status: 404, body: "404 page not found\n".to_owned() },
        Some(Ok(())) => HealthReply { status: 200, body: "ok".to_owned() },
        Some(Err(reason)) => {
            HealthReply { status: 500, body: format!("internal server error: {reason}\n") }
        }
    }
}

fn all_checks(
    page: &str,
    query: &str,
    checks: &[Arc<dyn HealthCheck>],
    counts: Option<&HealthCheckCounts>,
) -> HealthReply {
    let parameters = parameters(query);
    let excluded: BTreeSet<&str> = parameters
        .iter()
        .filter(|(name, _)| name == "exclude")
        .map(|(_, value)| value.as_str())
        .collect();
    let mut unmatched = excluded.clone();
    let mut list = String::new();
    let mut failed = false;
    for check in checks {
        let name = check.name();
        if excluded.contains(name) {
            unmatched.remove(name);
            list.push_str(&format!("[+]{name} excluded: ok\n"));
            continue;
        }
        let is_healthy = check.check().is_ok();
        if let Some(counts) = counts {
            counts.observe(name, is_healthy);
        }
        if is_healthy {
            list.push_str(&format!("[+]{name} ok\n"));
        } else {
            failed = true;
            list.push_str(&format!("[-]{name} failed: reason withheld\n"));
        }
    }
    if !unmatched.is_empty() {
        let names: Vec<String> = unmatched.iter().map(|name| format!("{name:?}")).collect();
        list.push_str(&format!(
            "warn: some health checks cannot be excluded: no matches for {}\n",
            names.join(",")
        ));
    }
    if failed {
        return HealthReply { status: 500, body: format!("{list}{page} check failed\n") };
    }
    let verbose = parameters.iter().any(|(name, _)| name == "verbose");
    let body = if verbose { format!("{list}{page} check passed\n") } else { "ok".to_owned() };
    HealthReply { status: 200, body }
}

/// The query's names and values, decoded. A pair that cannot be decoded is skipped.
pub(crate) fn parameters(query: &str) -> Vec<(String, String)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .filter_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decoded(name)?, decoded(value)?))
        })
        .collect()
}

/// A name or value of a query. Stricter than the decoder, which keeps an invalid escape: upstream
/// skips such a pair.
fn decoded(text: &str) -> Option<String> {
    let is_code = |code: &str| code.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    if !text.split('%').skip(1).all(is_code) {
        return None;
    }
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8().ok().map(Cow::into_owned)
}

#[cfg(test)]
mod tests;
