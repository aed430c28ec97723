//! How much of a command's output is kept, and how long it is waited for.

use std::future::ready;
use std::io::Write as _;

use super::*;

#[tokio::test]
async fn output_is_kept_up_to_the_limit_and_read_to_its_end() {
    let (reader, writer) = pipe_pair().unwrap();
    let mut writer = std::fs::File::from(writer);
    let writing = std::thread::spawn(move || {
        let part = vec![b'x'; 1 << 20];
        for _ in 0..18 {
            writer.write_all(&part).unwrap();
        }
    });
    let (_keep, over) = watch::channel(false);
    assert_eq!(collect(reader, over, || ready(false)).await.unwrap().len(), MAX_OUTPUT);
    writing.join().unwrap();
}

#[tokio::test]
async fn a_child_holding_the_pipe_does_not_delay_the_response_forever() {
    let (reader, writer) = pipe_pair().unwrap();
    let mut writer = std::fs::File::from(writer);
    writer.write_all(b"said").unwrap();
    let (_keep, over) = watch::channel(true);
    assert_eq!(collect(reader, over, || ready(false)).await.unwrap(), b"said");
    drop(writer);
}

fn exit(code: i32) -> ProcessExit {
    ProcessExit { code, ..ProcessExit::default() }
}

/// A child goes on printing after the command's exit: the deadline applies to it, too.
#[tokio::test]
async fn a_child_that_prints_for_ever_does_not_outlive_the_deadline() {
    let (reader, writer) = pipe_pair().unwrap();
    let (errors, _held) = pipe_pair().unwrap();
    let mut writer = std::fs::File::from(writer);
    // Ends when the reader is closed.
    let printing = std::thread::spawn(move || while writer.write_all(b"y\n").is_ok() {});
    let (exited, exit_receiver) = oneshot::channel();
    exited.send(exit(0)).unwrap();
    let deadline = Instant::now() + Duration::from_millis(800);
    let waiting = wait_for_command(exit_receiver, (reader, errors), Some(deadline), || ready(true));
    let ended = tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("an end");
    assert!(ended.is_none() && Instant::now() >= deadline);
    printing.join().unwrap();
}

/// A reported timeout ends the wait; a silent child is not waited for.
#[tokio::test]
async fn a_reported_timeout_or_silence_ends_the_wait_before_the_deadline() {
    let (reader, mut writer) = {
        let (reader, writer) = pipe_pair().unwrap();
        (reader, std::fs::File::from(writer))
    };
    let (errors, held) = pipe_pair().unwrap();
    writer.write_all(b"said").unwrap();
    let (exited, exit_receiver) = oneshot::channel();
    exited.send(exit(3)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let ended = wait_for_command(exit_receiver, (reader, errors), Some(deadline), || ready(false))
        .await
        .expect("an end");
    assert_eq!((ended.exit.unwrap().code, ended.stdout.unwrap()), (3, b"said".to_vec()));
    assert!(Instant::now() < deadline);
    drop((writer, held));
}

#[test]
fn a_response_beyond_the_message_limit_is_refused() {
    let answer = |size| v1::ExecSyncResponse { stdout: vec![0; size], ..Default::default() };
    assert!(check_message_size(answer(MESSAGE_SIZE_LIMIT - 5)).is_ok());
    let refused = check_message_size(answer(MAX_OUTPUT)).unwrap_err();
    assert_eq!(refused.code, Code::ResourceExhausted);
    assert!(refused.text.contains("larger than max (16777221 vs. 16777216)"), "{refused}");
}

/// A child that is not scheduled for a while is not silent; one that sleeps is.
#[tokio::test]
async fn a_process_that_waits_for_cpu_is_waited_for() {
    let (reader, writer) = pipe_pair().unwrap();
    let writer = std::cell::RefCell::new(std::fs::File::from(writer));
    let polls = std::cell::Cell::new(0);
    let (_keep, over) = watch::channel(true);
    let is_runnable = || {
        polls.set(polls.get() + 1);
        // It prints for the last time and sleeps.
        if polls.get() == 3 {
            writer.borrow_mut().write_all(b"late").unwrap();
        }
        ready(polls.get() < 3)
    };
    assert_eq!(collect(reader, over, is_runnable).await.unwrap(), b"late");
    assert_eq!(polls.get(), 4);
}

/// The deadline applies to a child that only computes, too.
#[tokio::test]
async fn a_child_that_goes_on_in_silence_does_not_outlive_the_deadline() {
    let (reader, _held) = pipe_pair().unwrap();
    let (errors, _held_too) = pipe_pair().unwrap();
    let (exited, exit_receiver) = oneshot::channel();
    exited.send(exit(0)).unwrap();
    let deadline = Instant::now() + Duration::from_millis(1200);
    let waiting = wait_for_command(exit_receiver, (reader, errors), Some(deadline), || ready(true));
    let ended = tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("an end");
    assert!(ended.is_none() && Instant::now() >= deadline);
}

/// The longest timeout a caller can send means none, and does not overflow.
#[test]
fn a_deadline_beyond_the_clock_is_none() {
    assert!(deadline_of(Duration::from_secs(i64::MAX.unsigned_abs())).is_none());
    let before = Instant::now();
    let deadline = deadline_of(Duration::from_secs(2)).unwrap();
    assert!(deadline >= before + Duration::from_secs(2));
}
