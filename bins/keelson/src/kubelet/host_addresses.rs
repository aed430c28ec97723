//! This machine's addresses, from the configuration or from its routes.
//!
//! Rule: configured addresses hold; otherwise the kernel is asked, at most every few seconds, and
//! each time while there is none.

use super::machine;
use ports::HostAddresses;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Pods that start together share one lookup.
const ADDRESSES_TTL: Duration = Duration::from_secs(5);

pub(super) struct MachineAddresses {
    configured: Vec<IpAddr>,
    found: Mutex<Option<(Instant, Vec<IpAddr>)>>,
}

impl MachineAddresses {
    /// `configured`: the configured addresses; empty for the machine's own.
    pub(super) fn new(configured: Vec<IpAddr>) -> Self {
        Self { configured, found: Mutex::new(None) }
    }
}

impl HostAddresses for MachineAddresses {
    fn now(&self) -> Vec<IpAddr> {
        if !self.configured.is_empty() {
            return self.configured.clone();
        }
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        match &*found {
            Some((at, known)) if !known.is_empty() && at.elapsed() < ADDRESSES_TTL => known.clone(),
            _ => {
                let now = machine::addresses();
                *found = Some((Instant::now(), now.clone()));
                now
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_addresses_win_over_the_kernels() {
        let configured: Vec<IpAddr> = vec!["192.0.2.5".parse().unwrap()];
        assert_eq!(MachineAddresses::new(configured.clone()).now(), configured);
        let own = MachineAddresses::new(Vec::new());
        assert_eq!(own.now(), machine::addresses());
        assert_eq!(own.now(), machine::addresses());
    }
}
