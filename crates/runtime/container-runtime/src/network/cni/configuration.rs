//! CNI configurations: which file counts, and what it says.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

use crate::durable::names_in;
use crate::failure::{Doing as _, Failure, Result};

const LARGEST: u64 = 1 << 20;
const ENDINGS: &[&str] = &[".conf", ".conflist", ".json"];

/// A list of plugins that make one network together.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Configuration {
    pub(crate) name: String,
    version: String,
    pub(super) plugins: Vec<Entry>,
    /// As it was read.
    pub(crate) text: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) kind: String,
    fields: Map<String, Value>,
}

impl Entry {
    /// What the plugin reads: its own fields, and what the runtime adds.
    pub(super) fn input(
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
    pub(crate) fn parse(what: &str, text: &[u8]) -> Result<Self> {
        let wrong = |why: String| Failure::plain(format!("the CNI configuration in {what}: {why}"));
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
        let version = text_of("cniVersion").unwrap_or_else(|| "0.1.0".to_owned());
        let plugins = match fields.get("plugins") {
            Some(Value::Array(plugins)) => plugins
                .iter()
                .map(|plugin| match plugin {
                    Value::Object(fields) => entry(fields.clone()).map_err(wrong),
                    _ => Err(wrong("a plugin is no object".to_owned())),
                })
                .collect::<Result<Vec<_>>>()?,
            Some(_) => return Err(wrong("plugins is no list".to_owned())),
            // The older form: one plugin in the file itself.
            None => vec![entry(fields.clone()).map_err(wrong)?],
        };
        if plugins.is_empty() {
            return Err(wrong("has no plugins".to_owned()));
        }
        Ok(Self { name, version, plugins, text: text.to_vec() })
    }

    pub(super) fn at_least(&self, wanted: (u64, u64, u64)) -> bool {
        let mut parts = self.version.split('.').map(|part| part.parse::<u64>().unwrap_or(0));
        let mut next = || parts.next().unwrap_or(0);
        (next(), next(), next()) >= wanted
    }
}

fn entry(fields: Map<String, Value>) -> std::result::Result<Entry, String> {
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    if kind.is_empty() {
        return Err("a plugin has no type".to_owned());
    }
    // It names a program in the plugin folder and nothing else.
    if kind.contains('/') || kind == ".." || kind == "." {
        return Err(format!("the plugin type {kind:?} is no plain name"));
    }
    Ok(Entry { kind, fields })
}

/// The first file by name that is a configuration; what does not read is told and passed over.
pub(super) fn first_in(folder: &Path) -> Result<Option<Configuration>> {
    let mut last = None;
    for name in names_in(folder)? {
        if !ENDINGS.iter().any(|ending| name.ends_with(ending)) {
            continue;
        }
        let path = folder.join(&name);
        let parsed = fs::metadata(&path)
            .doing(format!("looking at {}", path.display()))
            .and_then(|metadata| match metadata.len() {
                0..=LARGEST => Ok(()),
                _ => Err(Failure::plain(format!("{} has over a megabyte", path.display()))),
            })
            .and_then(|()| fs::read(&path).doing(format!("reading {}", path.display())))
            .and_then(|text| Configuration::parse(&path.display().to_string(), &text));
        match parsed {
            Ok(configuration) => return Ok(Some(configuration)),
            Err(failure) => last = Some(failure),
        }
    }
    last.map_or(Ok(None), Err)
}
