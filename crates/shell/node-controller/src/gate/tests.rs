//! What an error says about the API server.

use super::*;

#[test]
fn only_what_the_api_server_does_is_its_trouble() {
    let (request, text) = (|| "PATCH n".to_owned(), || "so it is".to_owned());
    let (none, some, long) = (None, Some(Duration::ZERO), Duration::from_secs(9));
    let api = Failure::Api;
    let table = [
        (api(ClusterApiError::Throttled { request: request(), retry_after: long }), Some(long)),
        (api(ClusterApiError::Unanswered { request: request(), cause: text() }), some),
        (api(ClusterApiError::Unreachable { request: request(), cause: text() }), some),
        (Failure::Late(long), some),
        // The client's rate limit, the end of the term, and responses about one object.
        (api(ClusterApiError::OutOfTurn { request: request(), turn_in: long }), none),
        (Failure::OutOfTurn(long), none),
        (Failure::NotLeading, none),
        (api(ClusterApiError::NotFound { request: request() }), none),
        (api(ClusterApiError::Conflict { request: request(), message: text() }), none),
    ];
    for (failure, expected) in table {
        assert_eq!(failure.trouble(), expected, "{failure}");
    }
}

/// It is retried, and does not count as a response.
#[test]
fn what_was_out_of_turn_is_neither_hopeless_nor_answered() {
    let turn_in = Duration::from_secs(9);
    let told = ClusterApiError::OutOfTurn { request: "PATCH n".to_owned(), turn_in };
    for failure in [Failure::OutOfTurn(turn_in), Failure::Api(told)] {
        assert!(failure.is_out_of_turn(), "{failure}");
        assert!(!failure.is_hopeless() && !failure.is_answer(), "{failure}");
        assert_eq!(failure.outcome(), "out_of_turn");
    }
}
