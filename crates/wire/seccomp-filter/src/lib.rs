//! Seccomp profiles compiled to classic BPF and loaded, without a C library.
//!
//! Rule: [`compile`] is a pure function from a [`SeccompProfile`] to a [`BpfProgram`]; only
//! [`load`] and [`self_check`] touch the kernel. A profile means the same on every architecture
//! that it names; a system call through any other architecture kills the process. Does not read
//! profile files and knows no default profile.

#![allow(unsafe_code, reason = "seccomp(2) has no safe wrapper; see load.rs, the only user")]

mod assembler;
mod compile;
mod load;
mod profile;
mod program;
mod self_check;
mod syscalls;

pub use compile::{CompileError, compile};
pub use load::{LoadError, LoadOptions, load, set_no_new_privileges};
pub use profile::{
    Architecture, ArgumentComparison, ArgumentCondition, FilterFlags, SeccompAction,
    SeccompProfile, SyscallRule,
};
pub use program::{BpfProgram, INSTRUCTION_LIMIT, SeccompInstruction};
pub use self_check::{SelfCheckError, SelfCheckReport, self_check};
pub use syscalls::{syscall_names, syscall_number};
