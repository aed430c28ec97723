//! Text that must not be shown.
//!
//! Rule: its debug form is masked; code that needs the content calls a method for it.

use std::fmt;

/// A token or a key.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    pub fn new(content: impl Into<Vec<u8>>) -> Self {
        Self(content.into())
    }

    /// The content: for files and connections, never for messages.
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("<masked>")
    }
}
