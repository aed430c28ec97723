//! Frames that clients of exec, attach and port-forward send.

use stream_frames::channels::{self, WEBSOCKET_PROTOCOLS};
use stream_frames::{spdy as frames, websocket as messages};

/// Splits the rest of the input at the position in its first byte: bytes arrive in any pieces.
pub(crate) fn cut(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (first, rest) = input.split_first()?;
    Some(rest.split_at(usize::from(*first).min(rest.len())))
}

/// Any bytes from a SPDY client: frames or an error, the same in one piece and in two; and frames
/// without headers are written as they were read.
pub fn spdy(input: &[u8]) {
    let read = |parts: &[&[u8]]| {
        let mut decoder = frames::SpdyDecoder::default();
        let mut found = Vec::new();
        for part in parts {
            decoder.push(part);
            loop {
                match decoder.next_frame() {
                    Ok(Some(frame)) => found.push(frame),
                    Ok(None) => break,
                    Err(error) => return (found, Some(error)),
                }
            }
        }
        (found, None)
    };
    let Some((first, second)) = cut(input) else { return };
    let whole = read(&[&input[1..]]);
    assert_eq!(whole, read(&[first, second]), "it depends on the pieces");
    let mut encoder = frames::SpdyEncoder::default();
    for frame in whole.0 {
        let mut bytes = Vec::new();
        encoder.write(&frame, &mut bytes).expect("what was read can be written");
        use frames::SpdyFrame::{Accept, MoreHeaders, Open, Other};
        if !matches!(frame, Open { .. } | Accept { .. } | MoreHeaders { .. } | Other { .. }) {
            let mut decoder = frames::SpdyDecoder::default();
            decoder.push(&bytes);
            assert_eq!(decoder.next_frame(), Ok(Some(frame)), "written and read again");
        }
    }
}

/// Any bytes from a WebSocket client: messages or an error, the same in one piece and in two.
pub fn websocket(input: &[u8]) {
    let read = |parts: &[&[u8]]| {
        let mut decoder = messages::WebSocketDecoder::default();
        let mut found = Vec::new();
        for part in parts {
            decoder.push(part);
            loop {
                match decoder.next_message() {
                    Ok(Some(message)) => found.push(message),
                    Ok(None) => break,
                    Err(error) => return (found, Some(error)),
                }
            }
        }
        (found, None)
    };
    let Some((first, second)) = cut(input) else { return };
    let whole = read(&[&input[1..]]);
    assert_eq!(whole, read(&[first, second]), "it depends on the pieces");
    for message in &whole.0 {
        let (messages::ClientMessage::Binary(bytes) | messages::ClientMessage::Text(bytes)) =
            message
        else {
            continue;
        };
        for protocol in WEBSOCKET_PROTOCOLS {
            let Some((channel, content)) = channels::read(*protocol, bytes) else { continue };
            assert!(content.len() < bytes.len(), "a channel's byte is no content");
            let written = channels::write(*protocol, channel, &content);
            assert_eq!(channels::read(*protocol, &written), Some((channel, content)));
        }
    }
}
