//! Words of the domain: quantities, Go durations, CPU sets, names, addresses and sizes.
//!
//! Every type here is a plain value: made from text, compared, added, written back. The rule it
//! keeps: what the reference kubelet accepts is accepted with the same meaning, what it refuses is
//! refused, and the few places where we knowingly differ are named at the type. Nothing here reads
//! a clock, a file or the environment, and no input of any kind makes it panic.

pub mod calendar;
mod copy_on_write;
mod cpu_set;
mod duration;
pub mod ip;
pub mod log_line;
pub mod names;
pub mod pod;
mod quantity;
pub mod sizes;

pub use copy_on_write::CopyOnWrite;
pub use cpu_set::{CpuSet, CpuSetError};
pub use duration::{DurationError, DurationReason, GoDuration};
pub use ip::{
    Cidr, IpError, NodeAddresses, parse_cidr, parse_cidr_list, parse_ip, parse_ip_list,
    parse_node_addresses,
};
pub use names::{
    NameError, NameKind, NamePart, NameRule, TaintEffect, check_dns_label, check_dns_subdomain,
    check_label_value, check_port, check_qualified_name, check_taint_effect,
};
pub use quantity::{Quantity, QuantityError, QuantityFormat, QuantityReason};
pub use sizes::{
    LogSizeLimit, Percentage, SizeError, ThresholdError, ThresholdValue, parse_positive_size,
};
