//! The configuration files that `runp` and `create` take.
//!
//! Rule: an error names the file and what was expected in it. Does not check what only the
//! runtime can judge.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use prost::{Message, Name};

use super::json;

pub(super) fn read<M: Message + Name + Default>(path: &Path) -> Result<M> {
    let text = fs::read_to_string(path).with_context(|| {
        format!("cannot read {}; give a JSON file with a {}", path.display(), M::NAME)
    })?;
    json::from_text(&text).with_context(|| path.display().to_string())
}
