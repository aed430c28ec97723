//! Ids of sandboxes and containers: 64 random hexadecimal digits, found by any unambiguous prefix.

use std::collections::BTreeMap;

use crate::failure::{CriError, Result};

#[cfg(test)]
mod tests;

/// A new unique id.
pub(crate) fn fresh() -> Result<String> {
    let mut bytes = [0_u8; 32];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| CriError::from(error).with_context("random bytes for an id"))?;
    Ok(hexadecimal(&bytes))
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The entry whose id is `id` or starts with it, if there is exactly one.
pub(crate) fn find<'a, T>(
    kind: &str,
    entries: &'a BTreeMap<String, T>,
    id: &str,
) -> Result<(&'a str, &'a T)> {
    if let Some((id, entry)) = entries.get_key_value(id) {
        return Ok((id, entry));
    }
    let missing = || CriError::not_found(format!("{kind} {id:?} is not found"));
    // containerd's message; clients that send nothing have made a mistake.
    if id.is_empty() {
        return Err(CriError::plain(format!("the id of a {kind} can't be empty")));
    }
    let mut matching = entries.range(id.to_owned()..).take_while(|(key, _)| key.starts_with(id));
    match (matching.next(), matching.next()) {
        (Some((id, entry)), None) => Ok((id, entry)),
        (None, _) => Err(missing()),
        (Some(_), Some(_)) => {
            Err(CriError::plain(format!("several {kind}s have an id that starts with {id:?}")))
        }
    }
}
