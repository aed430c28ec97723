//! Device rules as a BPF program for cgroup version 2, which has no file for them.
//!
//! Rule: [`assemble`] is pure: the last rule that matches decides, and the default is to deny.
//! [`attach`] attaches the program to one cgroup; the programs of its parents apply as well (all
//! must allow).
//!
//! The kernel passes `{ u32 access << 16 | kind, u32 major, u32 minor }` and expects 1 for "allow".

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use cgroup_files::{DeviceAccess, DeviceKind, DeviceRule};

use crate::system::{bpf, owned};

#[cfg(test)]
mod tests;

const BLOCK: i32 = 1;
const CHARACTER: i32 = 2;
const MAKE_NODE: i32 = 1;
const READ: i32 = 2;
const WRITE: i32 = 4;

/// One BPF instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct BpfInstruction {
    code: u8,
    /// Target in the low half, source in the high half.
    registers: u8,
    offset: i16,
    value: i32,
}

// Registers: 1 is the context; 2 kind, 3 access, 4 major, 5 minor are loaded from it; 0 is the
// result; 6 is scratch.
const LOAD_WORD: u8 = 0x61;
const COPY: u8 = 0xbf;
const SET: u8 = 0xb7;
const AND: u8 = 0x57;
const SHIFT_RIGHT: u8 = 0x77;
const JUMP_UNLESS_EQUAL: u8 = 0x55;
const JUMP_UNLESS_EQUAL_REGISTER: u8 = 0x5d;
const EXIT: u8 = 0x95;

fn instruction(code: u8, target: u8, source: u8, offset: i16, value: i32) -> BpfInstruction {
    BpfInstruction { code, registers: target | source << 4, offset, value }
}

pub(crate) fn assemble(rules: &[DeviceRule]) -> Vec<BpfInstruction> {
    let mut program = vec![
        instruction(LOAD_WORD, 2, 1, 0, 0),
        instruction(COPY, 3, 2, 0, 0),
        instruction(AND, 2, 0, 0, 0xffff),
        instruction(SHIFT_RIGHT, 3, 0, 0, 16),
        instruction(LOAD_WORD, 4, 1, 4, 0),
        instruction(LOAD_WORD, 5, 1, 8, 0),
    ];
    // The last rule decides, so it is tested first; a rule that matches everything ends the list.
    for rule in rules.iter().rev() {
        block(rule, &mut program);
        if is_total(rule) {
            return program;
        }
    }
    program.extend([instruction(SET, 0, 0, 0, 0), instruction(EXIT, 0, 0, 0, 0)]);
    program
}

fn is_total(rule: &DeviceRule) -> bool {
    rule.kind == DeviceKind::All
        && rule.major.is_none()
        && rule.minor.is_none()
        && rule.access == DeviceAccess::ALL
}

/// Conditions that skip the block unless they hold, then the result.
fn block(rule: &DeviceRule, program: &mut Vec<BpfInstruction>) {
    let mut conditions: Vec<Vec<BpfInstruction>> = Vec::new();
    let kind = match rule.kind {
        DeviceKind::All => None,
        DeviceKind::Block => Some(BLOCK),
        DeviceKind::Character => Some(CHARACTER),
    };
    if let Some(kind) = kind {
        conditions.push(vec![instruction(JUMP_UNLESS_EQUAL, 2, 0, 0, kind)]);
    }
    if rule.access != DeviceAccess::ALL {
        let bits = [
            (rule.access.make_node, MAKE_NODE),
            (rule.access.read, READ),
            (rule.access.write, WRITE),
        ];
        let mask = bits.iter().filter(|(set, _)| *set).fold(0, |all, (_, bit)| all | bit);
        // Allow only if no other access is requested; deny if any of this access is requested.
        if rule.allow {
            conditions.push(vec![
                instruction(COPY, 6, 3, 0, 0),
                instruction(AND, 6, 0, 0, mask),
                instruction(JUMP_UNLESS_EQUAL_REGISTER, 6, 3, 0, 0),
            ]);
        } else {
            conditions.push(vec![
                instruction(COPY, 6, 3, 0, 0),
                instruction(AND, 6, 0, 0, mask),
                // Skips the block if none of it is requested.
                instruction(0x15, 6, 0, 0, 0),
            ]);
        }
    }
    for (register, number) in [(4, rule.major), (5, rule.minor)] {
        if let Some(number) = number {
            let number = i32::try_from(number).unwrap_or(i32::MAX);
            conditions.push(vec![instruction(JUMP_UNLESS_EQUAL, register, 0, 0, number)]);
        }
    }
    let mut flat: Vec<BpfInstruction> = conditions.into_iter().flatten().collect();
    let length = flat.len();
    for (at, one) in flat.iter_mut().enumerate() {
        if matches!(one.code, JUMP_UNLESS_EQUAL | JUMP_UNLESS_EQUAL_REGISTER | 0x15) {
            // Past the remaining conditions and the two instructions of the result.
            one.offset = i16::try_from(length - at - 1 + 2).unwrap_or(i16::MAX);
        }
    }
    program.extend(flat);
    program
        .extend([instruction(SET, 0, 0, 0, i32::from(rule.allow)), instruction(EXIT, 0, 0, 0, 0)]);
}

#[repr(C)]
struct LoadAttributes {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

#[repr(C)]
struct AttachAttributes {
    target: u32,
    program: u32,
    kind: u32,
    flags: u32,
    replace: u32,
}

const LOAD: libc::c_int = 5;
const ATTACH: libc::c_int = 8;
const PROGRAM_CGROUP_DEVICE: u32 = 15;
const ATTACH_CGROUP_DEVICE: u32 = 6;
const ALLOW_MULTI: u32 = 2;

/// Attaches the rules to the cgroup of this directory.
pub(crate) fn attach(dir: &Path, rules: &[DeviceRule]) -> io::Result<()> {
    let program = assemble(rules);
    let mut load = LoadAttributes {
        kind: PROGRAM_CGROUP_DEVICE,
        count: u32::try_from(program.len()).map_err(io::Error::other)?,
        instructions: program.as_ptr() as u64,
        license: c"Apache".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: *b"keelson_devices\0",
    };
    let loaded = owned(bpf(LOAD, &mut load)?)?;
    let group = File::open(dir)?;
    let number = |descriptor: i32| u32::try_from(descriptor).map_err(io::Error::other);
    let mut attach = AttachAttributes {
        target: number(group.as_raw_fd())?,
        program: number(loaded.as_raw_fd())?,
        kind: ATTACH_CGROUP_DEVICE,
        flags: ALLOW_MULTI,
        replace: 0,
    };
    bpf(ATTACH, &mut attach).map(drop)
}
