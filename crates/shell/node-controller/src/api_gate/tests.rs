//! What an error says about the API server.

use super::*;

#[test]
fn only_api_server_errors_hold_back_all_requests() {
    let (request, text) = (|| "PATCH n".to_owned(), || "so it is".to_owned());
    let (none, some, long) = (None, Some(Duration::ZERO), Duration::from_secs(9));
    let api = RequestError::Api;
    let table = [
        (api(ClusterApiError::Throttled { request: request(), retry_after: long }), Some(long)),
        (api(ClusterApiError::NoResponse { request: request(), cause: text() }), some),
        (api(ClusterApiError::Unreachable { request: request(), cause: text() }), some),
        (RequestError::Timeout(long), some),
        // The client's rate limit, the end of the term, and responses about one object.
        (api(ClusterApiError::RateLimited { request: request(), rate_limit_delay: long }), none),
        (RequestError::OutOfTurn(long), none),
        (RequestError::NotLeading, none),
        (api(ClusterApiError::NotFound { request: request() }), none),
        (api(ClusterApiError::Conflict { request: request(), message: text() }), none),
    ];
    for (failure, expected) in table {
        assert_eq!(failure.server_back_off(), expected, "{failure}");
    }
}

/// It is retried, and does not count as a response.
#[test]
fn a_rate_limited_request_is_neither_permanent_nor_answered() {
    let rate_limit_delay = Duration::from_secs(9);
    let rate_limited =
        ClusterApiError::RateLimited { request: "PATCH n".to_owned(), rate_limit_delay };
    for failure in [RequestError::OutOfTurn(rate_limit_delay), RequestError::Api(rate_limited)] {
        assert!(failure.is_rate_limited(), "{failure}");
        assert!(!failure.is_permanent() && !failure.is_answer(), "{failure}");
        assert_eq!(failure.outcome(), "out_of_turn");
    }
}
