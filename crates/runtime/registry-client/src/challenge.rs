//! Parses a registry's `WWW-Authenticate` challenges. Pure.
//!
//! upstream: RFC 9110 section 11.6.1

#[cfg(test)]
mod tests;

/// A way to authenticate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

/// The preferred challenge of those in the headers: a token, else the password itself.
pub fn best(headers: &[String]) -> Option<Challenge> {
    let mut basic = None;
    for header in headers {
        for (scheme, parameters) in challenges(header) {
            let of = |name: &str| {
                parameters
                    .iter()
                    .find(|(known, _)| known.eq_ignore_ascii_case(name))
                    .map(|(_, value)| value.clone())
            };
            if scheme.eq_ignore_ascii_case("bearer")
                && let Some(realm) = of("realm")
            {
                return Some(Challenge::Bearer {
                    realm,
                    service: of("service"),
                    scope: of("scope"),
                });
            }
            if scheme.eq_ignore_ascii_case("basic") {
                basic = Some(Challenge::Basic);
            }
        }
    }
    basic
}

type Parameters = Vec<(String, String)>;

/// `Scheme name="value", name=value, Other name=value`
fn challenges(header: &str) -> Vec<(String, Parameters)> {
    let mut found: Vec<(String, Parameters)> = Vec::new();
    for part in parts(header) {
        let part = part.trim();
        let (first, rest) = match part.split_once(char::is_whitespace) {
            // A scheme stands before its first parameter.
            Some((first, rest)) if !first.contains('=') => (Some(first), rest.trim()),
            _ if !part.contains('=') => (Some(part), ""),
            _ => (None, part),
        };
        if let Some(scheme) = first.filter(|scheme| !scheme.is_empty()) {
            found.push((scheme.to_owned(), Vec::new()));
        }
        if let (Some((name, value)), Some((_, parameters))) =
            (rest.split_once('='), found.last_mut())
        {
            parameters.push((name.trim().to_owned(), unquoted(value.trim())));
        }
    }
    found
}

/// Splits at commas that are not in quotes.
fn parts(header: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let (mut quoted, mut escaped) = (false, false);
    for letter in header.chars() {
        match letter {
            ',' if !quoted => {
                parts.push(String::new());
                continue;
            }
            '"' if !escaped => quoted = !quoted,
            _ => {}
        }
        escaped = quoted && letter == '\\' && !escaped;
        if let Some(last) = parts.last_mut() {
            last.push(letter);
        }
    }
    parts
}

fn unquoted(value: &str) -> String {
    let Some(inside) = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')) else {
        return value.to_owned();
    };
    let mut text = String::new();
    let mut letters = inside.chars();
    while let Some(letter) = letters.next() {
        text.extend(if letter == '\\' { letters.next() } else { Some(letter) });
    }
    text
}
