//! Whole connections of clients, split at any byte.

use super::*;

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_frame(kind, flags, [0, 0, 0, stream], payload, &mut bytes);
    bytes
}

fn request(authority: &str) -> Vec<Field> {
    vec![
        (b":method".to_vec(), b"POST".to_vec()),
        (b":authority".to_vec(), authority.as_bytes().to_vec()),
        (b":path".to_vec(), b"/runtime.v1.RuntimeService/Version".to_vec()),
    ]
}

fn conversation(authority: &str) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    bytes.extend(frame(HEADERS, END_HEADERS, 1, &encode(&request(authority))));
    bytes.extend(frame(0, 1, 1, b"message"));
    bytes
}

fn filtered(input: &[u8], piece: usize) -> Result<Vec<u8>, FilterError> {
    filtered_by(&mut AuthorityFilter::default(), input, piece)
}

fn filtered_by(
    filter: &mut AuthorityFilter,
    input: &[u8],
    piece: usize,
) -> Result<Vec<u8>, FilterError> {
    let mut output = Vec::new();
    for part in input.chunks(piece) {
        let mut rest = part;
        while !rest.is_empty() {
            rest = &rest[filter.push(rest, &mut output)?..];
        }
    }
    Ok(output)
}

#[test]
fn an_authority_that_is_no_host_becomes_localhost_in_any_chunking() {
    for authority in ["/run/a.sock", "%2Frun%2Fa.sock", "", "unix:/x", "a b", "host:port"] {
        for piece in [1, 7, 10_000] {
            let output = filtered(&conversation(authority), piece).unwrap();
            assert_eq!(output, conversation("localhost"), "{authority:?} in pieces of {piece}");
        }
    }
}

#[test]
fn valid_authorities_pass_unchanged_in_any_chunking() {
    for authority in ["localhost", "127.0.0.1:10250", "[::1]:80", "[::1]", "node-1.example"] {
        assert_eq!(filtered(&conversation(authority), 5).unwrap(), conversation(authority));
    }
}

#[test]
fn after_one_rewrite_all_later_blocks_are_rewritten() {
    let mut input = conversation("/run/a.sock");
    // A field that enters the dynamic table, and then a reference to it.
    let mut remembered = encode(&request("/run/a.sock"));
    remembered.extend_from_slice(b"\x40\x01a\x01b");
    input.extend(frame(HEADERS, END_HEADERS, 3, &remembered));
    input.extend(frame(HEADERS, END_HEADERS, 5, &[0xbe]));
    let mut expected = conversation("localhost");
    let mut fields = request("localhost");
    fields.push((b"a".to_vec(), b"b".to_vec()));
    expected.extend(frame(HEADERS, END_HEADERS, 3, &encode(&fields)));
    let last = encode(&[(b"a".to_vec(), b"b".to_vec())]);
    expected.extend(frame(HEADERS, END_HEADERS, 5, &last));
    assert_eq!(filtered(&input, 3).unwrap(), expected);
}

#[test]
fn padding_priority_and_continuations_are_understood() {
    let block = encode(&request("/a"));
    let (first, second) = block.split_at(10);
    let mut payload = vec![3, 0, 0, 0, 0, 7];
    payload.extend_from_slice(first);
    payload.extend_from_slice(&[0; 3]);
    let mut input = PREFACE.to_vec();
    input.extend(frame(HEADERS, PADDED | PRIORITY, 1, &payload));
    input.extend(frame(CONTINUATION, END_HEADERS, 1, second));
    let mut expected = PREFACE.to_vec();
    let mut block = vec![0, 0, 0, 0, 7];
    block.extend(encode(&request("localhost")));
    expected.extend(frame(HEADERS, PRIORITY | END_HEADERS, 1, &block));
    assert_eq!(filtered(&input, 4).unwrap(), expected);
}

#[test]
fn a_block_that_outgrows_a_frame_is_split() {
    let mut fields = request("/a");
    fields.push((b"long".to_vec(), vec![b'x'; 40_000]));
    let block = encode(&fields);
    let mut input = PREFACE.to_vec();
    let parts: Vec<_> = block.chunks(MAX_FRAME_BYTES).collect();
    for (at, part) in parts.iter().enumerate() {
        let kind = if at == 0 { HEADERS } else { CONTINUATION };
        let flags = if at + 1 == parts.len() { END_HEADERS } else { 0 };
        input.extend(frame(kind, flags, 1, part));
    }
    let output = filtered(&input, 1000).unwrap();
    fields[1].1 = b"localhost".to_vec();
    let kinds: Vec<u8> = [3, 9 + MAX_FRAME_BYTES + 3, 2 * (9 + MAX_FRAME_BYTES) + 3]
        .map(|at| output[PREFACE.len() + at])
        .to_vec();
    assert_eq!(kinds, [HEADERS, CONTINUATION, CONTINUATION]);
}

