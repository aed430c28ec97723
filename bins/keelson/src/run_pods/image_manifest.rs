//! The manifest of `run --image`: one container that runs once.
//!
//! Rule: pure; an error names the argument that causes it. The words behind `--` are the
//! container's arguments, as for `kubectl run`: an image's entry point stays in force.

use serde_json::{Value, json};
use std::str::FromStr;

/// Short: a shell ignores signals as the first process.
const GRACE_SECONDS: u32 = 10;
const LONGEST_NAME: usize = 50;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ImagePod {
    pub(super) image: String,
    /// If None, derived from the image's name.
    pub(super) name: Option<String>,
    pub(super) ports: Vec<PublishedPort>,
    pub(super) environment: Vec<Variable>,
    pub(super) stdin: bool,
    pub(super) tty: bool,
    pub(super) arguments: Vec<String>,
}

/// `[HOST:]CONTAINER[/udp]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PublishedPort {
    host: u16,
    container: u16,
    protocol: &'static str,
}

/// `NAME=VALUE`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    name: String,
    value: String,
}

impl FromStr for PublishedPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (ports, protocol) = match text.split_once('/') {
            None | Some((_, "tcp")) => (text.split('/').next().unwrap_or(text), "TCP"),
            Some((ports, "udp")) => (ports, "UDP"),
            Some((_, other)) => return Err(format!("{other:?}: expected tcp or udp")),
        };
        let (host, container) = ports.split_once(':').unwrap_or((ports, ports));
        let number = |part: &str| {
            let digits = part.bytes().all(|byte| byte.is_ascii_digit());
            let number = part.parse::<u16>().ok().filter(|number| digits && *number > 0);
            number.ok_or_else(|| format!("{part:?}: expected a port from 1 to 65535"))
        };
        Ok(Self { host: number(host)?, container: number(container)?, protocol })
    }
}

impl FromStr for Variable {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => {
                Ok(Self { name: name.to_owned(), value: value.to_owned() })
            }
            _ => Err(format!("{text:?}: expected NAME=VALUE")),
        }
    }
}

impl ImagePod {
    pub(super) fn manifest(&self) -> String {
        let name = self.name.clone().unwrap_or_else(|| name_of(&self.image));
        let ports: Vec<Value> = self
            .ports
            .iter()
            .map(|port| {
                json!({ "containerPort": port.container, "hostPort": port.host,
                        "protocol": port.protocol })
            })
            .collect();
        let environment: Vec<Value> = self
            .environment
            .iter()
            .map(|variable| json!({ "name": variable.name, "value": variable.value }))
            .collect();
        let mut container = json!({
            "name": "main",
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
        });
        let fields = [
            ("args", json!(self.arguments), !self.arguments.is_empty()),
            ("ports", json!(ports), !ports.is_empty()),
            ("env", json!(environment), !environment.is_empty()),
            ("stdin", json!(true), self.stdin),
            ("stdinOnce", json!(true), self.stdin),
            ("tty", json!(true), self.tty),
        ];
        for (field, value, wanted) in fields {
            if wanted {
                container[field] = value;
            }
        }
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": name },
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": GRACE_SECONDS,
                "containers": [container],
            },
        })
        .to_string()
    }
}

/// `my-app` of `registry.example:5000/team/My_App:1.2@sha256:…`
pub(super) fn name_of(image: &str) -> String {
    let image = image.split('@').next().unwrap_or(image);
    let last = image.rsplit('/').next().unwrap_or(image);
    let last = last.split(':').next().unwrap_or(last).to_lowercase();
    let letters = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let name: String = last.chars().map(letters).take(LONGEST_NAME).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "pod".to_owned() } else { name.to_owned() }
}
