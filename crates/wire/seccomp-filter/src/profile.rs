//! A seccomp profile as a value.
//!
//! Rule: rules are tried in order and the first that matches a call decides; a call that no rule
//! matches gets the default action. A call made through an architecture that the profile does not
//! name kills the process: its numbers would mean other calls. Plain values; validated by
//! `compile`.

/// A whole profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeccompProfile {
    pub default_action: SeccompAction,
    pub architectures: Vec<Architecture>,
    pub rules: Vec<SyscallRule>,
    /// `None` if the profile does not set them, which other runtimes read as their own default.
    pub flags: Option<FilterFlags>,
}

/// Flags for loading the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FilterFlags {
    /// Write every action but Allow to the audit log.
    pub log: bool,
    /// Do not enable the speculative-store-bypass mitigation.
    pub allow_speculation: bool,
}

/// An action for some calls, if all conditions hold. If two conditions are on the same argument,
/// any one of the rule's conditions is enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyscallRule {
    /// Names as the kernel has them. A name that an architecture does not have is left out there.
    pub syscalls: Vec<String>,
    pub action: SeccompAction,
    pub conditions: Vec<ArgumentCondition>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SeccompAction {
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
    /// Ask the process that holds the listener.
    Notify,
}

/// A condition on one argument, taken as an unsigned 64-bit number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgumentCondition {
    /// 0 for the first argument, 5 for the last.
    pub argument: u8,
    pub comparison: ArgumentComparison,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentComparison {
    Equal(u64),
    NotEqual(u64),
    Less(u64),
    LessOrEqual(u64),
    Greater(u64),
    GreaterOrEqual(u64),
    /// The argument with only the bits of `mask` equals `value`.
    MaskedEqual {
        mask: u64,
        value: u64,
    },
}

/// A system call ABI. All of these are little-endian.
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
