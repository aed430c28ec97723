//! Compiles a profile to a program.
//!
//! Rule: the program's verdict on every call is the profile's, and reached quickly: the numbers of
//! an architecture are split into ranges with one verdict each, and the range is found by binary
//! search. Does not optimise conditions; profiles have few.
//!
//! Layout: load the architecture, jump to its part; there load the number, binary search for its
//! range; there either the verdict or the rules of that call, tried in order.

use std::collections::BTreeMap;

use crate::assembler::{Assembler, Label, Targets, Test};
use crate::profile::{Action, Architecture, Comparison, Condition, Profile, Rule};
use crate::program::{INSTRUCTION_LIMIT, Program};
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
pub(crate) const FOREIGN_ARCHITECTURE: Action = Action::KillProcess;

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
pub fn compile(profile: &Profile) -> Result<Program, CompileError> {
    check(profile)?;
    let mut assembler = Assembler::default();
    // Calls with equal rules share the instructions for them, on all architectures.
    let mut laid = Vec::new();
    let mut otherwise = assembler.verdict(FOREIGN_ARCHITECTURE);
    for identity in identities(&profile.architectures).into_iter().rev() {
        let ranges = ranges(profile, identity);
        let search = lay_search(&mut assembler, &ranges, &mut laid);
        let part = assembler.load_word(NUMBER_OFFSET, search);
        otherwise = assembler.test(
            Test::Equal,
            identity.audit_value(),
            Targets { yes: part, no: otherwise },
        );
    }
    assembler.load_word(ARCHITECTURE_OFFSET, otherwise);
    let instructions = assembler.finish();
    if instructions.len() > INSTRUCTION_LIMIT {
        return Err(CompileError::TooLong(instructions.len()));
    }
    Ok(Program { instructions, unknown_syscalls: unknown_syscalls(profile) })
}

fn check(profile: &Profile) -> Result<(), CompileError> {
    if profile.architectures.is_empty() {
        return Err(CompileError::NoArchitecture);
    }
    let actions = profile.rules.iter().map(|rule| rule.action);
    for action in actions.chain([profile.default_action]) {
        if let Action::Errno(number) = action
            && number > ERRNO_LIMIT
        {
            return Err(CompileError::Errno(number));
        }
    }
    for (index, rule) in profile.rules.iter().enumerate() {
        for Condition { argument, .. } in &rule.conditions {
            if *argument >= ARGUMENT_COUNT {
                return Err(CompileError::Argument { rule: index, argument: *argument });
            }
        }
    }
    Ok(())
}

fn unknown_syscalls(profile: &Profile) -> Vec<String> {
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
enum Identity {
    X86_64 { plain: bool, x32: bool },
    X86,
    Aarch64,
}

impl Identity {
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
fn identities(named: &[Architecture]) -> Vec<Identity> {
    let has = |architecture| named.contains(&architecture);
    let (plain, x32) = (has(Architecture::X86_64), has(Architecture::X32));
    let mut identities = Vec::new();
    if plain || x32 {
        identities.push(Identity::X86_64 { plain, x32 });
    }
    if has(Architecture::Aarch64) {
        identities.push(Identity::Aarch64);
    }
    if has(Architecture::X86) {
        identities.push(Identity::X86);
    }
    identities
}

/// What happens to a call: conditional cases in order, then the unconditional action.
#[derive(Debug, Clone, PartialEq)]
struct Fate<'a> {
    conditional: Vec<Case<'a>>,
    otherwise: Action,
}

/// Conditions that must all hold, and the action.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Case<'a> {
    conditions: &'a [Condition],
    action: Action,
}

impl<'a> Case<'a> {
    /// A rule that names an argument twice is a case for each of its conditions: libseccomp, which
    /// other runtimes use, takes one condition per argument, so they add such a rule once for each.
    ///
    /// upstream: opencontainers/runc libcontainer/seccomp/seccomp_linux.go (matchCall)
    fn of(rule: &'a Rule) -> Vec<Self> {
        let conditions = rule.conditions.as_slice();
        let repeats = conditions.iter().enumerate().any(|(index, one)| {
            conditions[..index].iter().any(|earlier| earlier.argument == one.argument)
        });
        let case = |conditions| Self { conditions, action: rule.action };
        if repeats { conditions.chunks(1).map(case).collect() } else { vec![case(conditions)] }
    }
}

impl Fate<'_> {
    fn always(action: Action) -> Self {
        Self { conditional: Vec::new(), otherwise: action }
    }
}

