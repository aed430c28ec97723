//! Which values must not be printed, and their replacement.
//!
//! The rule it keeps: a field is secret by its path, ignoring case; a URL keeps only its scheme,
//! host and path, as user, query and fragment can hold credentials. Masking is idempotent. Values
//! that carry secrets should not reach this code in the first place.

/// Replaces a secret in messages.
pub const MASK: &str = "<masked>";

/// Name parts that suggest a secret.
const SECRET_NAME_PARTS: [&str; 10] = [
    "header",
    "token",
    "passw",
    "passphrase",
    "secret",
    "authorization",
    "credential",
    "bearer",
    "cookie",
    "key",
];

/// Whether the value at this path must never be printed: header values carry bearer tokens, and
/// the environment of a credential provider carries keys.
pub fn is_secret(field: &str) -> bool {
    let mut in_environment = false;
    for part in field.split('.') {
        let name = part.split('[').next().unwrap_or(part);
        if name.eq_ignore_ascii_case("staticPodURLHeader") {
            return true;
        }
        in_environment |= name.eq_ignore_ascii_case("env");
    }
    // The name of a variable is useful in a message and reveals nothing.
    in_environment && !field.ends_with(".name")
}

/// Whether an unknown field may hold a secret: its name suggests one, or resembles the misspelled
/// name of a secret field.
pub fn may_be_secret(field: &str) -> bool {
    let last = field.rsplit('.').next().unwrap_or(field).to_ascii_lowercase();
    is_secret(field) || SECRET_NAME_PARTS.iter().any(|part| last.contains(part))
}

/// A value with its secrets masked, by its field path.
pub fn masked_text(field: &str, value: &str) -> String {
    if is_secret(field) {
        return MASK.to_owned();
    }
    match value.split_once("://") {
        // A value that is one URL ends where the value ends, whatever characters it has.
        Some((scheme, rest)) if is_scheme(scheme.trim_start()) => {
            format!("{scheme}://{}", masked_address(rest))
        }
        None if is_address_name(field) => {
            let (lead, rest) = match value.strip_prefix("//") {
                Some(rest) => ("//", rest),
                None => ("", value),
            };
            format!("{lead}{}", masked_address(rest))
        }
        _ => without_credentials(value),
    }
}

/// A text without the users, queries and fragments of the URLs in it: `https://user:word@host/a?b`
/// becomes `https://<masked>@host/a?<masked>`. A URL in a text ends at white space or a double
/// quote.
pub fn without_credentials(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(position) = rest.find("://") {
        let (before, after) = rest.split_at(position + 3);
        result.push_str(before);
        let is_end = |character: char| character.is_whitespace() || character == '"';
        let (address, behind) = after.split_at(after.find(is_end).unwrap_or(after.len()));
        result.push_str(&masked_address(address));
        rest = behind;
    }
    result.push_str(rest);
    result
}

/// The rest of a URL after `scheme://`, without user, query and fragment.
fn masked_address(address: &str) -> String {
    let authority_end = address.find(['/', '?', '#']).unwrap_or(address.len());
    let (user, rest) = match address[..authority_end].rfind('@') {
        Some(at) => (MASK, &address[at..]),
        None => ("", address),
    };
    let Some(mark) = rest.find(['?', '#']) else { return format!("{user}{rest}") };
    let (shown, hidden) = rest.split_at(mark + 1);
    if hidden.is_empty() {
        return format!("{user}{shown}");
    }
    // Masked before: what follows the mask is the text around the URL.
    let behind = hidden.strip_prefix(MASK).unwrap_or_default();
    format!("{user}{shown}{MASK}{behind}")
}

fn is_scheme(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|each| each.is_ascii_alphanumeric() || matches!(each, '+' | '-' | '.'))
}

/// Whether the field holds a URL, so that its value is treated as one even without a scheme.
fn is_address_name(field: &str) -> bool {
    field.len() >= 3
        && field.is_char_boundary(field.len() - 3)
        && field[field.len() - 3..].eq_ignore_ascii_case("url")
}
