//! The state machine, one response at a time.

use super::*;

fn expired() -> ClusterApiError {
    ClusterApiError::Expired { request: "r".into(), message: "too old".into() }
}

fn list(token: Option<&str>, limit: u32) -> Question {
    Question::List { token: token.map(str::to_owned), limit }
}

fn watch(version: &str) -> Question {
    Question::Watch { version: version.to_owned() }
}

fn at(version: &str) -> Progress {
    let mut progress = Progress::new(500);
    assert!(progress.page_came(version, ""));
    progress
}

#[test]
fn pages_follow_one_another_and_a_watch_follows_the_last() {
    let mut progress = Progress::new(500);
    assert_eq!(progress.question(), list(None, 500));
    assert!(!progress.page_came("7", "next"));
    assert_eq!(progress.question(), list(Some("next"), 500));
    assert!(progress.page_came("7", ""));
    assert_eq!(progress.question(), watch("7"));
    progress.reached("9");
    assert_eq!(progress.question(), watch("9"));
    progress.reached("");
    assert_eq!(progress.question(), watch("9"));
}

#[test]
fn what_expired_begins_again_wherever_it_stood() {
    let mut paging = Progress::new(500);
    paging.page_came("7", "next");
    for mut progress in [Progress::new(500), paging, at("7")] {
        progress.failed(&expired());
        assert_eq!(progress.question(), list(None, 500));
    }
}

#[test]
fn other_failures_lose_no_ground() {
    let mut paging = Progress::new(500);
    paging.page_came("7", "next");
    let request = String::from("r");
    for error in [
        ClusterApiError::Unreachable { request: request.clone(), cause: "refused".into() },
        ClusterApiError::Unanswered { request: request.clone(), cause: "cut".into() },
        ClusterApiError::ServerTrouble {
            request: request.clone(),
            status: 500,
            message: "".into(),
        },
        ClusterApiError::OutOfTurn { request: request.clone(), turn_in: std::time::Duration::ZERO },
        ClusterApiError::Throttled { request, retry_after: std::time::Duration::ZERO },
    ] {
        let mut progress = at("7");
        progress.failed(&error);
        assert_eq!(progress.question(), watch("7"), "{error}");
        let mut progress = paging.clone();
        progress.failed(&error);
        assert_eq!(progress.question(), list(Some("next"), 500), "{error}");
    }
}

#[test]
fn a_version_that_is_refused_or_cannot_be_read_is_not_asked_for_again() {
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
        assert_eq!(progress.question(), list(None, 500), "{error}");
    }
}

#[test]
fn a_page_too_large_is_asked_for_in_halves_down_to_one() {
    let too_large = ClusterApiError::TooLarge { request: "r".into(), limit: 1 };
    let mut progress = Progress::new(5);
    let mut limits = Vec::new();
    for _ in 0..4 {
        progress.failed(&too_large);
        match progress.question() {
            Question::List { limit, .. } => limits.push(limit),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(limits, [2, 1, 1, 1]);
    let mut progress = at("7");
    progress.failed(&too_large);
    assert_eq!(progress.question(), list(None, 500));
}

#[test]
fn two_streams_without_a_word_mean_to_list_again() {
    let mut progress = at("7");
    progress.heard_nothing();
    assert_eq!(progress.question(), watch("7"));
    progress.reached("8");
    progress.heard_nothing();
    assert_eq!(progress.question(), watch("8"));
    progress.heard_nothing();
    assert_eq!(progress.question(), list(None, 500));
}
