//! Frames over a real socket pair, split at any byte.

use super::*;
use crate::protocol::{Kill, RequestBody, SupervisorRequest};
use std::io::Write;
use std::os::unix::net::UnixStream;

fn request(id: u64) -> SupervisorRequest {
    let kill = Kill { id: "a".repeat(100), signal: 9, ..Kill::default() };
    SupervisorRequest { id, body: Some(RequestBody::Kill(kill)) }
}

#[test]
fn frames_arrive_whole_and_with_their_own_descriptors() {
    let (left, right) = UnixStream::pair().expect("a pair");
    for id in 0..3 {
        let descriptors =
            (0..id).map(|_| std::fs::File::open("/dev/null").expect("open").into()).collect();
        let mut frame = OutgoingFrame::new(&request(id), descriptors).expect("a frame");
        assert!(frame.send(left.as_fd()).expect("sent"));
    }
    let mut reader = FrameReader::default();
    for id in 0..3 {
        let received: ReceivedFrame<SupervisorRequest> = loop {
            match reader.take().expect("whole") {
                Some(received) => break received,
                None => assert!(reader.fill(right.as_fd()).expect("filled")),
            }
        };
        assert_eq!(received.message, request(id));
        assert_eq!(received.descriptors.len() as u64, id);
    }
}

#[test]
fn a_frame_cut_anywhere_is_put_together() {
    let frame = OutgoingFrame::new(&request(7), Vec::new()).expect("a frame");
    for cut in 0..frame.bytes.len() {
        let (mut left, right) = UnixStream::pair().expect("a pair");
        let mut reader = FrameReader::default();
        left.write_all(&frame.bytes[..cut]).expect("written");
        if cut > 0 {
            reader.fill(right.as_fd()).expect("filled");
        }
        assert!(reader.take::<SupervisorRequest>().expect("no error").is_none(), "cut at {cut}");
        left.write_all(&frame.bytes[cut..]).expect("written");
        reader.fill(right.as_fd()).expect("filled");
        let received = reader.take::<SupervisorRequest>().expect("no error").expect("whole");
        assert_eq!(received.message, request(7));
    }
}

#[test]
fn wrong_lengths_and_counts_are_errors() {
    for (length, count) in [(u32::MAX, 0), (0, 9), (0, 1)] {
        let mut reader = FrameReader::default();
        reader.bytes.extend_from_slice(&length.to_le_bytes());
        reader.bytes.extend_from_slice(&u32::to_le_bytes(count));
        assert!(reader.take::<SupervisorRequest>().is_err(), "{length} {count}");
    }
}

/// Frames of version 1 must stay readable. Recorded once by this code, never to be regenerated.
#[test]
fn recorded_frames_of_every_release_are_read() {
    let recorded: &[(&[u8], SupervisorRequest)] = &[(
        &[14, 0, 0, 0, 0, 0, 0, 0, 8, 5, 50, 10, 10, 2, b'c', b'1', 16, 15, 24, 1, 34, 0],
        SupervisorRequest {
            id: 5,
            body: Some(RequestBody::Kill(Kill {
                id: "c1".into(),
                signal: 15,
                all: true,
                exec: String::new(),
            })),
        },
    )];
    for (bytes, wanted) in recorded {
        let mut reader = FrameReader { bytes: bytes.to_vec(), ..FrameReader::default() };
        let received = reader.take::<SupervisorRequest>().expect("readable").expect("whole");
        assert_eq!(&received.message, wanted);
    }
}
