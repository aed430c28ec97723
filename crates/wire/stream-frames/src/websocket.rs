//! WebSocket frames from the server's side: clients mask, servers do not.
//!
//! Rule: fragmented messages are assembled under a limit; control frames may come in between.
//! Extensions are never negotiated, so their bits are an error. The handshake's response key is
//! here too, since it is computed from a header.
//!
//! upstream: RFC 6455

use base64::Engine as _;
use sha1::{Digest as _, Sha1};

#[cfg(test)]
mod tests;

/// More than any client of Kubernetes sends in one message.
const MAX_MESSAGE_BYTES: usize = 16 << 20;
const CONTROL_LIMIT: usize = 125;
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The `Sec-WebSocket-Accept` for this key.
pub fn accept_key(key: &str) -> String {
    let hash = Sha1::digest(format!("{}{GUID}", key.trim()).as_bytes());
    base64::engine::general_purpose::STANDARD.encode(hash)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WebSocketError {
    #[error("a client's frame is not masked")]
    Unmasked,
    #[error("a frame uses extensions that were not agreed on")]
    Extension,
    #[error("a frame of an unknown kind")]
    Kind,
    #[error("a control frame is too long or in pieces")]
    Control,
    #[error("a message goes on that has not begun, or begins in another")]
    Order,
    #[error("a message exceeds {MAX_MESSAGE_BYTES} bytes")]
    TooLarge,
    #[error("a length is written longer than needed")]
    Length,
}

impl WebSocketError {
    /// The code to close the connection with.
    pub fn close_code(self) -> u16 {
        if self == Self::TooLarge { 1009 } else { 1002 }
    }
}

/// What a client sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientMessage {
    Text(Vec<u8>),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong,
    /// With the client's code, if there is one.
    Close(Option<u16>),
}

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// Decodes bytes to messages.
#[derive(Debug, Default)]
pub struct WebSocketDecoder {
    buffered: Vec<u8>,
    /// A message whose last fragment has not arrived.
    open: Option<(u8, Vec<u8>)>,
}

struct WebSocketFrame {
    last: bool,
    kind: u8,
    payload: Vec<u8>,
}

impl WebSocketDecoder {
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffered.extend_from_slice(bytes);
    }

    /// The next whole message.
    pub fn next_message(&mut self) -> Result<Option<ClientMessage>, WebSocketError> {
        while let Some(frame) = self.frame()? {
            if let Some(message) = self.take(frame)? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    fn take(&mut self, frame: WebSocketFrame) -> Result<Option<ClientMessage>, WebSocketError> {
        match frame.kind {
            CLOSE => {
                let code = frame.payload.first_chunk::<2>().map(|code| u16::from_be_bytes(*code));
                return Ok(Some(ClientMessage::Close(code)));
            }
            PING => return Ok(Some(ClientMessage::Ping(frame.payload))),
            PONG => return Ok(Some(ClientMessage::Pong)),
            _ => {}
        }
        let (kind, mut bytes) = match (frame.kind, self.open.take()) {
            (CONTINUATION, Some(open)) => open,
            (TEXT | BINARY, None) => (frame.kind, Vec::new()),
            _ => return Err(WebSocketError::Order),
        };
        if bytes.len() + frame.payload.len() > MAX_MESSAGE_BYTES {
            return Err(WebSocketError::TooLarge);
        }
        bytes.extend(frame.payload);
        if !frame.last {
            self.open = Some((kind, bytes));
            return Ok(None);
        }
        Ok(Some(if kind == TEXT {
            ClientMessage::Text(bytes)
        } else {
            ClientMessage::Binary(bytes)
        }))
    }

    fn frame(&mut self) -> Result<Option<WebSocketFrame>, WebSocketError> {
        let Some([first, second]) = self.buffered.first_chunk::<2>().copied() else {
            return Ok(None);
        };
        let kind = first & 0x0f;
        if first & 0x70 != 0 {
            return Err(WebSocketError::Extension);
        }
        if second & 0x80 == 0 {
            return Err(WebSocketError::Unmasked);
        }
        if !matches!(kind, CONTINUATION | TEXT | BINARY | CLOSE | PING | PONG) {
            return Err(WebSocketError::Kind);
        }
        let last = first & 0x80 != 0;
        let Some((length, start)) = self.length(second & 0x7f)? else { return Ok(None) };
        if kind >= CLOSE && (length > CONTROL_LIMIT || !last) {
            return Err(WebSocketError::Control);
        }
        if length > MAX_MESSAGE_BYTES {
            return Err(WebSocketError::TooLarge);
        }
        let Some(whole) = self.buffered.get(start..start + 4 + length) else { return Ok(None) };
        let (mask, masked) = whole.split_at(4);
        let payload =
            masked.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
        self.buffered.drain(..start + 4 + length);
        Ok(Some(WebSocketFrame { last, kind, payload }))
    }

    /// The payload's length, and the offset of the mask.
    fn length(&self, short: u8) -> Result<Option<(usize, usize)>, WebSocketError> {
        match short {
            126 => {
                let Some(bytes) = self.buffered.get(2..4) else { return Ok(None) };
                let length = usize::from(bytes[0]) << 8 | usize::from(bytes[1]);
                if length < 126 { Err(WebSocketError::Length) } else { Ok(Some((length, 4))) }
            }
            127 => {
                let Some(bytes) =
                    self.buffered.get(2..10).and_then(|b| <[u8; 8]>::try_from(b).ok())
                else {
                    return Ok(None);
                };
                let length = u64::from_be_bytes(bytes);
                if length <= u64::from(u16::MAX) {
                    return Err(WebSocketError::Length);
                }
                let length = usize::try_from(length).map_err(|_| WebSocketError::TooLarge)?;
                Ok(Some((length, 10)))
            }
            length => Ok(Some((usize::from(length), 2))),
        }
    }
}

/// What a server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerMessage<'a> {
    Text(&'a [u8]),
    Binary(&'a [u8]),
    Pong(&'a [u8]),
    Close(u16),
}

/// Appends one unmasked frame.
pub fn write(reply: &ServerMessage<'_>, output: &mut Vec<u8>) {
    let code;
    let (kind, payload): (u8, &[u8]) = match reply {
        ServerMessage::Text(bytes) => (TEXT, bytes),
        ServerMessage::Binary(bytes) => (BINARY, bytes),
        ServerMessage::Pong(bytes) => (PONG, bytes),
        ServerMessage::Close(number) => {
            code = number.to_be_bytes();
            (CLOSE, &code)
        }
    };
    output.push(0x80 | kind);
    let length = payload.len();
    if let Ok(short) = u8::try_from(length)
        && short < 126
    {
        output.push(short);
    } else if let Ok(middle) = u16::try_from(length) {
        output.push(126);
        output.extend_from_slice(&middle.to_be_bytes());
    } else {
        output.push(127);
        output.extend_from_slice(&(length as u64).to_be_bytes());
    }
    output.extend_from_slice(payload);
}
