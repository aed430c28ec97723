//! Resolves relative paths in the file of `--config` against that file's directory.
//!
//! The rule it keeps: only the fields that hold paths, only relative ones, purely lexical: no
//! symlink is resolved. Drop-ins are not treated so.

use crate::document::{Node, Value};

const PATH_FIELDS: [&[&str]; 7] = [
    &["staticPodPath"],
    &["authentication", "x509", "clientCAFile"],
    &["tlsCertFile"],
    &["tlsPrivateKeyFile"],
    &["resolvConf"],
    &["volumePluginDir"],
    &["podLogsDir"],
];

pub(super) fn resolve(tree: &mut Node, file: &str) {
    let dir = file.rsplit_once('/').map_or(".", |(dir, _)| if dir.is_empty() { "/" } else { dir });
    for steps in PATH_FIELDS {
        let mut node = Some(&mut *tree);
        for step in steps {
            node = node.and_then(|node| match &mut node.value {
                Value::Map(entries) => entries.get_mut(*step),
                _ => None,
            });
        }
        if let Some(Node { value: Value::String(path), .. }) = node
            && !path.is_empty()
            && !path.starts_with('/')
        {
            *path = clean(&format!("{dir}/{path}"));
        }
    }
}

/// The lexically shortest path: no `.`, no `name/..`, no doubled slash.
pub(super) fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut steps: Vec<&str> = Vec::new();
    for step in path.split('/') {
        match step {
            "" | "." => {}
            ".." => match steps.last() {
                Some(&"..") => steps.push(step),
                Some(_) => {
                    steps.pop();
                }
                None if rooted => {}
                None => steps.push(step),
            },
            name => steps.push(name),
        }
    }
    let joined = steps.join("/");
    match (rooted, joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => ".".to_owned(),
        (false, false) => joined,
    }
}
