//! Compiles a profile to a program.
//!
//! Rule: the program's verdict on every call is the profile's, and reached quickly: the numbers of
//! an architecture are split into ranges with one verdict each, and the range is found by binary
//! search. Does not optimise conditions; profiles have few.
//!
//! Layout: load the architecture, jump to its part; there load the number, binary search for its
//! range; there either the verdict or the rules of that call, tried in order.

use std::collections::BTreeMap;

use crate::assembler::{Assembler, JumpTest, Label, Targets};
use crate::profile::{
    Architecture, ArgumentComparison, ArgumentCondition, SeccompAction, SeccompProfile, SyscallRule,
};
use crate::program::{BpfProgram, INSTRUCTION_LIMIT};
use crate::syscalls::{X32_BIT, syscall_number};

#[cfg(test)]
mod tests;

/// The number that a tracer sets to have a call skipped; it belongs to no architecture.
const SKIPPED_CALL: u32 = u32::MAX;
const NUMBER_OFFSET: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;
const ARGUMENTS_OFFSET: u32 = 16;
const ARGUMENT_COUNT: u8 = 6;
/// The kernel cuts larger error numbers down to this one.
const ERRNO_LIMIT: u16 = 4095;

/// The action for a call through an architecture that the profile does not name.
pub(crate) const FOREIGN_ARCHITECTURE: SeccompAction = SeccompAction::KillProcess;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    #[error("the profile names no architecture; expected at least one")]
    NoArchitecture,
    #[error("rule {rule}: argument {argument}; expected 0 to 5")]
    Argument { rule: usize, argument: u8 },
    #[error("error number {0}; expected at most 4095")]
    Errno(u16),
    #[error("the filter has {0} instructions; the kernel takes at most {INSTRUCTION_LIMIT}")]
    TooLong(usize),
}

/// The filter of a profile.
pub fn compile(profile: &SeccompProfile) -> Result<BpfProgram, CompileError> {
    check(profile)?;
    let mut assembler = Assembler::default();
    // Calls with equal rules share the instructions for them, on all architectures.
    let mut emitted = Vec::new();
    let mut otherwise = assembler.verdict(FOREIGN_ARCHITECTURE);
    for identity in identities(&profile.architectures).into_iter().rev() {
        let ranges = ranges(profile, identity);
        let search = emit_search(&mut assembler, &ranges, &mut emitted);
        let part = assembler.load_word(NUMBER_OFFSET, search);
        otherwise = assembler.test(
            JumpTest::Equal,
            identity.audit_value(),
            Targets { if_true: part, if_false: otherwise },
        );
    }
    assembler.load_word(ARCHITECTURE_OFFSET, otherwise);
    let instructions = assembler.finish();
    if instructions.len() > INSTRUCTION_LIMIT {
        return Err(CompileError::TooLong(instructions.len()));
    }
    Ok(BpfProgram { instructions, unknown_syscalls: unknown_syscalls(profile) })
}

fn check(profile: &SeccompProfile) -> Result<(), CompileError> {
    if profile.architectures.is_empty() {
        return Err(CompileError::NoArchitecture);
    }
    let actions = profile.rules.iter().map(|rule| rule.action);
    for action in actions.chain([profile.default_action]) {
        if let SeccompAction::Errno(number) = action
            && number > ERRNO_LIMIT
        {
            return Err(CompileError::Errno(number));
        }
    }
    for (index, rule) in profile.rules.iter().enumerate() {
        for ArgumentCondition { argument, .. } in &rule.conditions {
            if *argument >= ARGUMENT_COUNT {
                return Err(CompileError::Argument { rule: index, argument: *argument });
            }
        }
    }
    Ok(())
}

fn unknown_syscalls(profile: &SeccompProfile) -> Vec<String> {
    let mut unknown: Vec<String> = Vec::new();
    for name in profile.rules.iter().flat_map(|rule| &rule.syscalls) {
        let known =
            profile.architectures.iter().any(|known| syscall_number(*known, name).is_some());
        if !known && !unknown.contains(name) {
            unknown.push(name.clone());
        }
    }
    unknown
}

/// What the kernel distinguishes: x86_64 and x32 have one identity and differ by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AuditArchitecture {
    X86_64 { plain: bool, x32: bool },
    X86,
    Aarch64,
}

impl AuditArchitecture {
    fn audit_value(self) -> u32 {
        match self {
            Self::X86_64 { .. } => 0xc000_003e,
            Self::X86 => 0x4000_0003,
            Self::Aarch64 => 0xc000_00b7,
        }
    }

