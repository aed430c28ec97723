//! The two formats: a list of machines, and the answer about one machine.
//!
//! Rule: strict: unknown fields, wrong kinds and machines without a name are errors with file, line
//! and field, since a misspelt field would otherwise mean "gone" or "running". Pure.

use std::collections::{BTreeMap, BTreeSet};

use document::diagnostic::{Diagnostic, Origin};
use document::{Node, Value, child_path, item_path};
use ports::cloud_provider::{CloudAddress, CloudInstance, CloudNodeName, InstanceState};

const API_VERSION: &str = "keelson/v1";
/// More machines than any cluster has nodes.
pub(crate) const MAX_MACHINES: usize = 50_000;
/// Address types of the API.
const ADDRESS_KINDS: [&str; 5] =
    ["InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS"];

/// Machines from a file or a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MachineList {
    pub(crate) machines: Vec<CloudInstance>,
    /// Whether a machine that is not in it does not exist.
    pub(crate) complete: bool,
}

impl MachineList {
    /// The machine of a node: by its id where both sides have one, otherwise by its name.
    pub(crate) fn find(&self, node: &CloudNodeName) -> Option<&CloudInstance> {
        let by_id = (!node.provider_id.is_empty())
            .then(|| self.machines.iter().find(|it| it.provider_id == node.provider_id))
            .flatten();
        // A machine of that name with another id is another machine.
        by_id.or_else(|| {
            self.machines.iter().find(|it| {
                it.node == node.name
                    && (it.provider_id.is_empty()
                        || node.provider_id.is_empty()
                        || it.provider_id == node.provider_id)
            })
        })
    }
}

/// Parses a `MachineList`. Where only its end shows that the file is whole, `complete` must come
/// after the machines: a file that was cut at a line's end must not still contain it.
pub(crate) fn read_list(bytes: &[u8], origin: &Origin) -> Result<MachineList, String> {
    let root = root(bytes, origin, "MachineList")?;
    let fields = MachineFields::of(&root, "", &["apiVersion", "kind", "machines", "complete"])?;
    let Some(machines) = fields.get("machines") else {
        return Err(at(&root, "machines", "missing, expected a list"));
    };
    let Value::List(items) = &machines.value else {
        return Err(at(machines, "machines", "expected a list"));
    };
    if items.len() > MAX_MACHINES {
        return Err(at(machines, "machines", &format!("expected at most {MAX_MACHINES}")));
    }
    let mut list = MachineList { complete: fields.flag("complete")?, machines: Vec::new() };
    // In JSON the closing brace shows the same, and keys have no order.
    let is_json = bytes.trim_ascii_start().starts_with(b"{");
    if let Some(complete) = fields.get("complete").filter(|_| list.complete && !is_json)
        && line(complete) < line(machines)
    {
        return Err(at(complete, "complete", "expected behind the machines, as the last line"));
    }
    let mut names = BTreeSet::new();
    for (number, item) in items.iter().enumerate() {
        let path = item_path("machines", number);
        let machine = machine(item, &path)?;
        if !names.insert(machine.node.clone()) {
            let name = child_path(&path, "name");
            return Err(at(item, &name, &format!("{:?} stands here twice", machine.node)));
        }
        list.machines.push(machine);
    }
    Ok(list)
}

/// Parses an answer about one machine; `None` if it says that there is no such machine.
pub(crate) fn read_answer(bytes: &[u8], origin: &Origin) -> Result<Option<CloudInstance>, String> {
    let root = root(bytes, origin, "Machine")?;
    let fields = MachineFields::of(&root, "", &["apiVersion", "kind", "exists", "machine"])?;
    let exists = match fields.get("exists").map(|node| (&node.value, node)) {
        Some((Value::Bool(exists), _)) => *exists,
        Some((_, node)) => return Err(at(node, "exists", "expected true or false")),
        None => return Err(at(&root, "exists", "missing, expected true or false")),
    };
    match (exists, fields.get("machine")) {
        (false, None) => Ok(None),
        (false, Some(node)) => Err(at(node, "machine", "there is one, yet exists is false")),
        (true, Some(node)) => machine(node, "machine").map(Some),
        (true, None) => Err(at(&root, "machine", "missing, yet exists is true")),
    }
}

fn root(bytes: &[u8], origin: &Origin, kind: &str) -> Result<Node, String> {
    let document = document::parse(bytes, origin).map_err(|diagnostic| diagnostic.to_string())?;
    if let Some(diagnostic) = document.repeated_keys.first() {
        return Err(diagnostic.to_string());
    }
    let root = document.root;
    for (field, expected) in [("apiVersion", API_VERSION), ("kind", kind)] {
        if root.get(field).and_then(Node::as_str) != Some(expected) {
            return Err(at(&root, field, &format!("expected {expected}")));
        }
    }
    Ok(root)
}

