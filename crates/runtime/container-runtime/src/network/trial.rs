//! Checks whether this host could give a pod the built-in network, by trying it in network
//! namespaces that end with the trial.
//!
//! Rule: the steps are those of a real pod with a host port, so they fail where a pod would.
//! Nothing of the host's own network is touched.

use std::fs::File;
use std::os::fd::AsFd as _;

use cri_wire::v1;

use super::{BuiltIn, BuiltInSettings, PodNetwork};
use crate::failure::{CallContext as _, CriError, Result};
use crate::records::NetworkRecord;

/// Why pods would get no built-in network here.
#[derive(Debug, thiserror::Error)]
pub enum NetworkTrialError {
    #[error("no thread: {0}")]
    Thread(std::io::Error),
    #[error("the trial panicked")]
    Panicked,
    /// The step that failed.
    #[error("{0}")]
    Failed(CriError),
}

/// Creates a bridge, a veth pair, addresses and rules. Blocks for milliseconds.
pub fn try_built_in_network() -> Result<(), NetworkTrialError> {
    let thread =
        std::thread::Builder::new().name("network-trial".to_owned()).spawn(create_test_network);
    let thread = thread.map_err(NetworkTrialError::Thread)?;
    match thread.join() {
        Ok(outcome) => outcome.map_err(NetworkTrialError::Failed),
        Err(_) => Err(NetworkTrialError::Panicked),
    }
}

fn create_test_network() -> Result<()> {
    unshare_network()?;
    // Held by its descriptor after the thread has moved on.
    let pods = File::open("/proc/thread-self/ns/net").doing("opening a network namespace")?;
    unshare_network()?;
    let network = BuiltIn::new(BuiltInSettings::default())?;
    network.readiness().map_err(CriError::plain)?;
    let mapping = v1::PortMapping { host_port: 80, container_port: 80, ..Default::default() };
    let config = v1::PodSandboxConfig { port_mappings: vec![mapping], ..Default::default() };
    let pod = PodNetwork { sandbox: "trial".to_owned(), config };
    let (link, addresses) = network.reserve(&pod)?;
    let record = NetworkRecord { link, addresses, ..Default::default() };
    network.add(&pod, &record, pods.as_fd())
}

pub(super) fn unshare_network() -> Result<()> {
    // Deprecated in favour of an unsafe variant because of what it can do to descriptors; for a
    // network namespace alone it does nothing of the kind.
    #[expect(deprecated, reason = "the safe form suffices for a network namespace")]
    rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNET)
        .doing("making a network namespace")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_reports_its_result_and_leaves_the_network_unchanged() {
        let outcome = try_built_in_network();
        let links = std::fs::read_to_string("/proc/self/net/dev").unwrap();
        assert!(!links.contains("keeltrial"), "{links}");
        if rustix::process::geteuid().is_root() {
            outcome.unwrap();
        } else {
            let error = outcome.unwrap_err().to_string();
            assert!(error.contains("making a network namespace"), "{error}");
        }
    }
}
