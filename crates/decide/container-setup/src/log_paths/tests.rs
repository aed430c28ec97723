//! Names of log directories, files and links.

use super::*;
use crate::testing::one;

#[test]
fn dirs_and_files_have_the_references_names() {
    let pod = one("");
    assert_eq!(pod_dir(&pod), "shop_web_u-1");
    for root in ["/var/log/pods", "/var/log/pods/"] {
        assert_eq!(pod_directory(root, &pod), "/var/log/pods/shop_web_u-1");
        assert_eq!(container_directory(root, &pod, "app"), "/var/log/pods/shop_web_u-1/app");
    }
    assert_eq!(container_log("app", 0), "app/0.log");
    assert_eq!(container_log("app", 12), "app/12.log");
}

#[test]
fn a_log_dir_name_holds_the_pod_uid() {
    for (dir, uid) in [("shop_web_u-1", "u-1"), ("u-1", "u-1"), ("a_b_c_d", "d"), ("", "")] {
        assert_eq!(uid_of_dir(dir), uid, "{dir}");
    }
}

#[test]
fn links_fit_into_a_file_name() {
    let mut pod = one("");
    assert_eq!(link_name(&pod, "app", "0123456789"), "web_shop_app-0123456789.log");
    pod.metadata.name = "n".repeat(253).into();
    pod.metadata.namespace = "s".repeat(63).into();
    let name = link_name(&pod, "app", "0123456789");
    assert_eq!(name.len(), 255);
    assert!(name.starts_with("nnn") && name.ends_with(".log"));
}
