//! The query of a request for a container's log.
//!
//! Rule: pure; parameters, order of the checks, codes and texts are upstream's
//! (pkg/kubelet/server/server.go getContainerLogs, pkg/apis/core/v1/validation). The feature gate
//! PodLogsQuerySplitStreams is off.

use std::time::Duration;

use ports::ApiTime;
use ports::kubelet_endpoint::container_log_reader::ContainerLogSelection;

use super::query::QueryParameters;
use super::reply::KubeletReply;

/// A valid request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogRequest {
    pub(super) selection: ContainerLogSelection,
    /// The container before the current one.
    pub(super) previous: bool,
    pub(super) timestamps: bool,
    pub(super) limit_bytes: Option<u64>,
    /// A stream that cannot be returned alone; only reported once the container is found.
    other_stream: Option<String>,
}

impl LogRequest {
    pub(super) fn parse(query: &str, now: ApiTime) -> Result<Self, KubeletReply> {
        let query = QueryParameters::parse(query);
        let undecodable = || KubeletReply::text(400, "{\"message\": \"Unable to decode query.\"}");
        let number = |name: &str| {
            let value = query.first(name).map(str::parse::<i64>);
            value.transpose().map_err(|_| undecodable())
        };
        let tail = match query.first("tail").filter(|tail| !tail.is_empty()) {
            None => number("tailLines")?,
            Some("all") => None,
            Some(_) => number("tail")?,
        };
        let (since_seconds, limit) = (number("sinceSeconds")?, number("limitBytes")?);
        let since_time = match query.first("sinceTime") {
            None => None,
            // As a time without a value.
            Some("" | "null") => Some(ApiTime::from_nanos(i64::MIN)),
            Some(text) => Some(ApiTime::parse(text).ok_or_else(undecodable)?),
        };
        let stream = query.first("stream");
        let other_stream = stream.filter(|stream| *stream != "All").map(str::to_owned);
        let is_invalid = tail.is_some_and(|tail| tail < 0)
            || limit.is_some_and(|limit| limit < 1)
            || since_seconds.is_some_and(|seconds| seconds < 1 || since_time.is_some())
            || other_stream.as_ref().is_some_and(|stream| {
                tail.is_some() || !["Stdout", "Stderr"].contains(&stream.as_str())
            });
        if is_invalid {
            return Err(KubeletReply::text(422, "{\"message\": \"Invalid request.\"}"));
        }
        let since = since_seconds.map(|seconds| before(now, seconds)).or(since_time);
        let selection = ContainerLogSelection {
            tail: tail.and_then(|tail| u64::try_from(tail).ok()),
            since,
            follow: query.is_true("follow"),
        };
        Ok(Self {
            selection,
            previous: query.is_true("previous"),
            timestamps: query.is_true("timestamps"),
            limit_bytes: limit.and_then(|limit| u64::try_from(limit).ok()),
            other_stream,
        })
    }

    /// Rejects a stream that cannot be returned alone.
    pub(super) fn check_stream(&self) -> Result<(), KubeletReply> {
        let Some(stream) = &self.other_stream else { return Ok(()) };
        Err(KubeletReply::text(
            400,
            format!(
                "unable to return the given log stream: {stream:?}. Please enable \
                 PodLogsQuerySplitStreams feature gate in kubelet"
            ),
        ))
    }
}

fn before(now: ApiTime, seconds: i64) -> ApiTime {
    let nanos = Duration::from_secs(seconds.unsigned_abs()).as_nanos();
    ApiTime::from_nanos(now.nanos().saturating_sub(i64::try_from(nanos).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: ApiTime = ApiTime::from_nanos(100_000_000_000);

    fn request() -> LogRequest {
        LogRequest {
            selection: ContainerLogSelection::default(),
            previous: false,
            timestamps: false,
            limit_bytes: None,
            other_stream: None,
        }
    }

    fn selected(selection: ContainerLogSelection) -> LogRequest {
        LogRequest { selection, ..request() }
    }

    #[test]
    fn parameters_are_read_as_upstream_reads_them() {
        let none = ContainerLogSelection::default();
        let tail = |lines| selected(ContainerLogSelection { tail: Some(lines), ..none });
        let since = |nanos| {
            selected(ContainerLogSelection { since: Some(ApiTime::from_nanos(nanos)), ..none })
        };
        let follow = || selected(ContainerLogSelection { follow: true, ..none });
        let table = [
            ("", request()),
            ("unknown=1&pretty", request()),
            ("follow=true", follow()),
            ("follow=1", follow()),
            ("follow", follow()),
            ("follow=yes", follow()),
            ("follow=False", request()),
            ("follow=0&follow=1", request()),
            ("previous=true", LogRequest { previous: true, ..request() }),
            ("timestamps=true", LogRequest { timestamps: true, ..request() }),
            ("tailLines=10", tail(10)),
            ("tailLines=0", tail(0)),
            ("tail=7&tailLines=10", tail(7)),
            ("tail=all&tailLines=10", request()),
            ("tail=&tailLines=10", tail(10)),
            ("sinceSeconds=40", since(60_000_000_000)),
            ("sinceSeconds=9223372036854775807", since(NOW.nanos() - i64::MAX)),
            ("sinceTime=1970-01-01T00:00:01Z", since(1_000_000_000)),
            ("sinceTime=1970-01-01T01:00:01%2B01:00", since(1_000_000_000)),
            ("sinceTime=", since(i64::MIN)),
            ("limitBytes=1", LogRequest { limit_bytes: Some(1), ..request() }),
            ("stream=All&tailLines=10", tail(10)),
        ];
        for (query, expected) in table {
            assert_eq!(LogRequest::parse(query, NOW), Ok(expected), "{query}");
        }
    }

    #[test]
    fn undecodable_and_invalid_parameters_have_upstreams_codes() {
        let table = [
            ("tailLines=x", 400),
            ("tailLines=", 400),
            ("tail=x", 400),
            ("limitBytes=1.5", 400),
            ("sinceSeconds=9223372036854775808", 400),
            ("sinceTime=yesterday", 400),
            ("tailLines=-1", 422),
            ("limitBytes=0", 422),
            ("sinceSeconds=0", 422),
            ("sinceSeconds=1&sinceTime=1970-01-01T00:00:01Z", 422),
            ("stream=both", 422),
            ("stream=Stdout&tailLines=1", 422),
        ];
        for (query, status) in table {
            let rejected = LogRequest::parse(query, NOW).map_err(|reply| reply.status);
            assert_eq!(rejected, Err(status), "{query}");
        }
        let one_stream = LogRequest::parse("stream=Stdout", NOW).expect("is valid");
        let text = "unable to return the given log stream: \"Stdout\". Please enable \
                    PodLogsQuerySplitStreams feature gate in kubelet";
        let rejected = one_stream.check_stream();
        assert_eq!(rejected, Err(KubeletReply::text(400, text)));
    }
}
