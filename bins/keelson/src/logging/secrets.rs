//! Keeps secrets out of the log, by a field's name and by a text's form.
//!
//! Rule: a net under the code, not a licence for it: values that carry secrets should not be
//! logged in the first place. Names of things (`secret_name`, `token_file`) are not secrets.

use node_config::diagnostic::without_credentials;

pub(crate) use node_config::diagnostic::MASK;

const SECRET_WORDS: [&str; 12] = [
    "token",
    "tokens",
    "password",
    "passwd",
    "passphrase",
    "secret",
    "secrets",
    "authorization",
    "cookie",
    "credential",
    "credentials",
    "bearer",
];
const SECRET_PAIRS: [(&str, &str); 4] =
    [("private", "key"), ("api", "key"), ("key", "data"), ("access", "key")];
/// A name that ends like this tells about a secret, not the secret.
const HARMLESS_ENDS: [&str; 10] =
    ["name", "names", "namespace", "path", "file", "directory", "count", "uid", "kind", "expiry"];

/// Whether a field of this name is taken for a secret whatever it holds.
pub(crate) fn is_secret_name(name: &str) -> bool {
    let words = words(name);
    if words.last().is_some_and(|last| HARMLESS_ENDS.contains(&last.as_str())) {
        return false;
    }
    words.iter().any(|word| SECRET_WORDS.contains(&word.as_str()))
        || words.windows(2).any(|pair| {
            SECRET_PAIRS.iter().any(|(first, second)| pair[0] == *first && pair[1] == *second)
        })
}

/// `bootstrapToken`, `bootstrap_token`, `Bootstrap-Token` are the words bootstrap, token.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before_is_lower = false;
    for character in name.chars() {
        if !character.is_alphanumeric() || (character.is_uppercase() && before_is_lower) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| character.is_alphanumeric()) {
            word.extend(character.to_lowercase());
        }
        before_is_lower = character.is_lowercase() || character.is_numeric();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The text with credentials of HTTP headers masked, and of URLs the user, query and fragment.
pub(crate) fn mask_text(text: &str) -> String {
    let mut masked = text.to_owned();
    for scheme in ["Bearer ", "bearer ", "Basic ", "basic "] {
        masked = mask_after(&masked, scheme);
    }
    without_credentials(&masked)
}

/// Masks the word after each `marker`, if it is long enough to be a credential.
fn mask_after(text: &str, marker: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(position) = rest.find(marker) {
        let after = position + marker.len();
        result.push_str(&rest[..after]);
        rest = &rest[after..];
        let length = rest
            .find(|character: char| character.is_whitespace() || "\"',;".contains(character))
            .unwrap_or(rest.len());
        if length >= 8 {
            result.push_str(MASK);
            rest = &rest[length..];
        }
    }
    result.push_str(rest);
    result
}
