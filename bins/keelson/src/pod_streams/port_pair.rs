//! Parses `LOCAL:REMOTE`. Pure.

use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PortPair {
    /// 0 for any free port.
    pub(crate) local: u16,
    pub(crate) remote: u16,
}

impl FromStr for PortPair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (local, remote) = text.split_once(':').unwrap_or((text, text));
        let number = |part: &str| {
            let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            let number = part.parse::<u16>().ok().filter(|_| digits);
            number.ok_or_else(|| format!("{part:?}: expected a port from 1 to 65535"))
        };
        let remote = number(remote)?;
        if remote == 0 {
            return Err("a pod has no port 0".to_owned());
        }
        let local = if local.is_empty() { 0 } else { number(local)? };
        Ok(Self { local, remote })
    }
}
