//! Turns an error response into an error.
//!
//! Rule: the HTTP code decides, and the reason in the body only distinguishes errors that share a
//! code. The body may be anything (a proxy's page, half a document): then its beginning is the
//! message.

use std::time::Duration;

use bytes::Bytes;
use ports::ClusterApiError;
use prost::Message as _;
use serde::Deserialize;

use crate::protobuf;

/// The parts of a `ApiStatus` object that describe an error.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ApiStatus {
    pub(crate) kind: String,
    pub(crate) code: u16,
    reason: String,
    message: String,
    details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Details {
    retry_after_seconds: u64,
}

/// How much of a body that is no `ApiStatus` goes into a message.
const MAX_SHOWN_CHARS: usize = 300;
/// The pause for a 429 without `Retry-After`.
const DEFAULT_PAUSE: Duration = Duration::from_secs(1);
/// Upper bound of the pause that a server asks for: a server that asks for an hour is tried again
/// after this.
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(60);

impl ApiStatus {
    pub(crate) fn parse(body: &[u8]) -> Self {
        match serde_json::from_slice::<Self>(body) {
            Ok(status) if status.kind == "Status" => status,
            _ => Self { message: beginning(&String::from_utf8_lossy(body)), ..Self::default() },
        }
    }

    /// Decodes a `ApiStatus` from protobuf.
    pub(crate) fn from_protobuf(bytes: Bytes) -> Result<Self, String> {
        let status = protobuf::ApiStatus::decode(bytes).map_err(|error| error.to_string())?;
        let seconds = status.details.map(|details| details.retry_after_seconds);
        Ok(Self {
            kind: "Status".to_owned(),
            code: u16::try_from(status.code).unwrap_or_default(),
            reason: status.reason,
            message: status.message,
            details: seconds.map(|seconds| Details {
                retry_after_seconds: u64::try_from(seconds).unwrap_or_default(),
            }),
        })
    }

    /// The error for this response. `code` is HTTP's; inside a watch, the status has its own.
    pub(crate) fn into_error(
        self,
        request: &str,
        code: u16,
        retry_after: Option<Duration>,
    ) -> ClusterApiError {
        let request = request.to_owned();
        let message = beginning(&self.message);
        match code {
            401 => ClusterApiError::Unauthenticated { request, message },
            404 => ClusterApiError::NotFound { request },
            409 if self.reason == "AlreadyExists" => ClusterApiError::AlreadyExists { request },
            409 => ClusterApiError::Conflict { request, message },
            410 => ClusterApiError::Expired { request, message },
            429 => {
                let retry_after_body = self.details.map(|details| details.retry_after_seconds);
                let retry_after_body =
                    retry_after_body.filter(|seconds| *seconds > 0).map(Duration::from_secs);
                // The only place that bounds the pause that a server asks for.
                let retry_after =
                    retry_after.or(retry_after_body).unwrap_or(DEFAULT_PAUSE).min(MAX_PAUSE);
                ClusterApiError::Throttled { request, retry_after }
            }
            500.. => ClusterApiError::ServerError { request, status: code, message },
            _ => ClusterApiError::Refused { request, status: code, reason: self.reason, message },
        }
    }
}

/// The value of a `Retry-After` header if it is a number of seconds, of any size.
pub(crate) fn retry_after(header: Option<&[u8]>) -> Option<Duration> {
    let seconds: u64 = std::str::from_utf8(header?).ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn beginning(text: &str) -> String {
    let line: String = text.trim().chars().take(MAX_SHOWN_CHARS).collect();
    line.replace(|character: char| character.is_control(), " ")
}

#[cfg(test)]
mod tests;
