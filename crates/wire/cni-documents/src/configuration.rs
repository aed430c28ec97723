//! CNI configurations: a list of plugins, or the older form with a single one.
//!
//! Rule: of the versions that a configuration offers, the highest supported one is used with its
//! plugins. A field of a wrong type is an error of the whole configuration.
//!
//! upstream: containernetworking/cni SPEC.md (network configuration format, version selection)

use serde_json::{Map, Value};

use crate::CniError;

#[cfg(test)]
mod tests;

/// The newest version that is supported.
const NEWEST: Version = (1, 1, 0);

type Version = (u64, u64, u64);

/// A list of plugins that make one network together.
#[derive(Debug, Clone, PartialEq)]
pub struct Configuration {
    pub name: String,
    version: String,
    pub plugins: Vec<Entry>,
    /// `disableGC`: the GC command is not sent to plugins.
    pub is_garbage_kept: bool,
    /// As it was read.
    pub text: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub kind: String,
    fields: Map<String, Value>,
}

impl Entry {
    /// The plugin's input: its own fields, and what the runtime adds.
    pub fn input(
        &self,
        list: &Configuration,
        previous: Option<&Value>,
        capabilities: &Map<String, Value>,
    ) -> Vec<u8> {
        let mut fields = self.fields.clone();
        fields.insert("name".to_owned(), Value::String(list.name.clone()));
        fields.insert("cniVersion".to_owned(), Value::String(list.version.clone()));
        if let Some(previous) = previous {
            fields.insert("prevResult".to_owned(), previous.clone());
        }
        let asked = fields.remove("capabilities");
        let wanted: Map<String, Value> = capabilities
            .iter()
            .filter(|(name, _)| {
                asked.as_ref().and_then(|asked| asked.get(name.as_str()))
                    == Some(&Value::Bool(true))
            })
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if !wanted.is_empty() {
            fields.insert("runtimeConfig".to_owned(), Value::Object(wanted));
        }
        Value::Object(fields).to_string().into_bytes()
    }
}

impl Configuration {
    /// `what` names the text in an error.
    pub fn parse(what: &str, text: &[u8]) -> Result<Self, CniError> {
        let wrong = |why: String| CniError(format!("the CNI configuration in {what}: {why}"));
        let value: Value =
            serde_json::from_slice(text).map_err(|error| wrong(error.to_string()))?;
        let Value::Object(fields) = value else { return Err(wrong("is no object".to_owned())) };
        let text_of = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
        let name = text_of("name").filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| wrong("has no name".to_owned()))?;
        // It becomes part of a file's name.
        if name.contains('/') || name.len() > 128 {
            return Err(wrong(format!("the name {name:?} is longer than 128 or has a '/'")));
        }
        let version = version(&fields).map_err(wrong)?;
        let is_garbage_kept = switch(&fields, "disableGC").map_err(wrong)?;
        let plugins = match fields.get("plugins") {
            Some(Value::Array(plugins)) => plugins
                .iter()
                .map(|plugin| match plugin {
                    Value::Object(fields) => entry(fields.clone()).map_err(wrong),
                    _ => Err(wrong("a plugin is no object".to_owned())),
                })
                .collect::<Result<Vec<_>, _>>()?,
            Some(_) => return Err(wrong("plugins is no list".to_owned())),
            // The older form: one plugin in the file itself.
            None => vec![entry(fields.clone()).map_err(wrong)?],
        };
        if plugins.is_empty() {
            return Err(wrong("has no plugins".to_owned()));
        }
        Ok(Self { name, version, plugins, is_garbage_kept, text: text.to_vec() })
    }

    /// Whether the plugins use at least this version.
    pub fn at_least(&self, wanted: (u64, u64, u64)) -> bool {
        numbers(&self.version) >= wanted
    }
}

fn numbers(version: &str) -> Version {
    let mut parts = version.split('.').map(|part| part.parse::<u64>().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    (next(), next(), next())
}

/// The highest version that is offered and supported. A newer one is passed to the plugins if no
/// other is offered.
fn version(fields: &Map<String, Value>) -> Result<String, String> {
    let own = fields.get("cniVersion").and_then(Value::as_str).unwrap_or("0.1.0");
    let listed = match fields.get("cniVersions") {
        None | Some(Value::Null) => &[],
        Some(Value::Array(listed)) => listed.as_slice(),
        Some(_) => return Err("cniVersions is no list".to_owned()),
    };
    let mut offered = Vec::new();
    for version in listed {
        let text = version.as_str().ok_or("a version in cniVersions is no text")?;
        offered.push(text);
    }
    // Alone it may be missing; beside a list it is one more version.
    if offered.is_empty() || fields.contains_key("cniVersion") {
        offered.push(own);
    }
    let known = offered.iter().filter(|version| numbers(version) <= NEWEST);
    let highest = known.max_by_key(|version| numbers(version));
    Ok((*highest.unwrap_or(&own)).to_owned())
}

/// A boolean field; the strings "true" and "false" are accepted too, as by other runtimes.
fn switch(fields: &Map<String, Value>, name: &str) -> Result<bool, String> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(set)) => Ok(*set),
        Some(Value::String(word)) if word.eq_ignore_ascii_case("true") => Ok(true),
        Some(Value::String(word)) if word.eq_ignore_ascii_case("false") => Ok(false),
        Some(other) => Err(format!("{name} is {other}; expected true or false")),
    }
}

fn entry(fields: Map<String, Value>) -> Result<Entry, String> {
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    if kind.is_empty() {
        return Err("a plugin has no type".to_owned());
    }
    // It names a program in the plugin directory and nothing else.
    if kind.contains('/') || kind == ".." || kind == "." {
        return Err(format!("the plugin type {kind:?} is no plain name"));
    }
    Ok(Entry { kind, fields })
}
