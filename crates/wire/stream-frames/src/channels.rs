//! The channels of remote commands: the negotiated protocol, and the meaning of its messages.
//!
//! On WebSocket, the first byte of a message is its channel; in the base-64 protocols it is a digit
//! and the rest is base64. Version 5 adds channel 255, by which a client closes another one.
//!
//! upstream: apimachinery pkg/util/remotecommand, k8s.io/streaming

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub const STDIN: u8 = 0;
pub const STDOUT: u8 = 1;
pub const STDERR: u8 = 2;
pub const ERROR: u8 = 3;
pub const RESIZE: u8 = 4;
pub const CLOSE: u8 = 255;

/// Encoding of channels in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    Binary,
    Base64,
}

/// A negotiated protocol on WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelProtocol {
    pub name: &'static str,
    pub coding: Coding,
    /// The error channel carries a status object; before version 4 it is plain text.
    pub status_objects: bool,
    /// Clients may close a channel.
    pub closes: bool,
}

/// In order of preference.
pub const WEBSOCKET_PROTOCOLS: &[ChannelProtocol] = &[
    protocol("v5.channel.k8s.io", Coding::Binary, true, true),
    protocol("v4.channel.k8s.io", Coding::Binary, true, false),
    protocol("v4.base64.channel.k8s.io", Coding::Base64, true, false),
    protocol("channel.k8s.io", Coding::Binary, false, false),
    protocol("base64.channel.k8s.io", Coding::Base64, false, false),
    protocol("", Coding::Binary, false, false),
];

/// On SPDY, newest first.
pub const SPDY_PROTOCOLS: &[&str] =
    &["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];

const fn protocol(
    name: &'static str,
    coding: Coding,
    status_objects: bool,
    closes: bool,
) -> ChannelProtocol {
    ChannelProtocol { name, coding, status_objects, closes }
}

/// The best protocol that a client offers; `None` if none is supported.
pub fn negotiate(offered: &[String]) -> Option<ChannelProtocol> {
    let offers = |name: &str| offered.iter().any(|offer| offer == name);
    WEBSOCKET_PROTOCOLS
        .iter()
        .find(|known| if known.name.is_empty() { offered.is_empty() } else { offers(known.name) })
        .copied()
}

/// Decodes a client's message: its channel and its data. `None` if it has no channel.
pub fn read(protocol: ChannelProtocol, message: &[u8]) -> Option<(u8, Vec<u8>)> {
    let (first, rest) = message.split_first()?;
    match protocol.coding {
        Coding::Binary => Some((*first, rest.to_vec())),
        Coding::Base64 => {
            let channel = first.checked_sub(b'0').filter(|digit| *digit < 10)?;
            Some((channel, STANDARD.decode(rest).ok()?))
        }
    }
}

/// Encodes a message for a client.
pub fn write(protocol: ChannelProtocol, channel: u8, bytes: &[u8]) -> Vec<u8> {
    match protocol.coding {
        Coding::Binary => {
            let mut message = vec![channel];
            message.extend_from_slice(bytes);
            message
        }
        Coding::Base64 => {
            let mut message = vec![b'0' + channel % 10];
            message.extend_from_slice(STANDARD.encode(bytes).as_bytes());
            message
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn the_newest_offered_protocol_is_agreed_on() {
        let name = |list: &[&str]| negotiate(&texts(list)).map(|protocol| protocol.name);
        assert_eq!(name(&["channel.k8s.io", "v5.channel.k8s.io"]), Some("v5.channel.k8s.io"));
        assert_eq!(name(&["v4.channel.k8s.io", "x"]), Some("v4.channel.k8s.io"));
        assert_eq!(name(&[]), Some(""));
        assert_eq!(name(&["x"]), None);
    }

    #[test]
    fn messages_carry_their_channel_in_both_codings() {
        for name in ["v4.channel.k8s.io", "v4.base64.channel.k8s.io"] {
            let protocol = negotiate(&texts(&[name])).unwrap();
            let message = write(protocol, STDERR, b"\xff\x00text");
            assert_eq!(
                read(protocol, &message),
                Some((STDERR, b"\xff\x00text".to_vec())),
                "{name}"
            );
        }
        let coded = negotiate(&texts(&["base64.channel.k8s.io"])).unwrap();
        assert_eq!(read(coded, b"1aGk="), Some((1, b"hi".to_vec())));
        for wrong in [&b""[..], b"x", b"1***", b"/aGk="] {
            assert_eq!(read(coded, wrong), None, "{wrong:?}");
        }
    }
}
