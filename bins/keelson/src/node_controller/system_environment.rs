//! The environment of the node controller: its clocks, and random numbers.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use host_process::steady_time;
use node_controller::SystemEnvironment;
use ports::ApiTime;

#[derive(Clone, Copy, Debug)]
pub(super) struct HostEnvironment;

impl SystemEnvironment for HostEnvironment {
    fn wall(&self) -> ApiTime {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        ApiTime::from_nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
    }

    fn since_boot(&self) -> Duration {
        steady_time::since_boot()
    }

    fn random(&self) -> u64 {
        RandomState::new().build_hasher().finish()
    }
}
