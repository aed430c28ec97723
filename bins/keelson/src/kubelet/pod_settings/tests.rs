//! Reservations from flags and file together.

use super::*;
use node_config::{ConfigFiles, flags};

fn config(arguments: &[&str]) -> NodeConfig {
    let arguments: Vec<String> = arguments.iter().map(|&it| it.to_owned()).collect();
    let loaded = node_config::load(flags::parse(&arguments), &ConfigFiles::default());
    loaded.config.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics))
}

fn machine() -> MachineSize {
    MachineSize {
        processors: 8,
        memory_bytes: 8 << 30,
        online: CpuSet::parse("0-7").unwrap(),
        ..MachineSize::default()
    }
}

fn cpu_and_memory(arguments: &[&str]) -> (String, String) {
    let kept = reservations(&config(arguments), &machine()).unwrap();
    let told = reported_allocatable(&capacity(&machine()), &kept);
    let text = |name| told.get(name).map(ToString::to_string).unwrap_or_default();
    (text("cpu"), text("memory"))
}

#[test]
fn processors_reserved_by_number_take_the_place_of_amounts() {
    let amounts = ["--kube-reserved=cpu=1", "--system-reserved=cpu=500m"];
    assert_eq!(cpu_and_memory(&amounts).0, "6500m");
    let numbers = [amounts[0], amounts[1], "--reserved-cpus=0,2-3"];
    assert_eq!(cpu_and_memory(&numbers).0, "5");
    let refused = reservations(&config(&["--reserved-cpus=6-8"]), &machine()).unwrap_err();
    let message = refused.to_string();
    assert_eq!(message, "reserved-cpus: 6-8 is not a subset of online-cpus: 0-7");
}

#[test]
fn eviction_thresholds_can_be_left_out_of_the_allocatable() {
    let evict = "--eviction-hard=memory.available<1Gi";
    assert_eq!(cpu_and_memory(&[evict]).1, "7Gi");
    let ignore = "--experimental-allocatable-ignore-eviction=true";
    assert_eq!(cpu_and_memory(&[evict, ignore]).1, "8Gi");
}

#[test]
fn memory_oom_group_is_set_where_the_kernel_supports_it() {
    for cgroup_v2 in [true, false] {
        let ips = vec!["10.0.0.1".parse().unwrap()];
        let node = NodeIdentity { name: "node".to_owned(), ips, machine: machine(), cgroup_v2 };
        let limits = setup(&config(&[]), &node, &ResourceList::default()).limits;
        assert_eq!(limits.single_process_oom_kill, !cgroup_v2);
    }
}

#[test]
fn swap_is_limited_where_the_kernel_can_whichever_its_version() {
    for (can_limit_swap, cgroup_v2) in [(true, true), (true, false), (false, true)] {
        let machine = MachineSize { can_limit_swap, ..machine() };
        let node = NodeIdentity { name: "node".to_owned(), ips: Vec::new(), machine, cgroup_v2 };
        let setup = setup(&config(&[]), &node, &ResourceList::default());
        assert_eq!(setup.machine.swap_controller, can_limit_swap);
    }
}

#[test]
fn more_than_there_is_cannot_be_reserved() {
    let ips = vec!["10.0.0.1".parse().unwrap()];
    let node = NodeIdentity { name: "node".to_owned(), ips, machine: machine(), cgroup_v2: true };
    let settings = |arguments: &[&str]| {
        pod_settings(&config(arguments), &node).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(settings(&["--kube-reserved=memory=7Gi"]), Ok(()));
    let arguments = ["--kube-reserved=memory=5Gi,cpu=1", "--system-reserved=memory=4Gi,cpu=8"];
    assert_eq!(
        settings(&arguments).unwrap_err(),
        "invalid Node Allocatable configuration. Resource \"cpu\" has a reservation of 9 but \
         capacity of 8. Expected capacity >= reservation. Resource \"memory\" has a reservation of \
         9Gi but capacity of 8Gi. Expected capacity >= reservation."
    );
}
