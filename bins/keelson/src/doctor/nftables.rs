//! Whether the kernel's nftables works, by a request to it.
//!
//! Rule: one harmless request (the generation number of the rule set) over netlink; nothing is
//! changed. An answer that does not come within a second counts as none.

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use std::time::Duration;

/// `NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETGEN`
const GET_GENERATION: u16 = 0x0a10;
const REQUEST: u16 = 1;
const ERROR: u16 = 2;
const HEADER_LENGTH: usize = 16;

/// Sends the request; an error names what came instead of a response.
pub(crate) fn answers() -> Result<(), String> {
    let failed = |errno: rustix::io::Errno| errno.to_string();
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::NETFILTER),
    )
    .map_err(failed)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(1))).map_err(failed)?;
    send(&socket, &request(), SendFlags::empty()).map_err(failed)?;
    let mut buffer = [0_u8; 4096];
    let (length, _) = recv(&socket, &mut buffer, RecvFlags::empty()).map_err(failed)?;
    verdict(&buffer[..length])
}

/// A netlink header (length, type, flags, sequence, port) and an empty netfilter header.
fn request() -> [u8; 20] {
    let mut message = [0_u8; 20];
    message[..4].copy_from_slice(&20_u32.to_ne_bytes());
    message[4..6].copy_from_slice(&GET_GENERATION.to_ne_bytes());
    message[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
    message
}

pub(crate) fn verdict(reply: &[u8]) -> Result<(), String> {
    let kind = reply.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let code = reply
        .get(HEADER_LENGTH..HEADER_LENGTH + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .map(i32::from_ne_bytes);
    match (kind, code) {
        (Some(ERROR), Some(code)) if code != 0 => {
            Err(std::io::Error::from_raw_os_error(-code).to_string())
        }
        (Some(_), _) => Ok(()),
        (None, _) => Err("an answer too short to be one".to_owned()),
    }
}
