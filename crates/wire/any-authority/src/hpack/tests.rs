//! The examples of RFC 7541, appendix C, and hostile blocks.

use super::*;

fn field(name: &str, value: &str) -> Field {
    (name.as_bytes().to_vec(), value.as_bytes().to_vec())
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits: Vec<u8> = hexadecimal.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn first_request() -> Vec<Field> {
    vec![
        field(":method", "GET"),
        field(":scheme", "http"),
        field(":path", "/"),
        field(":authority", "www.example.com"),
    ]
}

#[test]
fn rfc_7541_requests_decode_with_and_without_huffman_codes() {
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let coded = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    for blocks in [plain, coded] {
        let mut decoder = HpackDecoder::default();
        assert_eq!(decoder.decode(&bytes(blocks[0])), Ok(first_request()));
        let mut second = first_request();
        second.push(field("cache-control", "no-cache"));
        assert_eq!(decoder.decode(&bytes(blocks[1])), Ok(second));
        let third = vec![
            field(":method", "GET"),
            field(":scheme", "https"),
            field(":path", "/index.html"),
            field(":authority", "www.example.com"),
            field("custom-key", "custom-value"),
        ];
        assert_eq!(decoder.decode(&bytes(blocks[2])), Ok(third));
        assert_eq!(decoder.bytes, 164);
    }
}

#[test]
fn encoded_fields_decode_to_the_same_fields() {
    let mut fields = first_request();
    fields.push((b"long".to_vec(), vec![b'x'; 60_000]));
    fields.push((b"edge".to_vec(), vec![b'y'; 127]));
    fields.push((b"".to_vec(), vec![]));
    assert_eq!(HpackDecoder::default().decode(&encode(&fields)), Ok(fields));
}

#[test]
fn invalid_header_blocks_are_refused() {
    for (block, expected) in [
        (&[0x80][..], BlockError::Reference),
        (&[0xbe], BlockError::Reference),
        (&[0x40], BlockError::Short),
        (&[0x00, 0x05, b'a'], BlockError::Short),
        (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], BlockError::Number),
        (&[0x3f, 0xe2, 0x1f], BlockError::TableSize),
        (&[0x00, 0x81, 0x00, 0x00], BlockError::Huffman),
        (&[0x00, 0x82, 0xff, 0xff, 0x00], BlockError::Huffman),
    ] {
        assert_eq!(HpackDecoder::default().decode(block), Err(expected), "{block:02x?}");
    }
}

#[test]
fn a_block_of_references_cannot_grow_without_end() {
    let mut decoder = HpackDecoder::default();
    let mut block = vec![0x40];
    write_length(&mut block, 1);
    block.push(b'n');
    write_length(&mut block, 3000);
    block.extend(std::iter::repeat_n(b'v', 3000));
    block.extend(std::iter::repeat_n(0xbe, 1000));
    assert_eq!(decoder.decode(&block), Err(BlockError::TooLarge));
}

#[test]
fn a_smaller_dynamic_table_evicts_entries() {
    let mut decoder = HpackDecoder::default();
    decoder.decode(&bytes("4001 6101 62")).unwrap();
    assert_eq!(decoder.decode(&[0xbe]), Ok(vec![field("a", "b")]));
    assert_eq!(decoder.decode(&[0x20, 0x3f, 0xe1, 0x1f, 0xbe]), Err(BlockError::Reference));
}

proptest::proptest! {
    #[test]
    fn arbitrary_bytes_decode_or_give_an_error(block: Vec<u8>) {
        let _ = HpackDecoder::default().decode(&block);
    }
}
