//! Volumes in volumes.

use super::*;
use crate::testing::pod;

#[test]
fn outermost_directories() {
    for (mounts, expected) in [
        ("[{name: v, mountPath: /etc}]", ""),
        ("[{name: v, mountPath: /etc}, {name: o, mountPath: /etc/a}]", "a"),
        ("[{name: v, mountPath: /etc/}, {name: o, mountPath: /etc//a/./b}]", "a/b"),
        (
            "[{name: v, mountPath: /d}, {name: o, mountPath: /d/n}, {name: o, mountPath: /d/n/x}, {name: o, mountPath: /d/n-v}]",
            "n,n-v",
        ),
        (
            "[{name: v, mountPath: /d}, {name: o, mountPath: /d2}, {name: o, mountPath: /d/../e}]",
            "",
        ),
        ("[{name: v, mountPath: /d}, {name: o, mountPath: /d/..data}]", ""),
        ("[{name: o, mountPath: /d}, {name: v, mountPath: /d/n}]", ""),
    ] {
        let pod = pod(&format!("{{containers: [{{name: a, volumeMounts: {mounts}}}]}}"));
        assert_eq!(nested_in(&pod, "v").join(","), expected, "{mounts}");
    }
}