    fn architectures(self) -> Vec<Architecture> {
        match self {
            Self::X86_64 { plain, x32 } => {
                let named = [(plain, Architecture::X86_64), (x32, Architecture::X32)];
                named.into_iter().filter(|(named, _)| *named).map(|(_, which)| which).collect()
            }
            Self::X86 => vec![Architecture::X86],
            Self::Aarch64 => vec![Architecture::Aarch64],
        }
    }
}

/// The named architectures, the most used first: it is tested first.
fn identities(named: &[Architecture]) -> Vec<AuditArchitecture> {
    let has = |architecture| named.contains(&architecture);
    let (plain, x32) = (has(Architecture::X86_64), has(Architecture::X32));
    let mut identities = Vec::new();
    if plain || x32 {
        identities.push(AuditArchitecture::X86_64 { plain, x32 });
    }
    if has(Architecture::Aarch64) {
        identities.push(AuditArchitecture::Aarch64);
    }
    if has(Architecture::X86) {
        identities.push(AuditArchitecture::X86);
    }
    identities
}

/// What happens to a call: conditional cases in order, then the unconditional action.
#[derive(Debug, Clone, PartialEq)]
struct SyscallDecision<'a> {
    conditional: Vec<DecisionCase<'a>>,
    otherwise: SeccompAction,
}

/// Conditions that must all hold, and the action.
#[derive(Debug, Clone, Copy, PartialEq)]
struct DecisionCase<'a> {
    conditions: &'a [ArgumentCondition],
    action: SeccompAction,
}

impl<'a> DecisionCase<'a> {
    /// A rule that names an argument twice is a case for each of its conditions: libseccomp, which
    /// other runtimes use, takes one condition per argument, so they add such a rule once for each.
    ///
    /// upstream: opencontainers/runc libcontainer/seccomp/seccomp_linux.go (matchCall)
    fn of(rule: &'a SyscallRule) -> Vec<Self> {
        let conditions = rule.conditions.as_slice();
        let repeats = conditions.iter().enumerate().any(|(index, one)| {
            conditions[..index].iter().any(|earlier| earlier.argument == one.argument)
        });
        let case = |conditions| Self { conditions, action: rule.action };
        if repeats { conditions.chunks(1).map(case).collect() } else { vec![case(conditions)] }
    }
}

impl SyscallDecision<'_> {
    fn always(action: SeccompAction) -> Self {
        Self { conditional: Vec::new(), otherwise: action }
    }
}

/// The verdicts by the first number they hold for, each up to the next; neighbours differ.
fn ranges(
    profile: &SeccompProfile,
    identity: AuditArchitecture,
) -> Vec<(u32, SyscallDecision<'_>)> {
    let mut starts = BTreeMap::from([(0, SyscallDecision::always(profile.default_action))]);
    if let AuditArchitecture::X86_64 { plain, x32 } = identity {
        if !plain {
            starts.insert(0, SyscallDecision::always(FOREIGN_ARCHITECTURE));
        }
        let x32_action = if x32 { profile.default_action } else { FOREIGN_ARCHITECTURE };
        starts.insert(X32_BIT, SyscallDecision::always(x32_action));
        starts.insert(SKIPPED_CALL, SyscallDecision::always(profile.default_action));
    }
    for (number, decision) in named_calls(profile, identity) {
        let before = starts.range(..=number).next_back().map(|(_, decision)| decision.clone());
        let after = before.unwrap_or_else(|| SyscallDecision::always(profile.default_action));
        // The range that the call was cut out of continues behind it.
        starts.entry(number + 1).or_insert(after);
        starts.insert(number, decision);
    }
    let mut ranges: Vec<(u32, SyscallDecision<'_>)> = starts.into_iter().collect();
    ranges.dedup_by(|next, previous| next.1 == previous.1);
    ranges
}

fn named_calls(
    profile: &SeccompProfile,
    identity: AuditArchitecture,
) -> BTreeMap<u32, SyscallDecision<'_>> {
    let mut calls: BTreeMap<u32, Vec<DecisionCase<'_>>> = BTreeMap::new();
    for rule in &profile.rules {
        let cases = DecisionCase::of(rule);
        for name in &rule.syscalls {
            for architecture in identity.architectures() {
                if let Some(number) = syscall_number(architecture, name) {
                    calls.entry(number).or_default().extend(&cases);
                }
            }
        }
    }
    calls
        .into_iter()
        .map(|(number, cases)| {
            let unconditional = cases.iter().position(|case| case.conditions.is_empty());
            let otherwise =
                unconditional.map_or(profile.default_action, |index| cases[index].action);
            let conditional = cases[..unconditional.unwrap_or(cases.len())].to_vec();
            (number, SyscallDecision { conditional, otherwise })
        })
        .collect()
}

