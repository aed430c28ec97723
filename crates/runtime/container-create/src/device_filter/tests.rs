//! The program is run by a small interpreter and must decide as the rules do.

use super::*;

/// The result that the kernel would get.
fn run(program: &[BpfInstruction], kind: u32, access: u32, major: u32, minor: u32) -> bool {
    let context = [access << 16 | kind, major, minor];
    let mut registers = [0_u64; 11];
    let mut at = 0;
    for _ in 0..program.len() + 1 {
        let one = program[at];
        let (target, source) = ((one.registers & 15) as usize, (one.registers >> 4) as usize);
        let value = one.value as i64 as u64;
        at += 1;
        let mut jump = false;
        match one.code {
            LOAD_WORD => registers[target] = u64::from(context[one.offset as usize / 4]),
            COPY => registers[target] = registers[source],
            SET => registers[target] = value,
            AND => registers[target] &= value,
            SHIFT_RIGHT => registers[target] >>= value,
            JUMP_UNLESS_EQUAL => jump = registers[target] != value,
            JUMP_UNLESS_EQUAL_REGISTER => jump = registers[target] != registers[source],
            0x15 => jump = registers[target] == value,
            EXIT => return registers[0] == 1,
            other => panic!("unknown instruction {other:#x}"),
        }
        if jump {
            at += one.offset as usize;
        }
    }
    panic!("the program does not end");
}

#[test]
fn a_default_container_may_create_any_node_and_open_few() {
    let rules = crate::groups::device_rules(&Default::default()).expect("rules");
    let program = assemble(&rules);
    let (block, character, node, read, both) = (1, 2, 1, 2, 6);
    assert!(run(&program, character, both, 1, 3), "null");
    assert!(run(&program, character, both, 136, 77), "a terminal");
    assert!(run(&program, block, node, 8, 0), "mknod of a disk");
    assert!(!run(&program, block, read, 8, 0), "reading a disk");
    assert!(!run(&program, block, node | read, 8, 0), "mknod and reading a disk");
    assert!(!run(&program, character, read, 1, 1), "memory");
    assert!(!run(&program, character, read, 10, 229), "fuse");
}

#[test]
fn the_last_rule_decides() {
    let rule = |allow, major, access: &str| DeviceRule {
        allow,
        kind: DeviceKind::Block,
        major,
        minor: None,
        access: DeviceAccess::parse(access).expect("access"),
    };
    let program = assemble(&[rule(true, None, "rwm"), rule(false, Some(8), "w")]);
    assert!(run(&program, 1, 2, 8, 1), "reading stays");
    assert!(!run(&program, 1, 4, 8, 1), "writing is denied");
    assert!(!run(&program, 1, 6, 8, 1), "reading and writing is denied");
    assert!(run(&program, 1, 4, 9, 1), "another device");
    assert!(!run(&program, 2, 2, 9, 1), "another kind has no rule");
    let all = DeviceRule {
        allow: true,
        kind: DeviceKind::All,
        major: None,
        minor: None,
        access: DeviceAccess::ALL,
    };
    assert!(run(&assemble(&[all]), 1, 7, 8, 0));
    assert!(!run(&assemble(&[]), 1, 7, 8, 0));
}