/// The verdicts by the first number they hold for, each up to the next; neighbours differ.
fn ranges(profile: &Profile, identity: Identity) -> Vec<(u32, Fate<'_>)> {
    let mut starts = BTreeMap::from([(0, Fate::always(profile.default_action))]);
    if let Identity::X86_64 { plain, x32 } = identity {
        if !plain {
            starts.insert(0, Fate::always(FOREIGN_ARCHITECTURE));
        }
        let marked = if x32 { profile.default_action } else { FOREIGN_ARCHITECTURE };
        starts.insert(X32_BIT, Fate::always(marked));
        starts.insert(SKIPPED_CALL, Fate::always(profile.default_action));
    }
    for (number, fate) in named_calls(profile, identity) {
        let before = starts.range(..=number).next_back().map(|(_, fate)| fate.clone());
        let after = before.unwrap_or_else(|| Fate::always(profile.default_action));
        // The range that the call was cut out of continues behind it.
        starts.entry(number + 1).or_insert(after);
        starts.insert(number, fate);
    }
    let mut ranges: Vec<(u32, Fate<'_>)> = starts.into_iter().collect();
    ranges.dedup_by(|next, previous| next.1 == previous.1);
    ranges
}

fn named_calls(profile: &Profile, identity: Identity) -> BTreeMap<u32, Fate<'_>> {
    let mut calls: BTreeMap<u32, Vec<Case<'_>>> = BTreeMap::new();
    for rule in &profile.rules {
        let cases = Case::of(rule);
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
            (number, Fate { conditional, otherwise })
        })
        .collect()
}

/// Emits the search for the range that holds the number in the accumulator.
fn lay_search<'a>(
    assembler: &mut Assembler,
    ranges: &[(u32, Fate<'a>)],
    laid: &mut Vec<(Fate<'a>, Label)>,
) -> Label {
    match ranges {
        [] => assembler.verdict(FOREIGN_ARCHITECTURE),
        [(_, fate)] => lay_fate(assembler, fate, laid),
        _ => {
            let (low, high) = ranges.split_at(ranges.len() / 2);
            let yes = lay_search(assembler, high, laid);
            let no = lay_search(assembler, low, laid);
            assembler.test(Test::GreaterOrEqual, high[0].0, Targets { yes, no })
        }
    }
}

fn lay_fate<'a>(
    assembler: &mut Assembler,
    fate: &Fate<'a>,
    laid: &mut Vec<(Fate<'a>, Label)>,
) -> Label {
    if let Some((_, label)) = laid.iter().find(|(known, _)| known == fate) {
        return *label;
    }
    let mut next = assembler.verdict(fate.otherwise);
    for case in fate.conditional.iter().rev() {
        let mut matched = assembler.verdict(case.action);
        for condition in case.conditions.iter().rev() {
            matched = lay_condition(assembler, *condition, Targets { yes: matched, no: next });
        }
        next = matched;
    }
    laid.push((fate.clone(), next));
    next
}

/// Emits the comparison of a 64-bit argument as two of its 32-bit halves.
fn lay_condition(assembler: &mut Assembler, condition: Condition, targets: Targets) -> Label {
    let halves = Halves::of(condition.argument);
    match condition.comparison {
        Comparison::Equal(value) => halves.lay_equal(assembler, value, None, targets),
        Comparison::NotEqual(value) => halves.lay_equal(assembler, value, None, targets.swapped()),
        Comparison::MaskedEqual { mask, value } => {
            halves.lay_equal(assembler, value, Some(mask), targets)
        }
        Comparison::Greater(value) => halves.lay_order(assembler, Test::Greater, value, targets),
        Comparison::GreaterOrEqual(value) => {
            halves.lay_order(assembler, Test::GreaterOrEqual, value, targets)
        }
        Comparison::LessOrEqual(value) => {
            halves.lay_order(assembler, Test::Greater, value, targets.swapped())
        }
        Comparison::Less(value) => {
            halves.lay_order(assembler, Test::GreaterOrEqual, value, targets.swapped())
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

    fn lay_equal(
        self,
        assembler: &mut Assembler,
        value: u64,
        mask: Option<u64>,
        targets: Targets,
    ) -> Label {
        let [low, high] = split(value);
        let masks = mask.map(split);
        let compared = assembler.test(Test::Equal, low, targets);
        let masked = masks.map_or(compared, |[low, _]| assembler.mask(low, compared));
        let yes = assembler.load_word(self.low, masked);
        let compared = assembler.test(Test::Equal, high, Targets { yes, no: targets.no });
        let masked = masks.map_or(compared, |[_, high]| assembler.mask(high, compared));
        assembler.load_word(self.high, masked)
    }

    /// `test` decides on the low halves; a greater high half decides alone.
    fn lay_order(
        self,
        assembler: &mut Assembler,
        test: Test,
        value: u64,
        targets: Targets,
    ) -> Label {
        let [low, high] = split(value);
        let compared = assembler.test(test, low, targets);
        let low_half = assembler.load_word(self.low, compared);
        let same = Targets { yes: low_half, no: targets.no };
        let equal = assembler.test(Test::Equal, high, same);
        let greater = Targets { yes: targets.yes, no: equal };
        let compared = assembler.test(Test::Greater, high, greater);
        assembler.load_word(self.high, compared)
    }
}

fn split(value: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}
