//! Runs programs as the kernel would, and rejects those that it would reject.
//!
//! Rule: only the instructions that seccomp allows; anything else fails the test.

use super::evaluation::TestSyscall;
use crate::program::{INSTRUCTION_LIMIT, SeccompInstruction};

pub(super) struct InterpreterOutcome {
    pub(super) verdict: u32,
    pub(super) steps: usize,
}

fn data(call: &TestSyscall) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(call.number.to_le_bytes());
    bytes.extend(call.identity.to_le_bytes());
    bytes.extend(0x7f00_1234_5678_u64.to_le_bytes());
    for argument in call.arguments {
        bytes.extend(argument.to_le_bytes());
    }
    bytes
}

pub(super) fn run(program: &[SeccompInstruction], call: &TestSyscall) -> InterpreterOutcome {
    let data = data(call);
    let mut accumulator = 0;
    let mut position = 0;
    for steps in 1..=program.len() {
        let SeccompInstruction { code, jump_true, jump_false, operand } = program[position];
        let branch = |taken| usize::from(if taken { jump_true } else { jump_false });
        position += 1;
        match code {
            0x20 => {
                let offset = operand as usize;
                let word = data[offset..offset + 4].try_into().expect("four bytes");
                accumulator = u32::from_le_bytes(word);
            }
            0x54 => accumulator &= operand,
            0x05 => position += operand as usize,
            0x15 => position += branch(accumulator == operand),
            0x25 => position += branch(accumulator > operand),
            0x35 => position += branch(accumulator >= operand),
            0x06 => return InterpreterOutcome { verdict: operand, steps },
            other => panic!("instruction {other:#x} at {}", position - 1),
        }
    }
    panic!("the program does not end")
}

/// The checks that the kernel makes before it accepts a program.
pub(super) fn check_as_the_kernel_does(program: &[SeccompInstruction]) {
    assert!(!program.is_empty() && program.len() <= INSTRUCTION_LIMIT);
    for (position, instruction) in program.iter().enumerate() {
        let behind = program.len() - position - 1;
        match instruction.code {
            0x20 => assert!(instruction.operand % 4 == 0 && instruction.operand < 64),
            0x05 => assert!((instruction.operand as usize) < behind),
            0x15 | 0x25 | 0x35 => {
                assert!(usize::from(instruction.jump_true) < behind);
                assert!(usize::from(instruction.jump_false) < behind);
            }
            0x54 | 0x06 => {}
            other => panic!("instruction {other:#x} at {position}"),
        }
    }
    assert_eq!(program[program.len() - 1].code, 0x06, "the last instruction returns");
}
