//! Amounts finer than a thousandth are rounded up when a pod is stored.

use pod_model::Quantity;
use pod_model::pod::ResourceList;

/// Rounds every amount of a list up to thousandths.
pub(super) fn round_up_to_milli(list: &mut ResourceList) {
    for amount in list.values_mut() {
        // Amounts beyond 64 bits of thousandths are left alone: they have no such fine parts that
        // anyone could measure.
        if let Some(thousandths) = amount.checked_milli_value() {
            let rounded = Quantity::from_milli(thousandths, amount.format());
            if rounded != *amount {
                *amount = rounded;
            }
        }
    }
}
