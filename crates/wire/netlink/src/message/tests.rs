//! Written messages parse; truncated ones do not.

use super::*;

#[test]
fn a_message_reads_back_with_its_nested_attributes() {
    let bytes = NetlinkWriter::new(16, 5, &[1, 2, 3, 4])
        .text(3, "eth0")
        .nested(18, |inside| inside.text(1, "veth").nested(2, |inner| inner.number(7, 9)))
        .finish(42);
    let found = messages(&bytes).unwrap();
    assert_eq!((found.len(), found[0].kind, found[0].sequence), (1, 16, 42));
    let outer = attributes(&found[0].payload[4..]).unwrap();
    assert_eq!(outer[0], (3, &b"eth0\0"[..]));
    assert_eq!(outer[1].0, 18);
    let inner = attributes(outer[1].1).unwrap();
    assert_eq!(text(inner[0].1), "veth");
    assert_eq!(attributes(inner[1].1).unwrap(), [(7, &9_u32.to_ne_bytes()[..])]);
}

#[test]
fn truncated_messages_and_wrong_lengths_are_refused() {
    let bytes = NetlinkWriter::new(16, 0, &[]).text(3, "eth0").finish(1);
    assert_eq!(messages(&bytes[..bytes.len() - 4]), Err(ParseError));
    assert_eq!(messages(&[0; 16]), Err(ParseError));
    assert_eq!(messages(&[1; 3]), Err(ParseError));
    assert_eq!(attributes(&[3, 0, 0, 0]), Err(ParseError));
    assert_eq!(attributes(&[9, 0, 0, 0]), Err(ParseError));
}

proptest::proptest! {
    #[test]
    fn arbitrary_bytes_parse_or_give_an_error(bytes: Vec<u8>) {
        for message in messages(&bytes).unwrap_or_default() {
            let _ = attributes(message.payload);
        }
    }
}
