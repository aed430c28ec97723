//! A client that sends much at once, read in small pieces.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame of stream 1.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let size = u8::try_from(payload.len()).unwrap();
    [&[0, 0, size, kind, flags, 0, 0, 0, 1], payload].concat()
}

#[tokio::test]
async fn several_blocks_in_one_read_all_come_in_order() {
    // An authority with its name in the table of RFC 7541, of two letters each.
    let block = |value: &[u8; 2]| [&[0x01, 2], &value[..]].concat();
    let (mut input, mut expected) = (PREFACE.to_vec(), PREFACE.to_vec());
    let written = b"\x00\x0a:authority\x09localhost";
    for _ in 0..3 {
        input.extend(frame(1, 4, &block(b"/a")));
        expected.extend(frame(1, 4, written));
        for bytes in [&mut input, &mut expected] {
            bytes.extend(frame(0, 0, b"body"));
        }
    }
    let (mut client, server) = tokio::io::duplex(4096);
    client.write_all(&input).await.unwrap();
    drop(client);
    let mut stream = AuthorityFilterStream::new(server);
    let mut piece = [0; 7];
    let mut output = Vec::new();
    loop {
        let size = stream.read(&mut piece).await.unwrap();
        if size == 0 {
            break;
        }
        output.extend_from_slice(&piece[..size]);
    }
    assert_eq!(output, expected);
}

#[tokio::test]
async fn a_block_that_never_ends_is_an_error_of_the_stream() {
    let (mut client, server) = tokio::io::duplex(1 << 20);
    let mut input = PREFACE.to_vec();
    input.extend(frame(1, 0, b""));
    (0..1000).for_each(|_| input.extend(frame(9, 0, b"")));
    client.write_all(&input).await.unwrap();
    drop(client);
    let error = AuthorityFilterStream::new(server).read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}
