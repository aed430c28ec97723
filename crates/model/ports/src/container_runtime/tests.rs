//! What a pod's statuses and events say of an error.

use super::*;

#[test]
fn pods_show_the_message_of_a_runtime_that_answered() {
    let (call, message) = ("StartContainer", "exec: \"/nothing\": no such file".to_owned());
    let refused = ContainerRuntimeError::Refused {
        call,
        code: "Unknown".to_owned(),
        message: message.clone(),
    };
    let rows = [
        (refused, "exec: \"/nothing\": no such file"),
        (
            ContainerRuntimeError::NotFound { call, message: message.clone() },
            "exec: \"/nothing\": no such file",
        ),
        (
            ContainerRuntimeError::DeadlineExceeded { call, limit: Duration::from_secs(2) },
            "StartContainer: no answer within 2s",
        ),
        (
            ContainerRuntimeError::Unavailable {
                call,
                endpoint: "unix:///run/cri.sock".to_owned(),
                cause: UnavailableCause::Broken,
                message: "broken pipe".to_owned(),
            },
            "StartContainer: no runtime answers at unix:///run/cri.sock: broken pipe",
        ),
    ];
    for (error, expected) in rows {
        assert_eq!(error.message_for_pods(), expected, "{error:?}");
    }
}
