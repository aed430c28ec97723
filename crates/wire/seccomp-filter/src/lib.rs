//! Seccomp profiles compiled to classic BPF and loaded, without a C library.
//!
//! Rule: [`compile`] is a pure function from a [`Profile`] to a [`Program`]; only [`load`] and
//! [`self_check`] touch the kernel. A profile means the same on every architecture that it names;
//! what it does not name never runs. Does not read profile files and knows no default profile.

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
pub use profile::{Action, Architecture, Comparison, Condition, Flags, Profile, Rule};
pub use program::{INSTRUCTION_LIMIT, Instruction, Program};
pub use self_check::{SelfCheckError, SelfCheckReport, self_check};
pub use syscalls::{syscall_names, syscall_number};