/// Emits the search for the range that holds the number in the accumulator.
fn emit_search<'a>(
    assembler: &mut Assembler,
    ranges: &[(u32, SyscallDecision<'a>)],
    emitted: &mut Vec<(SyscallDecision<'a>, Label)>,
) -> Label {
    match ranges {
        [] => assembler.verdict(FOREIGN_ARCHITECTURE),
        [(_, decision)] => emit_decision(assembler, decision, emitted),
        _ => {
            let (low, high) = ranges.split_at(ranges.len() / 2);
            let if_true = emit_search(assembler, high, emitted);
            let if_false = emit_search(assembler, low, emitted);
            assembler.test(JumpTest::GreaterOrEqual, high[0].0, Targets { if_true, if_false })
        }
    }
}

fn emit_decision<'a>(
    assembler: &mut Assembler,
    decision: &SyscallDecision<'a>,
    emitted: &mut Vec<(SyscallDecision<'a>, Label)>,
) -> Label {
    if let Some((_, label)) = emitted.iter().find(|(known, _)| known == decision) {
        return *label;
    }
    let mut next = assembler.verdict(decision.otherwise);
    for case in decision.conditional.iter().rev() {
        let mut matched = assembler.verdict(case.action);
        for condition in case.conditions.iter().rev() {
            matched =
                emit_condition(assembler, *condition, Targets { if_true: matched, if_false: next });
        }
        next = matched;
    }
    emitted.push((decision.clone(), next));
    next
}

/// Emits the comparison of a 64-bit argument as two of its 32-bit halves.
fn emit_condition(
    assembler: &mut Assembler,
    condition: ArgumentCondition,
    targets: Targets,
) -> Label {
    let halves = Halves::of(condition.argument);
    match condition.comparison {
        ArgumentComparison::Equal(value) => halves.emit_equal(assembler, value, None, targets),
        ArgumentComparison::NotEqual(value) => {
            halves.emit_equal(assembler, value, None, targets.swapped())
        }
        ArgumentComparison::MaskedEqual { mask, value } => {
            halves.emit_equal(assembler, value, Some(mask), targets)
        }
        ArgumentComparison::Greater(value) => {
            halves.emit_order(assembler, JumpTest::Greater, value, targets)
        }
        ArgumentComparison::GreaterOrEqual(value) => {
            halves.emit_order(assembler, JumpTest::GreaterOrEqual, value, targets)
        }
        ArgumentComparison::LessOrEqual(value) => {
            halves.emit_order(assembler, JumpTest::Greater, value, targets.swapped())
        }
        ArgumentComparison::Less(value) => {
            halves.emit_order(assembler, JumpTest::GreaterOrEqual, value, targets.swapped())
        }
    }
}

/// Offsets of an argument's halves; the low one first, on little-endian machines.
#[derive(Debug, Clone, Copy)]
struct Halves {
    low: u32,
    high: u32,
}

impl Halves {
    fn of(argument: u8) -> Self {
        let low = ARGUMENTS_OFFSET + 8 * u32::from(argument);
        Self { low, high: low + 4 }
    }

    fn emit_equal(
        self,
        assembler: &mut Assembler,
        value: u64,
        mask: Option<u64>,
        targets: Targets,
    ) -> Label {
        let [low, high] = split(value);
        let masks = mask.map(split);
        let compared = assembler.test(JumpTest::Equal, low, targets);
        let masked = masks.map_or(compared, |[low, _]| assembler.mask(low, compared));
        let if_true = assembler.load_word(self.low, masked);
        let compared =
            assembler.test(JumpTest::Equal, high, Targets { if_true, if_false: targets.if_false });
        let masked = masks.map_or(compared, |[_, high]| assembler.mask(high, compared));
        assembler.load_word(self.high, masked)
    }

    /// `test` decides on the low halves; a greater high half decides alone.
    fn emit_order(
        self,
        assembler: &mut Assembler,
        test: JumpTest,
        value: u64,
        targets: Targets,
    ) -> Label {
        let [low, high] = split(value);
        let compared = assembler.test(test, low, targets);
        let low_half = assembler.load_word(self.low, compared);
        let same = Targets { if_true: low_half, if_false: targets.if_false };
        let equal = assembler.test(JumpTest::Equal, high, same);
        let greater = Targets { if_true: targets.if_true, if_false: equal };
        let compared = assembler.test(JumpTest::Greater, high, greater);
        assembler.load_word(self.high, compared)
    }
}

fn split(value: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}
