//! What a filter should do, in the words of the domain.
//!
//! Rule: rules are tried in order and the first that matches a call decides; a call that no rule
//! matches gets the default action. A call made through an architecture that the profile does not
//! name kills the process: its numbers would mean other calls. Plain values; nothing is checked
//! here, `compile` does that.

/// A whole profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    pub default_action: Action,
    pub architectures: Vec<Architecture>,
    pub rules: Vec<Rule>,
    /// None where the profile says nothing of them, which others read as their own default.
    pub flags: Option<Flags>,
}

/// How the kernel is to hold the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// Write every action but Allow to the audit log.
    pub log: bool,
    /// Leave speculative execution as it is.
    pub allow_speculation: bool,
}

/// What to do with some calls, all of whose conditions hold. Where two conditions are on the same
/// argument, one of all conditions that holds is enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Names as the kernel has them. A name that an architecture does not have is left out there.
    pub syscalls: Vec<String>,
    pub action: Action,
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    Allow,
    /// The call fails with this error number and is not made.
    Errno(u16),
    KillProcess,
    KillThread,
    /// SIGSYS, which the process may handle.
    Trap,
    /// Allowed, and written to the audit log.
    Log,
    /// Ask the tracer, handing it this number; without a tracer the call fails with ENOSYS.
    Trace(u16),
    /// Ask whoever holds the listener.
    Notify,
}

/// What must hold of one argument, taken as an unsigned 64-bit number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    /// 0 for the first argument, 5 for the last.
    pub argument: u8,
    pub comparison: Comparison,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Equal(u64),
    NotEqual(u64),
    Less(u64),
    LessOrEqual(u64),
    Greater(u64),
    GreaterOrEqual(u64),
    /// The argument with only the bits of `mask` is `value`.
    MaskedEqual {
        mask: u64,
        value: u64,
    },
}

/// A way to make system calls. All of these are little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Architecture {
    X86_64,
    /// 32-bit calls on the same machine.
    X86,
    /// 32-bit pointers with 64-bit registers: the numbers of x86_64 with a bit set.
    X32,
    Aarch64,
}

impl Architecture {
    /// The architecture that this program was built for.
    pub const fn native() -> Option<Self> {
        if cfg!(all(target_arch = "x86_64", target_pointer_width = "64")) {
            Some(Self::X86_64)
        } else if cfg!(target_arch = "x86") {
            Some(Self::X86)
        } else if cfg!(target_arch = "aarch64") {
            Some(Self::Aarch64)
        } else {
            None
        }
    }
}
