//! The resources of a container in its status.
//!
//! Rule: what the specification allocates, with CPU and memory as the runtime has really set them
//! where it reports them; amounts below the kernel's resolution stay as requested.
//!
//! upstream: kubelet_pods.go (convertContainerStatusResources), cm/helpers_linux.go

use pod_model::pod::resources::{CPU, MEMORY};
use pod_model::pod::{Container, ResourceList, ResourceRequirements};
use pod_model::{Quantity, QuantityFormat};
use ports::runtime_objects::{ContainerRecord, ContainerState};

const SMALLEST_LIMIT_MILLI: i64 = 10;
const SMALLEST_SHARES: i64 = 2;

pub(super) fn of_container(
    container: &Container,
    record: &ContainerRecord,
) -> ResourceRequirements {
    let mut resources = container.resources.clone();
    let Some(actual) = record.resources.as_ref() else { return resources };
    if record.state != ContainerState::Running {
        return resources;
    }
    if !resources.limits.is_empty() {
        if actual.cpu_period > 0 {
            let milli = actual.cpu_quota.saturating_mul(1000) / actual.cpu_period;
            put_cpu(&mut resources.limits, milli, SMALLEST_LIMIT_MILLI);
        }
        if actual.memory_limit > 0 {
            let bytes = Quantity::from_units(actual.memory_limit, QuantityFormat::BinarySi);
            resources.limits.insert(MEMORY, bytes);
        }
    }
    if !resources.requests.is_empty() {
        // Rounded up, as shares are rounded down from an amount.
        let milli = actual.cpu_shares.saturating_mul(1000).saturating_add(1023) / 1024;
        put_cpu(&mut resources.requests, milli, SMALLEST_SHARES);
    }
    resources
}

fn put_cpu(list: &mut ResourceList, milli: i64, smallest: i64) {
    let asked = list.get(CPU).map_or(0, Quantity::milli_value);
    if milli > 0 && (milli > smallest || asked > smallest) {
        list.insert(CPU, Quantity::from_milli(milli, QuantityFormat::DecimalSi));
    }
}
