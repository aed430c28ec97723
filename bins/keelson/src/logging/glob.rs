//! Shell patterns for file names, as Go's filepath.Match has them: `*`, `?`, `[a-z]`, `[^a]`, `\x`.
//!
//! Rule: a malformed pattern matches nothing.

/// Whether the whole of `name` matches `pattern`.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    matches_from(&pattern, &name)
}

fn matches_from(pattern: &[char], name: &[char]) -> bool {
    let Some((first, rest)) = pattern.split_first() else { return name.is_empty() };
    match first {
        '*' => (0..=name.len())
            .any(|skipped| !name[..skipped].contains(&'/') && matches_from(rest, &name[skipped..])),
        '?' => name.split_first().is_some_and(|(character, remaining)| {
            *character != '/' && matches_from(rest, remaining)
        }),
        '[' => {
            let Some((character, remaining)) = name.split_first() else { return false };
            class(rest, *character)
                .is_some_and(|(inside, after)| inside && matches_from(after, remaining))
        }
        '\\' => rest.split_first().is_some_and(|(literal, after)| {
            name.first() == Some(literal) && matches_from(after, &name[1..])
        }),
        literal => name.first() == Some(literal) && matches_from(rest, &name[1..]),
    }
}

/// Reads a class after its `[`: whether `character` is in it, and what follows its `]`.
fn class(pattern: &[char], character: char) -> Option<(bool, &[char])> {
    let (negated, mut rest) = match pattern {
        ['^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut inside = false;
    let mut empty = true;
    loop {
        if let [']', after @ ..] = rest
            && !empty
        {
            return Some((inside != negated, after));
        }
        let (low, after_low) = class_character(rest)?;
        let (high, after) = match after_low {
            ['-', after_dash @ ..] => class_character(after_dash)?,
            _ => (low, after_low),
        };
        inside |= (low..=high).contains(&character);
        empty = false;
        rest = after;
    }
}

fn class_character(pattern: &[char]) -> Option<(char, &[char])> {
    match pattern {
        [] | ['-' | ']', ..] => None,
        ['\\', escaped, rest @ ..] => Some((*escaped, rest)),
        [character, rest @ ..] => Some((*character, rest)),
    }
}
