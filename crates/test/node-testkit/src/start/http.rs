//! One GET over plain HTTP, for health checks of parts.
//!
//! Rule: every step has a timeout. No TLS: where that is needed, tests use kubectl.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};

const LIMIT: Duration = Duration::from_secs(5);

/// A server's response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainHttpResponse {
    pub status: u16,
    pub head: String,
    pub body: String,
}

/// Requests a path.
///
/// # Errors
/// No connection, no response in time, or a response that is not HTTP.
pub fn get(address: SocketAddr, path: &str) -> Result<PlainHttpResponse> {
    let ask = || -> Result<String> {
        let mut connection = TcpStream::connect_timeout(&address, LIMIT)?;
        connection.set_read_timeout(Some(LIMIT))?;
        connection.set_write_timeout(Some(LIMIT))?;
        // 1.0, so that the body is neither chunked nor followed by anything.
        let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
        connection.write_all(request.as_bytes())?;
        let mut text = Vec::new();
        connection.read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    };
    let text = ask().with_context(|| format!("GET http://{address}{path}"))?;
    parse(&text).with_context(|| format!("GET http://{address}{path}: not HTTP: {text:?}"))
}

fn parse(text: &str) -> Option<PlainHttpResponse> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.lines().next()?.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    Some(PlainHttpResponse { status, head: head.to_owned(), body: body.to_owned() })
}
