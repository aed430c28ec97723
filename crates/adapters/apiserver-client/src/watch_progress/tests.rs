//! The state machine, one response at a time.

use super::*;

fn expired() -> ClusterApiError {
    ClusterApiError::Expired { request: "r".into(), message: "too old".into() }
}

fn list(token: Option<&str>, limit: u32) -> WatchRequest {
    WatchRequest::List { token: token.map(str::to_owned), limit }
}

fn watch(version: &str) -> WatchRequest {
    WatchRequest::Watch { version: version.to_owned() }
}

fn at(version: &str) -> WatchProgress {
    let mut progress = WatchProgress::new(500);
    assert!(progress.record_page(version, ""));
    progress
}

#[test]
fn pages_follow_one_another_and_a_watch_follows_the_last() {
    let mut progress = WatchProgress::new(500);
    assert_eq!(progress.next_request(), list(None, 500));
    assert!(!progress.record_page("7", "next"));
    assert_eq!(progress.next_request(), list(Some("next"), 500));
    assert!(progress.record_page("7", ""));
    assert_eq!(progress.next_request(), watch("7"));
    progress.record_version("9");
    assert_eq!(progress.next_request(), watch("9"));
    progress.record_version("");
    assert_eq!(progress.next_request(), watch("9"));
}

#[test]
fn an_expired_watch_relists_from_any_position() {
    let mut paging = WatchProgress::new(500);
    paging.record_page("7", "next");
    for mut progress in [WatchProgress::new(500), paging, at("7")] {
        progress.failed(&expired());
        assert_eq!(progress.next_request(), list(None, 500));
    }
}

#[test]
fn other_errors_keep_the_watch_position() {
    let mut paging = WatchProgress::new(500);
    paging.record_page("7", "next");
    let request = String::from("r");
    for error in [
        ClusterApiError::NoResponse { request: request.clone(), cause: "cut".into() },
        ClusterApiError::ServerError { request: request.clone(), status: 500, message: "".into() },
        ClusterApiError::RateLimited {
            request: request.clone(),
            rate_limit_delay: std::time::Duration::ZERO,
        },
        ClusterApiError::Throttled { request, retry_after: std::time::Duration::ZERO },
    ] {
        let mut progress = at("7");
        progress.failed(&error);
        assert_eq!(progress.next_request(), watch("7"), "{error}");
        let mut progress = paging.clone();
        progress.failed(&error);
        assert_eq!(progress.next_request(), list(Some("next"), 500), "{error}");
    }
}

#[test]
fn a_rejected_or_unreadable_version_is_not_requested_again() {
    let refused = ClusterApiError::Refused {
        request: "r".into(),
        status: 400,
        reason: "BadRequest".into(),
        message: "invalid resource version".into(),
    };
    let garbage = ClusterApiError::Unreadable { request: "r".into(), cause: "garbage".into() };
    for error in [refused, garbage] {
        let mut progress = at("7");
        progress.failed(&error);
        assert_eq!(progress.next_request(), list(None, 500), "{error}");
    }
}

#[test]
fn an_oversized_page_is_requested_in_halves_down_to_one_object() {
    let too_large = ClusterApiError::TooLarge { request: "r".into(), limit: 1 };
    let mut progress = WatchProgress::new(5);
    let mut limits = Vec::new();
    for _ in 0..4 {
        progress.failed(&too_large);
        match progress.next_request() {
            WatchRequest::List { limit, .. } => limits.push(limit),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(limits, [2, 1, 1, 1]);
    let mut progress = at("7");
    progress.failed(&too_large);
    assert_eq!(progress.next_request(), list(None, 500));
}

#[test]
fn two_silent_streams_in_a_row_cause_a_relist() {
    let mut progress = at("7");
    progress.record_silent_stream();
    assert_eq!(progress.next_request(), watch("7"));
    progress.record_version("8");
    progress.record_silent_stream();
    assert_eq!(progress.next_request(), watch("8"));
    progress.record_silent_stream();
    assert_eq!(progress.next_request(), list(None, 500));
}

#[test]
fn an_api_server_that_was_unreachable_is_asked_for_its_version() {
    let unreachable =
        || ClusterApiError::Unreachable { request: "r".into(), cause: "refused".into() };
    let rows = [
        ("at a later version", "9", watch("7")),
        ("at the same version", "7", watch("7")),
        ("with older data, by number and not by text", "06", list(None, 500)),
        ("with a version that is no number", "x", watch("7")),
    ];
    for (what, current, next) in rows {
        let mut progress = at("7");
        progress.failed(&unreachable());
        progress.failed(&unreachable());
        assert_eq!(progress.next_request(), WatchRequest::CurrentVersion, "{what}");
        progress.record_current_version(current);
        assert_eq!(progress.next_request(), next, "{what}");
    }
    let mut paging = WatchProgress::new(500);
    paging.record_page("7", "next");
    paging.failed(&unreachable());
    assert_eq!(paging.next_request(), list(Some("next"), 500), "a list goes on");
    let mut doubted = at("7");
    doubted.failed(&unreachable());
    doubted.failed(&ClusterApiError::TooLarge { request: "r".into(), limit: 1 });
    assert_eq!(doubted.next_request(), list(None, 500), "the one object is too large");
}
