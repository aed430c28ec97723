//! What depends on the machine and on nothing else.

use super::*;

fn machine(selinux: bool) -> Machine {
    Machine {
        hostname: String::new(),
        capabilities: 0,
        lowest_oom_score: 0,
        apparmor: AppArmor::of_this_machine(),
        selinux,
        unified_cgroups: false,
        cgroup_driver: CgroupDriver::Cgroupfs,
        abilities: Abilities { swap: false, huge_pages: false },
    }
}

#[test]
fn a_label_is_for_kernels_that_have_them() {
    let options = v1::SeLinuxOption { level: "s0:c1".into(), ..Default::default() };
    let mut security =
        v1::LinuxContainerSecurityContext { selinux_options: Some(options), ..Default::default() };
    assert_eq!(selinux(&machine(true), &security), "system_u:system_r:container_t:s0:c1");
    assert_eq!(selinux(&machine(false), &security), "", "as the reference runtime has it");
    security.privileged = true;
    assert_eq!(selinux(&machine(true), &security), "");
    security.selinux_options = None;
    assert_eq!(selinux(&machine(true), &security), "");
}
