//! Sizes, results, and the limits of queued input.

use super::*;

#[test]
fn sizes_are_read_one_after_another() {
    let found = sizes(b"{\"Width\":80,\"Height\":24}\n{\"Width\":100,\"Height\":30}");
    assert_eq!(found[1], TerminalSize { columns: 100, rows: 30 });
    assert_eq!(found.len(), 2);
    assert!(sizes(b"nonsense").is_empty() && sizes(b"").is_empty());
}

#[test]
fn command_statuses_have_the_fields_that_clients_read() {
    assert_eq!(CommandStatus::Success.status_object(), r#"{"metadata":{},"status":"Success"}"#);
    let seven: serde_json::Value =
        serde_json::from_str(&CommandStatus::ExitCode(7).status_object()).unwrap();
    assert_eq!(seven["reason"], "NonZeroExitCode");
    assert_eq!(seven["details"]["causes"][0]["message"], "7");
    assert_eq!(CommandStatus::Success.plain(), None);
    assert!(CommandStatus::Failed("x".into()).status_object().contains("InternalError"));
}

/// A client sends far more than a command takes.
#[tokio::test]
async fn queued_input_is_limited_in_bytes() {
    let (inbox, mut input, _gone) = Inbox::new();
    let sending = tokio::spawn(async move {
        for _ in 0..8 {
            assert!(inbox.stdin(&vec![7; MAX_BUFFERED_INPUT]).await);
        }
        inbox
    });
    // Room is released only when input is read.
    let (mut taken, mut most) = (0, 0);
    let mut kept = Vec::new();
    while taken < 8 * MAX_BUFFERED_INPUT {
        match tokio::time::timeout(Duration::from_millis(100), input.recv()).await {
            Ok(Some(ClientInput::Stdin(held))) => {
                taken += held.bytes.len();
                kept.push(held);
            }
            Ok(other) => panic!("{other:?}"),
            Err(_) => kept.clear(),
        }
        most = most.max(kept.iter().map(|held| held.bytes.len()).sum());
    }
    assert!(most <= MAX_BUFFERED_INPUT, "{most} bytes were held");
    drop(sending.await.unwrap());
}

#[tokio::test]
async fn a_disconnect_is_visible_without_reading_the_input_queue() {
    let (inbox, _input, mut gone) = Inbox::new();
    assert!(inbox.send(ClientInput::StdinEnd).await);
    let early = tokio::time::timeout(Duration::from_millis(50), gone.left()).await;
    assert!(early.is_err(), "it is still there");
    drop(inbox);
    tokio::time::timeout(Duration::from_secs(20), gone.left()).await.expect("it has left");
    // And when awaited again.
    gone.left().await;
}
