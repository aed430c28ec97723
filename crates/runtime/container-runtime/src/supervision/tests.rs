//! Waiters of execs across connections.

use super::*;

fn state(exec: &str, code: Option<i32>) -> ExecState {
    let exit = code.map(|code| ProcessExit { code, ..ProcessExit::default() });
    ExecState { exec: exec.to_owned(), exit, ..ExecState::default() }
}

#[tokio::test]
async fn listing_execs_recovers_missed_exits() {
    let execs = ExecWaiters::default();
    let names = ["over", "runs", "forgotten", "beginning"];
    let [over, mut runs, forgotten, mut beginning] = names.map(|name| execs.expect(name));
    for name in ["over", "runs", "forgotten"] {
        execs.started(name);
    }
    let started_ids = execs.started_ids();
    assert_eq!(started_ids.len(), 3);
    // Started after the list was requested.
    let mut younger = execs.expect("younger");
    execs.started("younger");
    execs.reconcile(
        &started_ids,
        &[state("over", Some(7)), state("runs", None), state("other", Some(1))],
    );
    assert_eq!(over.await.map(|exit| exit.code), Ok(7));
    assert!(forgotten.await.is_err(), "no exit is made up for it");
    let open = Err(oneshot::error::TryRecvError::Empty);
    for waiting in [&mut runs, &mut beginning, &mut younger] {
        assert_eq!(waiting.try_recv(), open);
    }
    execs.ended(&state("runs", Some(3)));
    assert_eq!(runs.await.map(|exit| exit.code), Ok(3));
    execs.fail_all();
    assert!(beginning.await.is_err() && younger.await.is_err());
}
