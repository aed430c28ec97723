//! Frames of clients, whole and fragmented, valid and not.

use super::*;

fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    let length = payload.len();
    if length < 126 {
        bytes.push(0x80 | u8::try_from(length).unwrap());
    } else if length <= 0xffff {
        bytes.push(0x80 | 126);
        bytes.extend(u16::try_from(length).unwrap().to_be_bytes());
    } else {
        bytes.push(0x80 | 127);
        bytes.extend((length as u64).to_be_bytes());
    }
    let mask = [1, 2, 3, 4];
    bytes.extend(mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
    bytes
}

fn decoded(bytes: &[u8], piece: usize) -> Result<Vec<ClientMessage>, WebSocketError> {
    let mut decoder = WebSocketDecoder::default();
    let mut found = Vec::new();
    for part in bytes.chunks(piece) {
        decoder.push(part);
        while let Some(message) = decoder.next_message()? {
            found.push(message);
        }
    }
    Ok(found)
}

#[test]
fn the_rfc_6455_handshake_example_is_accepted() {
    assert_eq!(accept_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

#[test]
fn messages_are_reassembled_in_any_chunking() {
    let mut bytes = masked(0x82, b"first");
    bytes.extend(masked(0x01, b"sec"));
    bytes.extend(masked(0x89, b"ping"));
    bytes.extend(masked(0x80, b"ond"));
    bytes.extend(masked(0x82, &[7; 200]));
    bytes.extend(masked(0x82, &[8; 70_000]));
    bytes.extend(masked(0x8a, b""));
    bytes.extend(masked(0x88, &1000_u16.to_be_bytes()));
    let expected = vec![
        ClientMessage::Binary(b"first".to_vec()),
        ClientMessage::Ping(b"ping".to_vec()),
        ClientMessage::Text(b"second".to_vec()),
        ClientMessage::Binary(vec![7; 200]),
        ClientMessage::Binary(vec![8; 70_000]),
        ClientMessage::Pong,
        ClientMessage::Close(Some(1000)),
    ];
    for piece in [1, 3, 100_000] {
        assert_eq!(decoded(&bytes, piece).unwrap(), expected, "pieces of {piece}");
    }
}

#[test]
fn protocol_violations_give_distinct_errors() {
    let mut pieces = masked(0x01, b"a");
    pieces.extend(masked(0x01, b"b"));
    for (bytes, expected) in [
        (vec![0x82, 0x01, b'a'], WebSocketError::Unmasked),
        (masked(0xc2, b"a"), WebSocketError::Extension),
        (masked(0x83, b"a"), WebSocketError::Kind),
        (masked(0x09, b"a"), WebSocketError::Control),
        (masked(0x89, &[0; 126]), WebSocketError::Control),
        (masked(0x80, b"a"), WebSocketError::Order),
        (pieces, WebSocketError::Order),
        (vec![0x82, 0xfe, 0, 5], WebSocketError::Length),
        (vec![0x82, 0xff, 0, 0, 0, 0, 0, 0, 0, 5], WebSocketError::Length),
        (vec![0x82, 0xff, 0, 0, 0, 1, 0, 0, 0, 0], WebSocketError::TooLarge),
        (vec![0x82, 0xff, 0xff, 0, 0, 1, 0, 0, 0, 0], WebSocketError::TooLarge),
    ] {
        assert_eq!(decoded(&bytes, 1000), Err(expected), "{bytes:02x?}");
    }
}

#[test]
fn fragments_beyond_the_message_limit_are_refused() {
    let mut decoder = WebSocketDecoder::default();
    decoder.push(&masked(0x02, &vec![0; 10 << 20]));
    assert_eq!(decoder.next_message(), Ok(None));
    decoder.push(&masked(0x00, &vec![0; 10 << 20]));
    assert_eq!(decoder.next_message(), Err(WebSocketError::TooLarge));
}

#[test]
fn replies_have_the_shortest_length() {
    let written = |reply: &ServerMessage<'_>| {
        let mut bytes = Vec::new();
        write(reply, &mut bytes);
        bytes
    };
    assert_eq!(written(&ServerMessage::Binary(b"hi")), [0x82, 2, b'h', b'i']);
    assert_eq!(written(&ServerMessage::Text(&[b'x'; 126]))[..4], [0x81, 126, 0, 126]);
    let long = written(&ServerMessage::Pong(&vec![0; 65_536]));
    assert_eq!(long[..10], [0x8a, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(written(&ServerMessage::Close(1000)), [0x88, 2, 3, 232]);
}

proptest::proptest! {
    #[test]
    fn arbitrary_bytes_parse_or_give_an_error(bytes: Vec<u8>, piece in 1_usize..20) {
        let _ = decoded(&bytes, piece);
    }
}