#[test]
fn invalid_frame_order_or_blocks_end_the_connection() {
    let mut interrupted = PREFACE.to_vec();
    interrupted.extend(frame(HEADERS, 0, 1, b""));
    let mut other_stream = interrupted.clone();
    interrupted.extend(frame(0, 0, 1, b""));
    other_stream.extend(frame(CONTINUATION, END_HEADERS, 3, b""));
    let mut alone = PREFACE.to_vec();
    alone.extend(frame(CONTINUATION, END_HEADERS, 1, b""));
    let mut padding = PREFACE.to_vec();
    padding.extend(frame(HEADERS, PADDED | END_HEADERS, 1, &[9, 0]));
    for input in [interrupted, other_stream, alone, padding] {
        assert_eq!(filtered(&input, 100), Err(FilterError::Order));
    }
    let mut undecodable = PREFACE.to_vec();
    undecodable.extend(frame(HEADERS, END_HEADERS, 1, &[0x80]));
    assert!(matches!(filtered(&undecodable, 100), Err(FilterError::Block(_))));
}

#[test]
fn a_block_ends_the_connection_by_its_bytes_and_by_its_frames() {
    let mut open = PREFACE.to_vec();
    open.extend(frame(HEADERS, 0, 1, &encode(&request("/a"))));
    let further = |size: usize, count: usize| {
        let mut input = open.clone();
        (0..count).for_each(|_| input.extend(frame(CONTINUATION, 0, 1, &vec![0; size])));
        let mut filter = AuthorityFilter::default();
        let pushed = filtered_by(&mut filter, &input, 1000).map(|output| output.len());
        (pushed, filter.open.map_or(0, |open| open.block.len() + open.frames.len()))
    };
    for (size, count, error) in [
        (0, MAX_CONTINUATIONS, None),
        (0, MAX_CONTINUATIONS + 1, Some(FilterError::Continuations)),
        (0, 100_000, Some(FilterError::Continuations)),
        (1, 100_000, Some(FilterError::Continuations)),
        (MAX_FRAME_BYTES, 3, None),
        (MAX_FRAME_BYTES, 4, Some(BlockError::TooLarge.into())),
    ] {
        let (pushed, buffered) = further(size, count);
        let expected = error.map_or(Ok(PREFACE.len()), Err);
        assert_eq!(pushed, expected, "{count} of {size} bytes");
        assert!(buffered <= 2 * (MAX_BLOCK_BYTES + MAX_FRAME_BYTES), "{buffered} bytes are held");
    }
}

#[test]
fn one_push_writes_one_header_block_however_many_were_sent() {
    let mut remembered = encode(&request("/a"));
    // 4000 bytes in the table; each of the later blocks is 16 references to them.
    let long = vec![b'x'; 3900];
    remembered.extend_from_slice(b"\x40\x01a\x7f");
    let length = long.len() - 127;
    remembered.extend([u8::try_from(length % 128).unwrap() | 0x80, (length / 128) as u8]);
    remembered.extend(&long);
    let mut input = PREFACE.to_vec();
    input.extend(frame(HEADERS, END_HEADERS, 1, &remembered));
    (0..500).for_each(|_| input.extend(frame(HEADERS, END_HEADERS, 3, &[0xbe; 16])));
    let (mut filter, mut rest, mut calls) = (AuthorityFilter::default(), &*input, 0);
    while !rest.is_empty() {
        let mut output = Vec::new();
        rest = &rest[filter.push(rest, &mut output).unwrap()..];
        assert!(output.len() < 2 * MAX_BLOCK_BYTES, "{}", output.len());
        calls += 1;
    }
    assert!(calls > 500, "{calls}");
    let more = frame(HEADERS, END_HEADERS, 5, &[0xbe; 17]);
    let refused = filter.push(&more, &mut Vec::new());
    assert_eq!(refused, Err(BlockError::TooLarge.into()));
}

#[test]
fn a_connection_that_is_not_http2_passes_unchanged() {
    let other = b"GET / HTTP/1.1\r\nhost: /run/a.sock\r\n\r\n";
    assert_eq!(filtered(other, 1).unwrap(), other);
    assert_eq!(filtered(b"PRX and more bytes than a preface has", 2).unwrap().len(), 37);
}

proptest::proptest! {
    #[test]
    fn arbitrary_bytes_pass_or_give_an_error(bytes: Vec<u8>, piece in 1_usize..20) {
        let mut input = PREFACE.to_vec();
        input.extend(bytes);
        let _ = filtered(&input, piece);
    }
}