fn machine(node: &Node, path: &str) -> Result<CloudInstance, String> {
    let known =
        ["name", "providerID", "instanceType", "zone", "region", "state", "addresses", "labels"];
    let fields = MachineFields::of(node, path, &known)?;
    let name = fields.text("name")?;
    if name.is_empty() {
        return Err(at(node, &child_path(path, "name"), "missing, expected a node's name"));
    }
    let state = match fields.text("state")?.as_str() {
        "" | "Unknown" => InstanceState::Unknown,
        "Running" => InstanceState::Running,
        "ShutDown" => InstanceState::ShutDown,
        other => {
            let expected = format!("{other:?}: expected Running, ShutDown or Unknown");
            return Err(at(node, &child_path(path, "state"), &expected));
        }
    };
    Ok(CloudInstance {
        node: name,
        provider_id: fields.text("providerID")?,
        instance_type: fields.text("instanceType")?,
        zone: fields.text("zone")?,
        region: fields.text("region")?,
        state,
        addresses: addresses(&fields)?,
        labels: labels(&fields)?,
    })
}

fn addresses(fields: &MachineFields<'_>) -> Result<Vec<CloudAddress>, String> {
    let path = fields.path("addresses");
    let items = match fields.get("addresses").map(|node| (&node.value, node)) {
        None => return Ok(Vec::new()),
        Some((Value::List(items), _)) => items,
        Some((_, node)) => return Err(at(node, &path, "expected a list")),
    };
    let mut found = Vec::new();
    for (number, item) in items.iter().enumerate() {
        let path = item_path(&path, number);
        let inner = MachineFields::of(item, &path, &["type", "address"])?;
        let (kind, address) = (inner.text("type")?, inner.text("address")?);
        if !ADDRESS_KINDS.contains(&kind.as_str()) {
            let expected = format!("{kind:?}: expected one of {}", ADDRESS_KINDS.join(", "));
            return Err(at(item, &inner.path("type"), &expected));
        }
        if address.is_empty() {
            return Err(at(item, &inner.path("address"), "missing, expected an address"));
        }
        found.push(CloudAddress { kind, address });
    }
    Ok(found)
}

fn labels(fields: &MachineFields<'_>) -> Result<BTreeMap<String, String>, String> {
    let path = fields.path("labels");
    let entries = match fields.get("labels").map(|node| (&node.value, node)) {
        None => return Ok(BTreeMap::new()),
        Some((Value::Map(entries), _)) => entries,
        Some((_, node)) => return Err(at(node, &path, "expected an object of strings")),
    };
    let mut found = BTreeMap::new();
    for (key, node) in entries {
        let Some(value) = node.as_str() else {
            return Err(at(node, &child_path(&path, key), "expected a string"));
        };
        found.insert(key.clone(), value.to_owned());
    }
    Ok(found)
}

/// The fields of one object, none of them unknown; `null` counts as absent.
struct MachineFields<'a> {
    entries: &'a BTreeMap<String, Node>,
    path: String,
}

impl<'a> MachineFields<'a> {
    fn of(node: &'a Node, path: &str, known: &[&str]) -> Result<Self, String> {
        let Some(entries) = node.as_map() else {
            return Err(at(node, path, "expected an object"));
        };
        if let Some((key, node)) = entries.iter().find(|(key, _)| !known.contains(&key.as_str())) {
            let expected = format!("unknown field, expected one of {}", known.join(", "));
            return Err(at(node, &child_path(path, key), &expected));
        }
        Ok(Self { entries, path: path.to_owned() })
    }

    fn path(&self, field: &str) -> String {
        child_path(&self.path, field)
    }

    fn get(&self, field: &str) -> Option<&'a Node> {
        self.entries.get(field).filter(|node| !node.is_null())
    }

    /// A string, or `None`.
    fn text(&self, field: &str) -> Result<String, String> {
        match self.get(field) {
            None => Ok(String::new()),
            Some(node) => node
                .as_str()
                .map(str::to_owned)
                .ok_or_else(|| at(node, &self.path(field), "expected a string")),
        }
    }

    fn flag(&self, field: &str) -> Result<bool, String> {
        match self.get(field).map(|node| (&node.value, node)) {
            None => Ok(false),
            Some((Value::Bool(value), _)) => Ok(*value),
            Some((_, node)) => Err(at(node, &self.path(field), "expected true or false")),
        }
    }
}

/// The line that a node is on; `None` for content that is from no file.
fn line(node: &Node) -> Option<u32> {
    match node.origin {
        Origin::File { line, .. } | Origin::DropIn { line, .. } => Some(line),
        Origin::Default | Origin::Flag { .. } => None,
    }
}

fn at(node: &Node, field: &str, message: &str) -> String {
    Diagnostic::error(field, message).at(node.origin.clone()).to_string()
}

#[cfg(test)]
mod tests;
