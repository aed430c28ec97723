//! Evaluates a profile for a call, rule by rule: the reference for compiled programs.
//!
//! Rule: follows the profile directly and shares only the tables of numbers with the compiler.

use std::collections::BTreeSet;

use crate::profile::{
    Architecture, ArgumentComparison, ArgumentCondition, SeccompAction, SeccompProfile,
};
use crate::syscalls::syscall_number;

#[derive(Debug, Clone)]
pub(super) struct TestSyscall {
    pub(super) identity: u32,
    pub(super) number: u32,
    pub(super) arguments: [u64; 6],
}

pub(super) fn evaluate(profile: &SeccompProfile, call: &TestSyscall) -> SeccompAction {
    let by_itself = match call.identity {
        0xc000_003e if call.number == u32::MAX => {
            let ours =
                |known: &Architecture| matches!(known, Architecture::X86_64 | Architecture::X32);
            return if profile.architectures.iter().any(ours) {
                profile.default_action
            } else {
                SeccompAction::KillProcess
            };
        }
        0xc000_003e if call.number < 0x4000_0000 => Some(Architecture::X86_64),
        0xc000_003e => Some(Architecture::X32),
        0x4000_0003 => Some(Architecture::X86),
        0xc000_00b7 => Some(Architecture::Aarch64),
        _ => None,
    };
    let Some(architecture) = by_itself.filter(|known| profile.architectures.contains(known)) else {
        return SeccompAction::KillProcess;
    };
    let matching = profile.rules.iter().find(|rule| {
        let named = |name: &String| syscall_number(architecture, name) == Some(call.number);
        let arguments: BTreeSet<u8> = rule.conditions.iter().map(|one| one.argument).collect();
        let mut conditions = rule.conditions.iter();
        let met = if arguments.len() < rule.conditions.len() {
            conditions.any(|condition| holds(condition, call))
        } else {
            conditions.all(|condition| holds(condition, call))
        };
        met && rule.syscalls.iter().any(named)
    });
    matching.map_or(profile.default_action, |rule| rule.action)
}

fn holds(condition: &ArgumentCondition, call: &TestSyscall) -> bool {
    let argument = call.arguments[usize::from(condition.argument)];
    match condition.comparison {
        ArgumentComparison::Equal(value) => argument == value,
        ArgumentComparison::NotEqual(value) => argument != value,
        ArgumentComparison::Less(value) => argument < value,
        ArgumentComparison::LessOrEqual(value) => argument <= value,
        ArgumentComparison::Greater(value) => argument > value,
        ArgumentComparison::GreaterOrEqual(value) => argument >= value,
        ArgumentComparison::MaskedEqual { mask, value } => argument & mask == value,
    }
}
