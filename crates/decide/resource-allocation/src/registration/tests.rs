//! Names and versions as a table.

use super::*;

#[test]
fn plugins_that_register_themselves() {
    let version = "requested API version \"v1\" is not supported by kubelet. Supported version is \
                   [\"v1beta1\"]";
    let rows = [
        ("v1beta1", "example.com/gpu", None),
        ("v1", "example.com/gpu", Some(version)),
        ("v1beta1", "cpu", Some("the ResourceName \"cpu\" is invalid")),
        (
            "v1beta1",
            "a.kubernetes.io/gpu",
            Some("the ResourceName \"a.kubernetes.io/gpu\" is invalid"),
        ),
        (
            "v1beta1",
            "requests.example.com/a",
            Some("the ResourceName \"requests.example.com/a\" is invalid"),
        ),
        ("v1beta1", "example.com/", Some("the ResourceName \"example.com/\" is invalid")),
        ("v1beta1", "a/b/c", Some("the ResourceName \"a/b/c\" is invalid")),
    ];
    for (version, resource, error) in rows {
        let checked = check_request(version, resource);
        assert_eq!(checked.err().as_deref(), error, "{version} {resource}");
    }
}

#[test]
fn plugins_that_were_found() {
    let versions = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(check_plugin("example.com/gpu", &versions(&["v1alpha", "v1beta1"])), Ok(()));
    let other = check_plugin("example.com/gpu", &versions(&["v1", "v2"]));
    let text = "manager version, v1beta1, is not among plugin supported versions [v1 v2]";
    assert_eq!(other, Err(text.to_owned()));
    let name = check_plugin("memory", &versions(&["v1beta1"]));
    let text = "invalid name of device plugin resource: the ResourceName \"memory\" is invalid";
    assert_eq!(name, Err(text.to_owned()));
}
