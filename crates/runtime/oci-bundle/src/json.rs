//! A JSON writer, and no more: the supervisor that uses it is kept small.
//!
//! Rule: the output is valid JSON whatever the strings contain; members keep the order of
//! insertion.

#[cfg(test)]
mod tests;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json {
    Bool(bool),
    Number(i128),
    Text(String),
    List(Vec<Json>),
    Members(Vec<(String, Json)>),
    /// Text that is already JSON.
    Raw(String),
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<&String> for Json {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

macro_rules! numbers {
    ($($kind:ty),*) => {
        $(impl From<$kind> for Json {
            fn from(value: $kind) -> Self {
                Self::Number(i128::from(value))
            }
        })*
    };
}

numbers!(u32, i32, u64, i64);

pub(crate) fn texts(list: &[String]) -> Json {
    Json::List(list.iter().map(Json::from).collect())
}

/// Members in order; empty ones are left out.
#[derive(Debug, Default)]
pub(crate) struct Members(Vec<(String, Json)>);

impl Members {
    pub(crate) fn put(&mut self, name: &str, value: impl Into<Json>) {
        self.0.push((name.to_owned(), value.into()));
    }

    pub(crate) fn put_some(&mut self, name: &str, value: Option<impl Into<Json>>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }

    pub(crate) fn put_text(&mut self, name: &str, text: &str) {
        if !text.is_empty() {
            self.put(name, text);
        }
    }

    pub(crate) fn put_texts(&mut self, name: &str, list: &[String]) {
        if !list.is_empty() {
            self.put(name, texts(list));
        }
    }

    /// Left out if empty.
    pub(crate) fn put_members(&mut self, name: &str, members: Members) {
        if !members.0.is_empty() {
            self.put(name, members);
        }
    }
}

impl From<Members> for Json {
    fn from(members: Members) -> Self {
        Self::Members(members.0)
    }
}

impl Json {
    pub(crate) fn write(&self) -> String {
        let mut out = String::new();
        self.write_to(&mut out);
        out
    }

    fn write_to(&self, out: &mut String) {
        match self {
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(value) => out.push_str(&value.to_string()),
            Self::Text(text) => quote(text, out),
            Self::Raw(text) => out.push_str(text),
            Self::List(list) => {
                out.push('[');
                for (at, value) in list.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    value.write_to(out);
                }
                out.push(']');
            }
            Self::Members(members) => {
                out.push('{');
                for (at, (name, value)) in members.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    quote(name, out);
                    out.push(':');
                    value.write_to(out);
                }
                out.push('}');
            }
        }
    }
}

fn quote(text: &str, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{0}'..='\u{1f}' => out.push_str(&format!("\\u{:04x}", u32::from(letter))),
            other => out.push(other),
        }
    }
    out.push('"');
}
