//! A gRPC client with a socket path as its authority, as C core's: hand-written HTTP/2, since our
//! HTTP library would not send it.
//!
//! `cargo xtask conformance foreign-grpc` does the same with the real C core from Python and with
//! gRPC's Go library.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use cri_wire::v1;
use node_testkit::bed::BedTest;
use prost::Message as _;
use real_tests::embedded::{Embedded, EmbeddedOptions, RuntimePrograms};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const VERSION: &str = "/runtime.v1.RuntimeService/Version";

#[test]
fn clients_with_a_path_as_authority_are_answered() -> Result<()> {
    let programs = RuntimePrograms::build()?;
    BedTest::new().deadline(Duration::from_mins(1)).run(|bed| {
        let server = Embedded::start(bed, &programs, &EmbeddedOptions::default())?;
        let socket = server.socket();
        let path = socket.display().to_string();
        let percent = path.replace('/', "%2F");
        for authority in [path.as_str(), percent.as_str(), "", "localhost", "a b\\c:d"] {
            let version = two_calls(&socket, authority)
                .with_context(|| format!("with the authority {authority:?}"))?;
            ensure!(version.runtime_api_version == "v1", "{version:?}");
        }
        Ok(())
    })
}

/// Two calls on one connection: the second refers to the HPACK table entries of the first.
fn two_calls(socket: &Path, authority: &str) -> Result<v1::VersionResponse> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
    stream.write_all(&frame(SETTINGS, 0, 0, &[]))?;
    let mut first = literal(":method", "POST");
    for (name, value) in [
        (":scheme", "http"),
        (":path", VERSION),
        (":authority", authority),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("user-agent", "by-hand"),
    ] {
        first.extend(literal(name, value));
    }
    call(&mut stream, 1, &first)?;
    let answer = answer(&mut stream, 1)?;
    // The newest entry of the table is 62; seven were added.
    let again: Vec<u8> = (0..7).rev().map(|at| 0x80 | (62 + at)).collect();
    call(&mut stream, 3, &again)?;
    ensure!(self::answer(&mut stream, 3)? == answer, "the second call is answered otherwise");
    Ok(answer)
}

fn call(stream: &mut UnixStream, id: u32, block: &[u8]) -> Result<()> {
    stream.write_all(&frame(HEADERS, END_HEADERS, id, block))?;
    // An empty message: not compressed, no bytes.
    Ok(stream.write_all(&frame(DATA, END_STREAM, id, &[0; 5]))?)
}

/// A field with a literal name and value that is added to the HPACK table.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0x40];
    for text in [name, value] {
        // Below 127, so one byte holds the length.
        bytes.push(u8::try_from(text.len()).unwrap_or(0));
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Reads until the call's stream ends; its message must have arrived before.
fn answer(stream: &mut UnixStream, id: u32) -> Result<v1::VersionResponse> {
    let mut body = Vec::new();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).context("the server ended the connection")?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let of = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; usize::try_from(length)?];
        stream.read_exact(&mut payload)?;
        let (kind, flags) = (head[3], head[4]);
        match kind {
            SETTINGS | PING if flags & 1 == 0 => {
                let echoed = if kind == PING { payload } else { Vec::new() };
                stream.write_all(&frame(kind, 1, 0, &echoed))?;
                continue;
            }
            DATA if of == id => body.extend(payload),
            3 | 7 => bail!("refused, by a frame of kind {kind}: {payload:?}"),
            _ => {}
        }
        if of == id && flags & END_STREAM != 0 && matches!(kind, DATA | HEADERS) {
            let message = body.get(5..).context("the call ended without a message")?;
            return v1::VersionResponse::decode(message).context("a version");
        }
    }
}
