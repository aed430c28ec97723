//! Words that are retired from names and comments, and where they stand.
//!
//! Rule: a name is what an engineer at home in Kubernetes, Linux and Rust would type into a search
//! box (docs/vocabulary.md). The words below are not; each list says where its words count.

use std::collections::HashSet;
use std::sync::LazyLock;

/// Retired in any place of an identifier.
const ANYWHERE: &[&str] = &[
    "folder",
    "folders",
    "trouble",
    "troubles",
    "wish",
    "wishes",
    "told",
    "tell",
    "tells",
    "telling",
    "tellings",
    "news",
    "happening",
    "happenings",
    "heard",
    "hear",
    "hears",
    "hearing",
    "ears",
    "saw",
    "birth",
    "births",
    "book",
    "books",
    "shelf",
    "shelves",
    "desk",
    "household",
    "lineup",
    "lineups",
    "scene",
    "scenes",
    "fate",
    "fates",
    "furnish",
    "furnishes",
    "furnished",
    "whoever",
    "whomever",
    "nobody",
    "somebody",
    "somebodys",
    "nobodys",
    "anybody",
    "everybody",
    "everybodys",
    "who",
    "whom",
    "patience",
    "moment",
    "moments",
    "refusal",
    "refusals",
    "blow",
    "blows",
    "kin",
    "say",
    "said",
    "says",
];

/// Retired where they follow each other in an identifier.
const PAIRS: &[[&str; 2]] =
    &[["give", "up"], ["gives", "up"], ["given", "up"], ["let", "go"], ["lets", "go"]];

/// Retired only as a whole identifier: inside of longer ones these have a plain meaning.
const WHOLE: &[&str] =
    &["Kept", "Rounds", "Ground", "Place", "Branch", "Apart", "Words", "Word", "want", "wants"];

/// Retired in identifiers of fewer words than [`CLAUSE`]; the name of a test is a sentence, where
/// they are plain.
const SHORT_NAMES: &[&str] = &["whose"];
const CLAUSE: usize = 5;

/// Of [`ANYWHERE`], plain English in comments; there only the phrases below count.
const PLAIN_IN_COMMENTS: &[&str] = &["say", "says", "said", "tell", "tells", "saw"];

/// Phrases of comments, two words that follow each other: any of the first and any of the second.
const PHRASES: &[(&[&str], &[&str])] = &[
    (
        &["is", "are", "was", "were", "be", "been", "being", "not", "never", "what"],
        &["said", "says"],
    ),
    (&["what"], &["tell", "tells"]),
    (&["tell", "tells"], &["of"]),
    (&["give", "gives", "given", "giving", "gave"], &["up"]),
    (&["let", "lets", "letting"], &["go"]),
];

static IN_IDENTIFIERS: LazyLock<HashSet<&str>> =
    LazyLock::new(|| ANYWHERE.iter().copied().collect());
static IN_COMMENTS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    ANYWHERE.iter().copied().filter(|word| !PLAIN_IN_COMMENTS.contains(word)).collect()
});

/// The first retired word of an identifier.
pub(super) fn retired_in_identifier(identifier: &str) -> Option<String> {
    if WHOLE.contains(&identifier) {
        return Some(identifier.to_owned());
    }
    let parts = sub_words(identifier);
    let is_short = parts.len() < CLAUSE;
    let single = parts.iter().find(|part| {
        IN_IDENTIFIERS.contains(part.as_str()) || (is_short && SHORT_NAMES.contains(&part.as_str()))
    });
    let pair = || parts.windows(2).find(|pair| PAIRS.iter().any(|known| known == pair));
    single.cloned().or_else(|| pair().map(|pair| pair.join("_")))
}

/// How many retired words and phrases a comment has. Text in backticks is code and does not count.
pub(super) fn retired_in_comment(comment: &str) -> usize {
    let text = without_code(comment).to_ascii_lowercase();
    let words = words_of(&text);
    let word = |index: usize| words.get(index).map_or("", |(_, word)| word);
    // Only a single space keeps a phrase together.
    let follows = |index: usize| match (words.get(index), words.get(index + 1)) {
        (Some((start, word)), Some((next, _))) => text.get(start + word.len()..*next) == Some(" "),
        _ => false,
    };
    let (mut count, mut index) = (0, 0);
    while index < words.len() {
        let pair = (word(index), word(index + 1));
        let length = if IN_COMMENTS.contains(pair.0) {
            1
        } else if follows(index) && is_phrase(pair) {
            2
        } else if follows(index)
            && follows(index + 1)
            && matches!((pair, word(index + 2)), (("the", "word" | "words"), "of"))
        {
            3
        } else {
            0
        };
        count += usize::from(length > 0);
        index += length.max(1);
    }
    count
}

fn is_phrase((first, second): (&str, &str)) -> bool {
    PHRASES.iter().any(|(firsts, seconds)| firsts.contains(&first) && seconds.contains(&second))
}

/// Words with the byte at which each begins.
fn words_of(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut at = 0;
    for word in text.split(|c: char| c != '_' && !c.is_alphanumeric()) {
        if !word.is_empty() {
            found.push((at, word));
        }
        let separator = text.get(at + word.len()..).and_then(|rest| rest.chars().next());
        at += word.len() + separator.map_or(0, char::len_utf8);
    }
    found
}

/// The text without what stands between backticks on one line.
fn without_code(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let mut rest = line;
        while let Some((before, after)) = rest.split_once('`') {
            let Some((_, behind)) = after.split_once('`') else { break };
            plain.push_str(before);
            plain.push_str("``");
            rest = behind;
        }
        plain.push_str(rest);
    }
    plain
}

/// Sub-words of an identifier in lower case: `HTTPServer_of2` is http, server, of, 2.
fn sub_words(identifier: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let characters: Vec<char> = identifier.chars().collect();
    let mut last = CharacterClass::Other;
    for (index, character) in characters.iter().enumerate() {
        let class = CharacterClass::of(*character);
        let is_before_lower = characters.get(index + 1).is_some_and(|next| next.is_lowercase());
        let begins = match (last, class) {
            (_, CharacterClass::Other) => false,
            (CharacterClass::Upper, CharacterClass::Upper) => is_before_lower,
            (CharacterClass::Upper, CharacterClass::Lower) => false,
            (last, class) => last != class,
        };
        last = class;
        if class == CharacterClass::Other {
            continue;
        }
        if begins {
            found.push(String::new());
        }
        if let Some(word) = found.last_mut() {
            word.extend(character.to_lowercase());
        }
    }
    found
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CharacterClass {
    Upper,
    Lower,
    Digit,
    Other,
}

impl CharacterClass {
    fn of(character: char) -> Self {
        if character.is_uppercase() {
            Self::Upper
        } else if character.is_numeric() {
            Self::Digit
        } else if character.is_alphabetic() {
            Self::Lower
        } else {
            Self::Other
        }
    }
}
