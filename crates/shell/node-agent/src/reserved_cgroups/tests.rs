//! The messages of each level.

use super::*;
use ports::pod_host::CgroupLimits;

#[test]
fn each_level_has_its_own_message() {
    let rows = [
        ("system-reserved", "Failed to enforce System Reserved Cgroup Limits on \"/s\": why"),
        ("kube-reserved", "Failed to enforce Kube Reserved Cgroup Limits on \"/s\": why"),
        (
            "system-reserved-compressible",
            "Failed to enforce System Reserved Compressible Cgroup Limits on \"/s\": why",
        ),
        (
            "kube-reserved-compressible",
            "Failed to enforce Kube Reserved Compressible Cgroup Limits on \"/s\": why",
        ),
    ];
    for (level, expected) in rows {
        let (level, path) = (level.to_owned(), "/s".to_owned());
        let cgroup = ReservedCgroup { level, path, limits: CgroupLimits::default() };
        assert_eq!(failure(&cgroup, "why"), expected);
    }
}
