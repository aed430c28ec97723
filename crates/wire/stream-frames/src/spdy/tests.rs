//! Round trips of frames, split at any byte; hostile ones are rejected.

use super::*;

fn all() -> Vec<SpdyFrame> {
    let headers = Headers::new([("streamtype", "stdin"), ("port", "80"), ("port", "81")]);
    vec![
        SpdyFrame::Open { stream: 1, headers: headers.clone(), end: false },
        SpdyFrame::Accept { stream: 1, headers: Headers::default(), end: false },
        SpdyFrame::Open { stream: 3, headers: headers.clone(), end: true },
        SpdyFrame::MoreHeaders { stream: 3, headers, end: false },
        SpdyFrame::Data { stream: 1, bytes: b"hello".to_vec(), end: false },
        SpdyFrame::Data { stream: 1, bytes: Vec::new(), end: true },
        SpdyFrame::Reset { stream: 3, status: 5 },
        SpdyFrame::Ping { id: 7 },
        SpdyFrame::GoAway { last: 3, status: 0 },
        SpdyFrame::Window { stream: 1, more: 65536 },
    ]
}

#[test]
fn written_frames_read_back_in_any_chunking() {
    let mut encoder = SpdyEncoder::default();
    let mut bytes = Vec::new();
    for frame in all() {
        encoder.write(&frame, &mut bytes).unwrap();
    }
    for piece in [1, 5, 1000] {
        let mut decoder = SpdyDecoder::default();
        let mut found = Vec::new();
        for part in bytes.chunks(piece) {
            decoder.push(part);
            while let Some(frame) = decoder.next_frame().unwrap() {
                found.push(frame);
            }
        }
        assert_eq!(found, all(), "pieces of {piece}");
    }
}

#[test]
fn a_header_block_of_another_implementation_is_understood() {
    // count 1, "a" -> "b", compressed by zlib with the dictionary and a sync flush.
    let mut encoder = SpdyEncoder::default();
    let mut bytes = Vec::new();
    let frame = SpdyFrame::Open { stream: 1, headers: Headers::new([("A", "b")]), end: false };
    encoder.write(&frame, &mut bytes).unwrap();
    assert_eq!(bytes[..4], [0x80, 3, 0, 1]);
    // zlib's header with the dictionary flag, and the dictionary's checksum.
    assert_eq!(bytes[18] & 0x0f, 8);
    assert_eq!(bytes[20..24], [0xe3, 0xc6, 0xa7, 0xc2]);
}

#[test]
fn large_data_is_split_and_ends_once() {
    let mut bytes = Vec::new();
    let content = vec![b'x'; MAX_FRAME_BYTES + 5];
    let frame = SpdyFrame::Data { stream: 9, bytes: content, end: true };
    SpdyEncoder::default().write(&frame, &mut bytes).unwrap();
    let mut decoder = SpdyDecoder::default();
    decoder.push(&bytes);
    let ends: Vec<(usize, bool)> = std::iter::from_fn(|| decoder.next_frame().unwrap())
        .map(|frame| match frame {
            SpdyFrame::Data { bytes, end, .. } => (bytes.len(), end),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ends, [(MAX_FRAME_BYTES, false), (5, true)]);
}

#[test]
fn invalid_frames_end_the_connection() {
    for (bytes, expected) in [
        (&[0x80, 2, 0, 1, 0, 0, 0, 0][..], SpdyError::Version(2)),
        (&[0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff], SpdyError::TooLarge(0x00ff_ffff)),
        (&[0x80, 3, 0, 3, 0, 0, 0, 4, 0, 0, 0, 1], SpdyError::Short),
        (&[0x80, 3, 0, 6, 0, 0, 0, 1, 0], SpdyError::Short),
        (&[0x80, 3, 0, 2, 0, 0, 0, 6, 0, 0, 0, 1, 0xff, 0xff], SpdyError::Compression),
        (&[0x80, 3, 0, 1, 0, 0, 0, 2, 0, 0], SpdyError::Short),
    ] {
        let mut decoder = SpdyDecoder::default();
        decoder.push(bytes);
        assert_eq!(decoder.next_frame(), Err(expected), "{bytes:02x?}");
    }
}

#[test]
fn a_block_that_grows_without_end_is_refused() {
    let mut encoder = SpdyEncoder::default();
    let long = "x".repeat(2 << 20);
    let frame = SpdyFrame::Open { stream: 1, headers: Headers::new([("a", &*long)]), end: false };
    let mut bytes = Vec::new();
    encoder.write(&frame, &mut bytes).unwrap();
    assert!(bytes.len() < 100_000, "it compresses well");
    let mut decoder = SpdyDecoder::default();
    decoder.push(&bytes);
    assert_eq!(decoder.next_frame(), Err(SpdyError::Headers));
}

/// A megabyte that would become two hundred thousand: one name, with many empty values.
#[test]
fn a_long_name_with_many_values_is_refused() {
    let many = |name: usize, values: usize| {
        let (name, values) = ("n".repeat(name), "\0".repeat(values - 1));
        let frame =
            SpdyFrame::Open { stream: 1, headers: Headers::new([(&*name, &*values)]), end: false };
        let mut bytes = Vec::new();
        SpdyEncoder::default().write(&frame, &mut bytes).unwrap();
        let mut decoder = SpdyDecoder::default();
        decoder.push(&bytes);
        decoder.next_frame()
    };
    for (name, values) in [(500_000, 500_000), (1, 1_000_000), (100_000, 11)] {
        assert_eq!(many(name, values), Err(SpdyError::Headers), "{name} and {values}");
    }
    for (name, values) in [(1, 1000), (100_000, 10)] {
        assert!(
            matches!(many(name, values), Ok(Some(SpdyFrame::Open { .. }))),
            "{name} and {values}"
        );
    }
}

proptest::proptest! {
    #[test]
    fn arbitrary_bytes_parse_or_give_an_error(bytes: Vec<u8>) {
        let mut decoder = SpdyDecoder::default();
        decoder.push(&bytes);
        while let Ok(Some(_)) = decoder.next_frame() {}
    }

    #[test]
    fn arbitrary_control_payloads_parse_or_give_an_error(kind in 0_u8..12, payload: Vec<u8>) {
        let mut bytes = Vec::new();
        write_control(kind.into(), false, &payload, &mut bytes);
        let mut decoder = SpdyDecoder::default();
        decoder.push(&bytes);
        let _ = decoder.next_frame();
    }
}
