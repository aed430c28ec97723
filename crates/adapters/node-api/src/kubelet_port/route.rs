//! The paths of the kubelet's port that name a container or a pod, and the node's log files.
//!
//! Rule: pure; paths, methods and texts are upstream's (pkg/kubelet/server/server.go,
//! InstallAuthRequiredHandlers). A path segment is never empty. Other paths belong to `reply`.

use super::reply::KubeletReply;

/// A pod, as a path names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PodRoute<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: Option<&'a str>,
}

/// A container, as a path names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContainerPath<'a> {
    pub(super) pod: PodRoute<'a>,
    pub(super) container: &'a str,
}

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PortRoute<'a> {
    ContainerLogs(ContainerPath<'a>),
    Exec(ContainerPath<'a>),
    Attach(ContainerPath<'a>),
    PortForward(PodRoute<'a>),
    Run(ContainerPath<'a>),
    Checkpoint(ContainerPath<'a>),
    /// A path below the directory of system logs.
    SystemLogs(&'a str),
}

/// The route of a decoded path; `None` if the path is not one of these.
pub(super) fn route<'a>(
    method: &str,
    path: &'a str,
) -> Option<Result<PortRoute<'a>, KubeletReply>> {
    const READ: &str = "GET";
    const WRITE: &str = "POST";
    const BOTH: &str = "GET, POST";
    let (root, rest) = path.strip_prefix('/')?.split_once('/').unwrap_or((path.get(1..)?, ""));
    let rest_parts: Vec<&str> = rest.strip_suffix('/').unwrap_or(rest).split('/').collect();
    let (route, methods) = match root {
        "logs" => (Some(PortRoute::SystemLogs(rest)), READ),
        "containerLogs" => (container(&rest_parts, false).map(PortRoute::ContainerLogs), READ),
        "exec" => (container(&rest_parts, true).map(PortRoute::Exec), BOTH),
        "attach" => (container(&rest_parts, true).map(PortRoute::Attach), BOTH),
        "run" => (container(&rest_parts, true).map(PortRoute::Run), WRITE),
        "portForward" => (pod(&rest_parts).map(PortRoute::PortForward), BOTH),
        "checkpoint" => (container(&rest_parts, false).map(PortRoute::Checkpoint), WRITE),
        _ => return None,
    };
    Some(match route {
        None => Err(KubeletReply::no_route()),
        Some(_) if !methods.split(", ").any(|allowed| allowed == method) => {
            Err(KubeletReply::method_not_allowed(methods))
        }
        Some(route) => Ok(route),
    })
}

fn container<'a>(parts: &[&'a str], with_uid: bool) -> Option<ContainerPath<'a>> {
    let (container, of_pod) = parts.split_last()?;
    if of_pod.len() > 2 && !with_uid {
        return None;
    }
    let container = Some(*container).filter(|name| !name.is_empty())?;
    Some(ContainerPath { pod: pod(of_pod)?, container })
}

fn pod<'a>(parts: &[&'a str]) -> Option<PodRoute<'a>> {
    if parts.iter().any(|part| part.is_empty()) {
        return None;
    }
    match *parts {
        [namespace, name] => Some(PodRoute { namespace, name, uid: None }),
        [namespace, name, uid] => Some(PodRoute { namespace, name, uid: Some(uid) }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod_path<'a>(uid: Option<&'a str>) -> PodRoute<'a> {
        PodRoute { namespace: "ns", name: "web", uid }
    }

    fn container_path<'a>(uid: Option<&'a str>) -> ContainerPath<'a> {
        ContainerPath { pod: pod_path(uid), container: "main" }
    }

    #[test]
    fn each_path_has_one_route() {
        let (plain, with_uid) = (container_path(None), container_path(Some("u")));
        let table = [
            ("GET", "/containerLogs/ns/web/main", PortRoute::ContainerLogs(plain)),
            ("GET", "/containerLogs/ns/web/main/", PortRoute::ContainerLogs(plain)),
            ("GET", "/exec/ns/web/main", PortRoute::Exec(plain)),
            ("POST", "/exec/ns/web/u/main", PortRoute::Exec(with_uid)),
            ("POST", "/attach/ns/web/main", PortRoute::Attach(plain)),
            ("GET", "/attach/ns/web/u/main", PortRoute::Attach(with_uid)),
            ("POST", "/run/ns/web/main", PortRoute::Run(plain)),
            ("POST", "/run/ns/web/u/main", PortRoute::Run(with_uid)),
            ("GET", "/portForward/ns/web", PortRoute::PortForward(pod_path(None))),
            ("POST", "/portForward/ns/web/u", PortRoute::PortForward(pod_path(Some("u")))),
            ("POST", "/checkpoint/ns/web/main", PortRoute::Checkpoint(plain)),
            ("GET", "/logs", PortRoute::SystemLogs("")),
            ("GET", "/logs/", PortRoute::SystemLogs("")),
            ("GET", "/logs/a/b/", PortRoute::SystemLogs("a/b/")),
        ];
        for (method, path, expected) in table {
            let found = route(method, path).expect("a route");
            assert_eq!(found.map_err(|reply| reply.status), Ok(expected), "{method} {path}");
        }
    }

    #[test]
    fn other_paths_and_methods_have_upstreams_answers() {
        let table = [
            ("GET", "/exec", 404, "404: Page Not Found"),
            ("GET", "/exec/", 404, "404: Page Not Found"),
            ("GET", "/exec/ns/web", 404, "404: Page Not Found"),
            ("GET", "/exec/ns//main", 404, "404: Page Not Found"),
            ("GET", "/exec/ns/web/u/main/more", 404, "404: Page Not Found"),
            ("GET", "/containerLogs/ns/web/u/main", 404, "404: Page Not Found"),
            ("GET", "/portForward/ns", 404, "404: Page Not Found"),
            ("GET", "/portForward/ns/web/u/more", 404, "404: Page Not Found"),
            ("POST", "/containerLogs/ns/web/main", 405, "405: Method Not Allowed"),
            ("PUT", "/exec/ns/web/main", 405, "405: Method Not Allowed"),
            ("GET", "/run/ns/web/main", 405, "405: Method Not Allowed"),
            ("GET", "/checkpoint/ns/web/main", 405, "405: Method Not Allowed"),
            ("POST", "/logs/a", 405, "405: Method Not Allowed"),
        ];
        for (method, path, status, text) in table {
            let reply = route(method, path).expect("a route").expect_err("an error");
            assert_eq!((reply.status, &*reply.body), (status, text.as_bytes()), "{method} {path}");
        }
        for path in ["/", "", "/pods", "/metrics/probes", "/execute/ns/web/main", "/runningpods/"] {
            assert!(route("GET", path).is_none(), "{path}");
        }
    }
}
