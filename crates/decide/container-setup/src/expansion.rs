//! `$(NAME)` in texts of a container.
//!
//! Rule: `$(NAME)` becomes the result of the lookup, `$$` becomes `$`, anything else stays as it
//! is, including an unclosed reference. One pass: inserted text is not expanded again.
//!
//! upstream: third_party/forked/golang/expansion/expand.go

use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

/// Replaces every reference by the result of `value_of`; None keeps the reference as it is.
pub fn expand(text: &str, mut value_of: impl FnMut(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        rest = after;
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) =
            rest.strip_prefix('(').and_then(|inside| inside.split_once(')'))
        {
            match value_of(name) {
                Some(value) => out.push_str(&value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

/// Replaces every reference to one of these variables.
pub fn expand_from(text: &str, values: &BTreeMap<&str, &str>) -> String {
    expand(text, |name| values.get(name).map(|value| (*value).to_owned()))
}
