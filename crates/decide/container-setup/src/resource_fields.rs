//! Values of a container's resources, for `resourceFieldRef`.
//!
//! Rule: an unset limit is the pod's or, failing that, the node's allocatable; the result is an
//! integer number of divisors, rounded up.
//!
//! upstream: pkg/api/v1/resource/helpers.go, pkg/kubelet/kubelet_resources.go

use pod_model::pod::container::ResourceFieldSelector;
use pod_model::pod::resources::{
    CPU, HUGE_PAGES_PREFIX, MEMORY, ResourceSide, is_pod_level_resource,
};
use pod_model::pod::{Container, Pod};
use pod_model::{Quantity, QuantityFormat};

use crate::inputs::NodeSetupInputs;
use crate::pod_resources::has_pod_level_limits;
use crate::{SetupError, refuse};

#[cfg(test)]
mod tests;

const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

/// `container` is the one with the reference; the selector may name another one of the pod.
pub fn value(
    selector: &ResourceFieldSelector,
    pod: &Pod,
    container: &Container,
    node: &NodeSetupInputs,
) -> Result<String, SetupError> {
    let (container, is_filled_in) = match &*selector.container_name {
        "" => (container, true),
        name => named(pod, name)?,
    };
    let resource = &*selector.resource;
    let (side, name) = match resource.split_once('.') {
        Some(("limits", name)) => (ResourceSide::Limits, name),
        Some(("requests", name)) => (ResourceSide::Requests, name),
        _ => refuse!("unsupported container resource : {resource}"),
    };
    let is_defaulted = matches!(name, CPU | MEMORY | EPHEMERAL_STORAGE);
    if !is_defaulted && !name.starts_with(HUGE_PAGES_PREFIX) {
        refuse!("unsupported container resource : {resource}");
    }
    let own = container.resources.side(side).get(name).copied();
    let amount = match own {
        Some(amount) if !amount.is_zero() => amount,
        _ if side == ResourceSide::Limits && is_defaulted && is_filled_in => {
            default_limit(pod, node, name)
        }
        _ => Quantity::ZERO,
    };
    let divisor = if selector.divisor.is_zero() {
        Quantity::from_units(1, QuantityFormat::DecimalSi)
    } else {
        selector.divisor
    };
    let (amount, divisor) = if name == CPU {
        (amount.milli_value(), divisor.milli_value())
    } else {
        (amount.value(), divisor.value())
    };
    Ok(rounded_up(amount, divisor).to_string())
}

/// A container by name, and whether its unset limits are defaulted: those of an init container that
/// is selected by name are not.
fn named<'p>(pod: &'p Pod, name: &str) -> Result<(&'p Container, bool), SetupError> {
    let find = |list: &'p [Container]| list.iter().find(|container| &*container.name == name);
    if let Some(container) = find(&pod.spec.containers) {
        return Ok((container, true));
    }
    match find(&pod.spec.init_containers) {
        Some(container) => Ok((container, false)),
        None => refuse!("container {name} not found"),
    }
}

fn default_limit(pod: &Pod, node: &NodeSetupInputs, name: &str) -> Quantity {
    let Some(allocatable) = node.allocatable.get(name).copied() else { return Quantity::ZERO };
    let of_pod = pod.spec.resources.as_ref().and_then(|it| it.limits.get(name)).copied();
    match of_pod {
        Some(limit)
            if !limit.is_zero()
                && is_pod_level_resource(name)
                && has_pod_level_limits(pod, &node.gates) =>
        {
            limit
        }
        _ => allocatable,
    }
}

/// Divisors are validated to be above zero; anything else gives zero.
fn rounded_up(amount: i64, divisor: i64) -> i64 {
    if divisor <= 0 {
        return 0;
    }
    amount / divisor + i64::from(amount % divisor > 0)
}
