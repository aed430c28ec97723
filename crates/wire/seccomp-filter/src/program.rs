//! A compiled filter: instructions as the kernel takes them.
//!
//! Rule: a `BpfProgram` only comes from `compile` and is never longer than the kernel allows.

/// The longest program that the kernel accepts.
pub const INSTRUCTION_LIMIT: usize = 4096;

/// One classic BPF instruction, laid out as the kernel's `struct sock_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct SeccompInstruction {
    pub code: u16,
    pub jump_true: u8,
    pub jump_false: u8,
    pub operand: u32,
}

/// A filter that can be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BpfProgram {
    pub(crate) instructions: Vec<SeccompInstruction>,
    pub(crate) unknown_syscalls: Vec<String>,
}

impl BpfProgram {
    pub fn instructions(&self) -> &[SeccompInstruction] {
        &self.instructions
    }

    /// Names in the profile that none of its architectures has, in order and each once: a typo, or
    /// a call newer than the tables. Their rules have no effect.
    pub fn unknown_syscalls(&self) -> &[String] {
        &self.unknown_syscalls
    }
}
