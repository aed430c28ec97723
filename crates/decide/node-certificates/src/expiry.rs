//! When a node that has lost its identity ends, so that a new start can look for another.
//!
//! Rule: pure. Only while the API server answers: as long as it is away, a new start could find
//! nothing better, and the pods need their agent. upstream: pkg/kubelet/certificate/transport.go

use std::time::Duration;

use ports::{ApiTime, CertificateFacts, ClusterApiError};

/// How long a node may have no certificate at all.
const ABSENT: Duration = Duration::from_secs(5 * 60);

/// What is known of the client certificate.
#[derive(Clone, Copy, Debug)]
pub struct ClientState<'a> {
    pub current: Option<&'a CertificateFacts>,
    /// When there last was one, or when the agent started.
    pub last_seen: ApiTime,
    /// Whether the API server answered the last request for a certificate, also by refusing it.
    pub server_answers: bool,
}

/// Whether the agent goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    GoesOn,
    /// The certificate is of no use, but a new start would not help.
    Waits(&'static str),
    Ends(&'static str),
}

/// The verdict at this time.
pub fn verdict(state: &ClientState<'_>, now: ApiTime) -> Verdict {
    let absent = i64::try_from(ABSENT.as_nanos()).unwrap_or(i64::MAX);
    let (ends, waits) = match state.current {
        Some(current) if now > current.not_after => (
            "The currently active client certificate has expired and the server is responsive, \
             exiting",
            "The currently active client certificate has expired, but the server is not \
             responsive. A restart may be necessary to retrieve new initial credentials",
        ),
        None if now.nanos().saturating_sub(state.last_seen.nanos()) > absent => (
            "It has been 5m0s since a valid client cert was found and the server is responsive, \
             exiting",
            "It has been 5m0s since a valid client cert was found, but the server is not \
             responsive. A restart may be necessary to retrieve new initial credentials",
        ),
        _ => return Verdict::GoesOn,
    };
    if state.server_answers { Verdict::Ends(ends) } else { Verdict::Waits(waits) }
}

/// Whether an error comes from an API server that works: it knows neither us nor, perhaps, the
/// kind of object, but a load balancer in front of it would answer otherwise.
pub fn server_answers(error: &ClusterApiError) -> bool {
    match error {
        ClusterApiError::Unauthenticated { .. } | ClusterApiError::NotFound { .. } => true,
        ClusterApiError::Refused { status, .. } => *status == 403,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::client_template;

    fn minutes(count: i64) -> ApiTime {
        ApiTime::from_nanos(count * 60_000_000_000)
    }

    #[test]
    fn only_a_lost_identity_and_an_api_server_that_answers_end_the_agent() {
        let valid_until = |end: i64| CertificateFacts {
            subject: client_template("n"),
            not_before: minutes(0),
            not_after: minutes(end),
        };
        let (valid, expired) = (valid_until(60), valid_until(10));
        let kind = |verdict| match verdict {
            Verdict::GoesOn => "goes on",
            Verdict::Waits(_) => "waits",
            Verdict::Ends(_) => "ends",
        };
        let table = [
            (Some(&valid), 0, true, "goes on"),
            (Some(&valid), 0, false, "goes on"),
            (Some(&expired), 10, true, "ends"),
            (Some(&expired), 10, false, "waits"),
            (None, 10, true, "goes on"),
            (None, 6, true, "goes on"),
            (None, 5, true, "ends"),
            (None, 5, false, "waits"),
        ];
        for (current, seen, server_answers, expected) in table {
            let state = ClientState { current, last_seen: minutes(seen), server_answers };
            assert_eq!(kind(verdict(&state, minutes(11))), expected, "{state:?}");
        }
    }

    #[test]
    fn an_api_server_answers_if_it_authorizes() {
        let request = String::new;
        let refused = |status| ClusterApiError::Refused {
            request: request(),
            status,
            reason: String::new(),
            message: String::new(),
        };
        let table = [
            (ClusterApiError::NotFound { request: request() }, true),
            (ClusterApiError::Unauthenticated { request: request(), message: String::new() }, true),
            (refused(403), true),
            (refused(422), false),
            (
                ClusterApiError::ServerError {
                    request: request(),
                    status: 502,
                    message: String::new(),
                },
                false,
            ),
            (ClusterApiError::Unreachable { request: request(), cause: String::new() }, false),
            (ClusterApiError::NoCredentials { request: request(), cause: String::new() }, false),
        ];
        for (error, expected) in table {
            assert_eq!(server_answers(&error), expected, "{error:?}");
        }
    }
}
