//! Seccomp profiles that administrators and operators write.

use oci_bundle::seccomp::{parse, write};
use seccomp_filter::{INSTRUCTION_LIMIT, SeccompInstruction, compile};

/// Any bytes as a profile: a valid profile survives serialization, compiles to the same program
/// again, and the kernel accepts the program.
pub fn seccomp(input: &[u8]) {
    let Ok(profile) = parse(input) else { return };
    let again = parse(write(&profile).as_bytes()).expect("what was written reads");
    assert_eq!(again, profile, "written and read");
    let Ok(program) = compile(&profile) else { return };
    check(program.instructions());
    assert_eq!(compile(&again).as_ref(), Ok(&program), "another program");
}

/// The kernel's own checks of a BPF program.
fn check(program: &[SeccompInstruction]) {
    assert!(!program.is_empty() && program.len() <= INSTRUCTION_LIMIT, "{}", program.len());
    for (at, instruction) in program.iter().enumerate() {
        let behind = program.len() - at - 1;
        let (yes, no) = (instruction.jump_true, instruction.jump_false);
        match instruction.code {
            0x20 => assert!(instruction.operand % 4 == 0 && instruction.operand < 64),
            0x05 => assert!((instruction.operand as usize) < behind, "a jump beyond the end"),
            0x15 | 0x25 | 0x35 => {
                assert!(usize::from(yes.max(no)) < behind, "a jump beyond the end");
            }
            0x54 | 0x06 => {}
            other => panic!("the instruction {other:#x} is not seccomp's"),
        }
    }
    assert!(program.last().is_some_and(|last| last.code == 0x06), "it does not return");
}
