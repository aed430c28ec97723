//! Names of vendors, classes and devices. Pure.

fn is_letter_or_digit(letter: char) -> bool {
    letter.is_ascii_alphanumeric()
}

/// A letter or (for devices) a digit first, a letter or digit last, some punctuation between.
fn is_name(name: &str, between: &str, first: fn(char) -> bool) -> bool {
    let inner = |letter: char| is_letter_or_digit(letter) || between.contains(letter);
    name.chars().next().is_some_and(first)
        && name.chars().next_back().is_some_and(is_letter_or_digit)
        && name.chars().all(inner)
}

/// Checks a kind: `vendor/class`.
pub(super) fn check_kind(kind: &str) -> Result<(), String> {
    let (vendor, class) =
        kind.split_once('/').ok_or_else(|| format!("kind {kind:?}: expected vendor/class"))?;
    for (what, name) in [("vendor", vendor), ("class", class)] {
        if !is_name(name, "_-.", |letter| letter.is_ascii_alphabetic()) {
            return Err(format!("kind {kind:?}: {name:?} cannot be the name of a {what}"));
        }
    }
    Ok(())
}

pub(super) fn check_device(name: &str) -> Result<(), String> {
    if is_name(name, "_-.:", is_letter_or_digit) {
        return Ok(());
    }
    Err(format!("{name:?} cannot be the name of a device"))
}

/// Whether a name is `vendor/class=device`.
pub fn is_qualified(name: &str) -> bool {
    name.split_once('=')
        .is_some_and(|(kind, device)| check_kind(kind).is_ok() && check_device(device).is_ok())
}
