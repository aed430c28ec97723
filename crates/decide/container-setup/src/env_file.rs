//! Reads one variable from an environment file, for `fileKeyRef`.
//!
//! Rule: `NAME='value'` and nothing looser. A value is between single quotes and may span lines;
//! a comment may follow. A space after the `=` makes the value empty, as a shell has it.
//!
//! upstream: pkg/kubelet/util/env/env_util.go

#[cfg(test)]
mod tests;

/// The largest environment file that is read: 1 MiB.
pub const LARGEST_FILE: usize = 1_048_576;

/// A syntax error, with its line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct EnvFileError {
    pub line: usize,
    pub message: &'static str,
}

/// The value of `key`; empty where the file does not have it before its first error.
pub fn value(content: &[u8], key: &str) -> Result<String, EnvFileError> {
    let text =
        std::str::from_utf8(content).map_err(|_| EnvFileError { line: 0, message: "not UTF-8" })?;
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let wrong = |message| EnvFileError { line: at + 1, message };
        let line = line.trim_start_matches([' ', '\t']);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, rest) = line.split_once('=').ok_or_else(|| wrong("no '='"))?;
        let bare = name.trim_end_matches([' ', '\t']);
        if bare.is_empty() {
            return Err(wrong("no name before '='"));
        }
        if bare != name {
            return Err(wrong("a space before '='"));
        }
        if rest.starts_with([' ', '\t']) {
            if name == key {
                return Ok(String::new());
            }
            continue;
        }
        let Some(quoted) = rest.strip_prefix('\'') else {
            return Err(wrong("the value is not between single quotes"));
        };
        let value = closed(quoted, &mut lines, at)?;
        if name == key {
            return Ok(value);
        }
    }
    Ok(String::new())
}

/// Reads on to the closing quote, across lines.
fn closed<'t>(
    first: &'t str,
    lines: &mut impl Iterator<Item = (usize, &'t str)>,
    began: usize,
) -> Result<String, EnvFileError> {
    let mut value = String::new();
    let (mut rest, mut at) = (first, began);
    loop {
        if let Some((inside, after)) = rest.split_once('\'') {
            value.push_str(inside);
            let after = after.trim_start_matches([' ', '\t']);
            if !after.is_empty() && !after.starts_with('#') {
                return Err(EnvFileError {
                    line: at + 1,
                    message: "something after the closing quote",
                });
            }
            return Ok(value);
        }
        value.push_str(rest);
        value.push('\n');
        (at, rest) = lines
            .next()
            .ok_or(EnvFileError { line: began + 1, message: "a quote that is never closed" })?;
    }
}
