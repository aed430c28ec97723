//! Device rules, as version 1's files take them.
//!
//! Rule: a plain value and its text. On version 2 there is no file: the runtime compiles the same
//! rules to a BPF program.

/// One rule; the last that matches wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceRule {
    pub allow: bool,
    pub kind: DeviceKind,
    /// `None` matches every number.
    pub major: Option<u32>,
    pub minor: Option<u32>,
    pub access: DeviceAccess,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    All,
    Character,
    Block,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceAccess {
    pub read: bool,
    pub write: bool,
    pub make_node: bool,
}

impl DeviceAccess {
    pub const ALL: Self = Self { read: true, write: true, make_node: true };

    /// Reads `rwm` in any order; nothing else.
    pub fn parse(text: &str) -> Option<Self> {
        let known = text.chars().all(|letter| "rwm".contains(letter));
        (known && !text.is_empty()).then(|| Self {
            read: text.contains('r'),
            write: text.contains('w'),
            make_node: text.contains('m'),
        })
    }
}

impl std::fmt::Display for DeviceAccess {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (set, letter) in [(self.read, "r"), (self.write, "w"), (self.make_node, "m")] {
            out.write_str(if set { letter } else { "" })?;
        }
        Ok(())
    }
}

impl DeviceRule {
    /// What `devices.allow` or `devices.deny` takes: `c 1:3 rwm`, `a *:* rwm`.
    pub fn v1_text(&self) -> String {
        let kind = match self.kind {
            DeviceKind::All => 'a',
            DeviceKind::Character => 'c',
            DeviceKind::Block => 'b',
        };
        let number = |number: Option<u32>| number.map_or("*".to_owned(), |one| one.to_string());
        format!("{kind} {}:{} {}", number(self.major), number(self.minor), self.access)
    }
}
