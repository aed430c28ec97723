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
pub struct NetworkConfigList {
    pub name: String,
    version: String,
    pub plugins: Vec<PluginConfig>,
    /// `disableGC`: the GC command is not sent to plugins.
    pub gc_disabled: bool,
    /// As it was read.
    pub text: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PluginConfig {
    pub kind: String,
    fields: Map<String, Value>,
}

impl PluginConfig {
    /// The plugin's input: its own fields, and what the runtime adds.
    pub fn input(
        &self,
        list: &NetworkConfigList,
        previous: Option<&Value>,
        capabilities: &Map<String, Value>,
    ) -> Vec<u8> {
        let mut fields = self.fields.clone();
        fields.insert("name".to_owned(), Value::String(list.name.clone()));
        fields.insert("cniVersion".to_owned(), Value::String(list.version.clone()));
        if let Some(previous) = previous {
            fields.insert("prevResult".to_owned(), previous.clone());
        }
        let offered_capabilities = fields.remove("capabilities");
        let requested: Map<String, Value> = capabilities
            .iter()
            .filter(|(name, _)| {
                offered_capabilities
                    .as_ref()
                    .and_then(|offered_capabilities| offered_capabilities.get(name.as_str()))
                    == Some(&Value::Bool(true))
            })
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if !requested.is_empty() {
            fields.insert("runtimeConfig".to_owned(), Value::Object(requested));
        }
        Value::Object(fields).to_string().into_bytes()
    }
}

impl NetworkConfigList {
    /// `what` names the text in an error.
    pub fn parse(what: &str, text: &[u8]) -> Result<Self, CniError> {
        let wrong = |reason: String| CniError(format!("the CNI configuration in {what}: {reason}"));
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
        let gc_disabled = bool_field(&fields, "disableGC").map_err(wrong)?;
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
        Ok(Self { name, version, plugins, gc_disabled, text: text.to_vec() })
    }

    /// Whether the plugins use at least this version.
    pub fn version_at_least(&self, requested: (u64, u64, u64)) -> bool {
        numbers(&self.version) >= requested
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
fn bool_field(fields: &Map<String, Value>, name: &str) -> Result<bool, String> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(set)) => Ok(*set),
        Some(Value::String(word)) if word.eq_ignore_ascii_case("true") => Ok(true),
        Some(Value::String(word)) if word.eq_ignore_ascii_case("false") => Ok(false),
        Some(other) => Err(format!("{name} is {other}; expected true or false")),
    }
}

fn entry(fields: Map<String, Value>) -> Result<PluginConfig, String> {
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    if kind.is_empty() {
        return Err("a plugin has no type".to_owned());
    }
    // It names a program in the plugin directory and nothing else.
    if kind.contains('/') || kind == ".." || kind == "." {
        return Err(format!("the plugin type {kind:?} is no plain name"));
    }
    Ok(PluginConfig { kind, fields })
}
