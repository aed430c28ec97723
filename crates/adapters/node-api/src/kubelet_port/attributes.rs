//! The attributes by which a request to the kubelet's port is authorized.
//!
//! Rule: pure; the same table for every path, served or not. The fine-grained sub-resource is
//! checked first, `proxy` second; any that is allowed is enough. upstream:
//! pkg/kubelet/server/auth.go

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// A verb on a sub-resource of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct NodeAttributes<'a> {
    pub(crate) verb: &'static str,
    pub(crate) subresource: &'static str,
    pub(crate) node: &'a str,
}

/// The API's verb; empty for methods that have none.
pub(super) fn verb(method: &str) -> &'static str {
    match method {
        "POST" => "create",
        "GET" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

/// The sub-resources of a decoded path, in the order in which they are checked; never empty.
pub(super) fn subresources(path: &str) -> Vec<&'static str> {
    const FINE: &[(&str, &str)] = &[
        ("/pods", "pods"),
        ("/healthz", "healthz"),
        ("/configz", "configz"),
        ("/runningpods", "pods"),
    ];
    const OWN: &[(&str, &str)] = &[
        ("/stats", "stats"),
        ("/metrics", "metrics"),
        ("/logs", "log"),
        ("/checkpoint", "checkpoint"),
        ("/statusz", "statusz"),
        ("/flagz", "configz"),
    ];
    let find = |table: &[(&str, &'static str)]| {
        table.iter().find(|(root, _)| is_below(path, root)).map(|(_, subresource)| *subresource)
    };
    let own = find(OWN).unwrap_or("proxy");
    find(FINE).into_iter().chain([own]).collect()
}

fn is_below(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The path by which authorization and handlers are both looked up. One that is not UTF-8 once
/// decoded stays as it is.
pub(super) fn decoded(path: &str) -> String {
    percent_decode_str(path).decode_utf8().map_or_else(|_| path.to_owned(), Cow::into_owned)
}

#[cfg(test)]
mod tests;
