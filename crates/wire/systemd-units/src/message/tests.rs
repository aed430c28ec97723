//! Messages against bytes written by hand from the specification, and against arbitrary bytes.

use proptest::prelude::*;

use super::*;

#[test]
fn a_method_call_is_encoded_as_the_d_bus_specification_requires() {
    let mut body = DbusWriter::default();
    body.text("a.slice");
    body.properties(&[("X", PropertyValue::Number(7)), ("Y", PropertyValue::Bool(true))]);
    let call = MethodCall {
        destination: None,
        path: "/o",
        interface: "i",
        member: "M",
        signature: "sa(sv)",
        body,
    };
    #[rustfmt::skip]
    let expected: &[u8] = &[
        b'l', 1, 0, 1,  56, 0, 0, 0,  9, 0, 0, 0,  60, 0, 0, 0,
        1, 1, b'o', 0,  2, 0, 0, 0,  b'/', b'o', 0, 0,  0, 0, 0, 0,
        2, 1, b's', 0,  1, 0, 0, 0,  b'i', 0, 0, 0,  0, 0, 0, 0,
        3, 1, b's', 0,  1, 0, 0, 0,  b'M', 0, 0, 0,  0, 0, 0, 0,
        8, 1, b'g', 0,  6, b's', b'a', b'(',  b's', b'v', b')', 0,  0, 0, 0, 0,
        // s
        7, 0, 0, 0,  b'a', b'.', b's', b'l',  b'i', b'c', b'e', 0,
        // a(sv)
        40, 0, 0, 0,
        1, 0, 0, 0,  b'X', 0, 1, b't',  0, 0, 0, 0,  0, 0, 0, 0,  7, 0, 0, 0,  0, 0, 0, 0,
        1, 0, 0, 0,  b'Y', 0, 1, b'b',  0, 0, 0, 0,  1, 0, 0, 0,
    ];
    let bytes = call.bytes(9);
    assert_eq!(bytes, expected);
    let read = DbusMessage::read(&bytes).unwrap();
    assert_eq!((read.kind, read.member.as_str()), (MessageKind::MethodCall, "M"));
    assert_eq!(read.first_text().as_deref(), Some("a.slice"));
}

#[test]
fn arrays_count_their_bytes_without_the_first_padding() {
    let mut writer = DbusWriter::default();
    writer.properties(&[("P", PropertyValue::Strings(vec!["a".into(), "bc".into()]))]);
    #[rustfmt::skip]
    let expected = [
        31, 0, 0, 0,  0, 0, 0, 0,
        1, 0, 0, 0,  b'P', 0, 2, b'a',  b's', 0, 0, 0,
        15, 0, 0, 0,  1, 0, 0, 0,  b'a', 0, 0, 0,  2, 0, 0, 0,  b'b', b'c', 0,
    ];
    assert_eq!(writer.0, expected);
    let mut empty = DbusWriter::default();
    empty.array(8, |_| {});
    assert_eq!(empty.0, [0; 8]);
}

#[test]
fn a_failure_in_either_byte_order_is_read() {
    #[rustfmt::skip]
    let big: &[u8] = &[
        b'B', 3, 1, 1,  0, 0, 0, 7,  0, 0, 0, 2,  0, 0, 0, 31,
        5, 1, b'u', 0,  0, 0, 0, 9,
        4, 1, b's', 0,  0, 0, 0, 1,  b'E', 0, 0, 0,  0, 0, 0, 0,
        8, 1, b'g', 0,  1, b's', 0, 0,
        0, 0, 0, 2,  b'n', b'o', 0,
    ];
    let read = DbusMessage::read(big).unwrap();
    assert_eq!((read.kind, read.reply_to), (MessageKind::MethodError, Some(9)));
    assert_eq!((read.error_name.as_str(), read.first_text().as_deref()), ("E", Some("no")));
}

proptest! {
    #[test]
    fn arbitrary_messages_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(message) = DbusMessage::read(&bytes) {
            let _first = message.first_text();
        }
    }

    #[test]
    fn slightly_damaged_messages_never_panic(at in 0_usize..120, byte: u8) {
        let mut body = DbusWriter::default();
        body.text("x");
        let call = MethodCall { destination: Some("d"), path: "/", interface: "i", member: "m", signature: "s", body };
        let mut bytes = call.bytes(1);
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        if let Ok(message) = DbusMessage::read(&bytes) {
            let _first = message.first_text();
        }
    }
}
