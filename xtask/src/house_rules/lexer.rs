//! Splits Rust source into what the rules about names and comments need.
//!
//! Rule: every byte of the source is passed over once. Strings, characters, lifetimes and numbers
//! are never reported, so that a name inside of them does not count. Source that rustc would refuse
//! gives some tokens and no error.

/// One piece of source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceToken<'a> {
    /// Also a keyword; without `r#`.
    Identifier(&'a str),
    /// A line or block comment with its marks.
    Comment(&'a str),
    Punctuation(u8),
}

pub(super) fn tokens(source: &str) -> Vec<SourceToken<'_>> {
    let mut lexer = SourceLexer { source, at: 0 };
    let mut found = Vec::new();
    while lexer.at < source.len() {
        found.extend(lexer.step());
    }
    found
}

struct SourceLexer<'a> {
    source: &'a str,
    at: usize,
}

impl<'a> SourceLexer<'a> {
    fn byte(&self, ahead: usize) -> Option<u8> {
        self.source.as_bytes().get(self.at + ahead).copied()
    }

    fn rest(&self) -> &'a str {
        self.source.get(self.at..).unwrap_or_default()
    }

    fn text_since(&self, start: usize) -> &'a str {
        self.source.get(start..self.at).unwrap_or_default()
    }

    /// Moves behind `end`, or to the end of the source.
    fn skip_past(&mut self, end: &str) {
        self.at = match self.rest().find(end) {
            Some(found) => self.at + found + end.len(),
            None => self.source.len(),
        };
    }

    /// Passes over one piece.
    fn step(&mut self) -> Option<SourceToken<'a>> {
        let start = self.at;
        let first = self.byte(0)?;
        match first {
            b'/' if self.byte(1) == Some(b'/') => {
                self.at += self.rest().find('\n').unwrap_or(self.rest().len());
                Some(SourceToken::Comment(self.text_since(start)))
            }
            b'/' if self.byte(1) == Some(b'*') => {
                self.skip_block_comment();
                Some(SourceToken::Comment(self.text_since(start)))
            }
            b'"' => {
                self.skip_string();
                None
            }
            b'\'' => {
                self.skip_character_or_lifetime();
                None
            }
            b'0'..=b'9' => {
                self.skip_word();
                None
            }
            _ if is_word(first) => self.identifier(),
            _ => {
                self.at += 1;
                (!first.is_ascii_whitespace()).then_some(SourceToken::Punctuation(first))
            }
        }
    }

    /// An identifier, unless it is the prefix of a literal.
    fn identifier(&mut self) -> Option<SourceToken<'a>> {
        let start = self.at;
        self.skip_word();
        let name = self.text_since(start);
        match (name, self.byte(0)) {
            ("r" | "br" | "cr", Some(b'"' | b'#')) => self.raw_string_or_identifier(),
            ("b" | "c", Some(b'"')) | ("b", Some(b'\'')) => None,
            _ => Some(SourceToken::Identifier(name)),
        }
    }

    fn raw_string_or_identifier(&mut self) -> Option<SourceToken<'a>> {
        let hashes = self.rest().bytes().take_while(|byte| *byte == b'#').count();
        self.at += hashes;
        if self.byte(0) == Some(b'"') {
            self.at += 1;
            self.skip_past(&format!("\"{}", "#".repeat(hashes)));
            return None;
        }
        let start = self.at;
        self.skip_word();
        Some(SourceToken::Identifier(self.text_since(start)))
    }

    fn skip_word(&mut self) {
        self.at += self.rest().bytes().take_while(|byte| is_word(*byte)).count();
    }

    fn skip_block_comment(&mut self) {
        let mut depth = 0;
        while self.at < self.source.len() {
            match (self.byte(0), self.byte(1)) {
                (Some(b'/'), Some(b'*')) => (depth, self.at) = (depth + 1, self.at + 2),
                (Some(b'*'), Some(b'/')) => (depth, self.at) = (depth - 1, self.at + 2),
                _ => self.at += 1,
            }
            if depth == 0 {
                break;
            }
        }
    }

    fn skip_string(&mut self) {
        self.at += 1;
        while let Some(byte) = self.byte(0) {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                break;
            }
        }
        self.at = self.at.min(self.source.len());
    }

    fn skip_character_or_lifetime(&mut self) {
        self.at += 1;
        if self.byte(0) == Some(b'\\') {
            self.at = (self.at + 2).min(self.source.len());
            self.skip_past("'");
            return;
        }
        let width = self.rest().chars().next().map_or(0, char::len_utf8);
        if self.byte(width) == Some(b'\'') {
            self.at += width + 1;
        } else {
            self.skip_word();
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric() || !byte.is_ascii()
}
