//! A reader that pauses, one that never comes, and the order of what gets through.

use super::*;
use std::io::{PipeReader, Read, pipe};
use std::sync::mpsc;
use std::time::Instant;

const TIMEOUT: Duration = Duration::from_secs(30);

fn notice() -> DropNotice {
    Arc::new(|dropped| format!("dropped {dropped}\n"))
}

/// A queue into a pipe that holds 4096 bytes, and its reader.
fn queue_into_pipe() -> (LineQueue, PipeReader) {
    let (reader, writer) = pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
    (LineQueue::start("test", writer, notice()).unwrap(), reader)
}

fn numbered(number: usize) -> String {
    format!("{number:0>99}\n")
}

/// Everything the queue writes to the end, as numbers; a notice counts as so many lines.
fn read_numbers(mut reader: PipeReader) -> (Vec<usize>, u64) {
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    let mut dropped = 0;
    let mut numbers = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("dropped ") {
            Some(count) => dropped += count.parse::<u64>().unwrap(),
            None => numbers.push(line.parse().unwrap()),
        }
    }
    (numbers, dropped)
}

#[test]
fn lines_arrive_in_order_and_a_flush_waits_for_them() {
    let (sender, receiver) = mpsc::channel();
    struct Sent(mpsc::Sender<Vec<u8>>);
    impl Write for Sent {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            std::thread::sleep(Duration::from_millis(1));
            self.0.send(bytes.to_vec()).unwrap();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let queue = LineQueue::start("test", Sent(sender), notice()).unwrap();
    for number in 0..50 {
        queue.push(format!("{number}\n"));
    }
    queue.flush(TIMEOUT);
    let written: Vec<Vec<u8>> = receiver.try_iter().collect();
    let expected: Vec<Vec<u8>> = (0..50).map(|number| format!("{number}\n").into_bytes()).collect();
    assert_eq!(written, expected, "one write for each line");
}

#[test]
fn a_push_does_not_wait_for_a_reader() {
    let (queue, _reader) = queue_into_pipe();
    let began = Instant::now();
    for number in 0..2 * MAX_BYTES / 100 {
        queue.push(numbered(number));
    }
    queue.flush(Duration::from_millis(50));
    assert!(began.elapsed() < TIMEOUT);
    let state = queue.shared.lock();
    assert!(state.bytes <= MAX_BYTES && state.dropped > 0, "{} {}", state.bytes, state.dropped);
}

#[test]
fn dropped_lines_are_counted_in_their_place() {
    let (queue, mut reader) = queue_into_pipe();
    let pushed = 2 * MAX_BYTES / 100;
    for number in 0..pushed {
        queue.push(numbered(number));
    }
    // The reader wakes; now there is room, and the next line comes behind the notice.
    let mut first = [0; 100 * 4096];
    reader.read_exact(&mut first).unwrap();
    queue.push(numbered(pushed));
    drop(queue);
    let (numbers, dropped) = read_numbers(reader);
    assert!(dropped > 0);
    assert!(numbers.is_sorted(), "out of order");
    assert_eq!(numbers.last(), Some(&pushed));
    assert_eq!(4096 + numbers.len() + usize::try_from(dropped).unwrap(), pushed + 1);
}

#[test]
fn dropped_lines_are_reported_even_when_no_line_follows() {
    let (queue, reader) = queue_into_pipe();
    let pushed = 2 * MAX_BYTES / 100;
    for number in 0..pushed {
        queue.push(numbered(number));
    }
    drop(queue);
    let (numbers, dropped) = read_numbers(reader);
    assert!(dropped > 0);
    assert_eq!(numbers.len() + usize::try_from(dropped).unwrap(), pushed);
}

#[test]
fn a_line_larger_than_the_queue_passes_alone() {
    let (queue, mut reader) = queue_into_pipe();
    queue.push("x".repeat(MAX_BYTES + 1));
    drop(queue);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text.len(), MAX_BYTES + 1);
}

#[test]
fn a_closed_pipe_costs_lines_only() {
    let (queue, reader) = queue_into_pipe();
    drop(reader);
    queue.push("lost\n".to_owned());
    queue.flush(TIMEOUT);
    assert!(!queue.shared.lock().is_busy());
}

#[test]
fn a_standstill_lasts_until_the_next_line_gets_out() {
    let (queue, mut reader) = queue_into_pipe();
    assert_eq!(queue.standstill(), Duration::ZERO, "nothing waits");
    // More than the pipe holds, so that a line is in hand and others wait.
    for number in 0..200 {
        queue.push(numbered(number));
    }
    let began = Instant::now();
    while queue.standstill() < Duration::from_millis(20) {
        assert!(began.elapsed() < TIMEOUT, "nobody reads, and it says that lines get out");
        std::thread::sleep(Duration::from_millis(1));
    }
    // As much as there is and no more: the queue may not know yet that its last line is out.
    reader.read_exact(&mut [0; 200 * 100]).unwrap();
    queue.flush(TIMEOUT);
    assert_eq!(queue.standstill(), Duration::ZERO, "everything is out");
}
