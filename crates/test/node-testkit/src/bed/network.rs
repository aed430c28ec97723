//! The bed's network: a loopback that is up, and a link with one address that a node would have.
//!
//! Rule: nothing of it reaches the host; the link has no other end. Programs that look for the
//! address of the default route find [`NODE_ADDRESS`].

use std::io::Write;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The address of the bed's own link.
pub const NODE_ADDRESS: &str = "172.31.255.1";

/// A bridge without ports stands in for a network card: not every kernel has dummy links.
const LINKS: &str = "\
link set lo up
link add bed0 type bridge
addr add 172.31.255.1/24 dev bed0
link set bed0 up
route add default via 172.31.255.254 dev bed0 onlink
";

/// Brings the links of this network namespace up.
pub(super) fn bring_up() -> Result<()> {
    let mut ip = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("run ip (Debian package iproute2)")?;
    if let Some(mut input) = ip.stdin.take() {
        input.write_all(LINKS.as_bytes()).context("tell ip what to do")?;
    }
    let output = ip.wait_with_output().context("wait for ip")?;
    if !output.status.success() {
        bail!("ip: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// A port on which nothing listens now.
///
/// # Errors
/// When the loopback has none.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("find a free port")?;
    Ok(listener.local_addr()?.port())
}
