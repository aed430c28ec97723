//! Requests of pods as a table.

use super::*;
use crate::choice::tests::pod;

#[test]
fn requests_come_in_the_order_of_allocation() {
    let pod = pod(&[
        ("init", "early", &[("example.com/a", 2), ("cpu", 1)]),
        ("sidecar", "side", &[("example.com/b", 1)]),
        ("main", "one", &[("example.com/a", 1), ("other.com/c", 4)]),
        ("main", "two", &[]),
    ]);
    assert!(may_need_devices(&pod));
    let is_device = |name: &str| name.starts_with("example.com/");
    let texts = |only| -> Vec<String> {
        let requests = container_requests(&pod, only, is_device);
        requests.iter().map(|it| format!("{} {} {}", it.container, it.resource, it.count)).collect()
    };
    assert_eq!(
        texts(None),
        ["early example.com/a 2", "side example.com/b 1", "one example.com/a 1"]
    );
    assert_eq!(texts(Some("one")), ["one example.com/a 1"]);
    assert_eq!(texts(Some("two")), Vec::<String>::new());
    let ends: Vec<bool> = containers(&pod).map(|(order, _)| order.ends_first).collect();
    assert_eq!(ends, [true, false, false, false]);
}

#[test]
fn pods_without_such_resources_need_no_devices() {
    assert!(!may_need_devices(&pod(&[("main", "one", &[("cpu", 1)]), ("init", "two", &[])])));
}
