//! Programs behave as their profiles, by example and compared with plain evaluation.

mod evaluation;
mod interpreter;

use proptest::prelude::*;

use super::{CompileError, compile};
use crate::assembler::return_value;
use crate::profile::{
    Architecture, ArgumentComparison, ArgumentCondition, SeccompAction, SeccompProfile, SyscallRule,
};
use crate::program::{BpfProgram, INSTRUCTION_LIMIT};
use evaluation::{TestSyscall, evaluate};
use interpreter::{check_as_the_kernel_does, run};

const X86_64: u32 = 0xc000_003e;
const X86: u32 = 0x4000_0003;
const AARCH64: u32 = 0xc000_00b7;

fn rule(syscalls: &[&str], action: SeccompAction, conditions: &[ArgumentCondition]) -> SyscallRule {
    let syscalls = syscalls.iter().map(ToString::to_string).collect();
    SyscallRule { syscalls, action, conditions: conditions.to_vec() }
}

fn on(argument: u8, comparison: ArgumentComparison) -> ArgumentCondition {
    ArgumentCondition { argument, comparison }
}

fn profile(
    default_action: SeccompAction,
    architectures: &[Architecture],
    rules: Vec<SyscallRule>,
) -> SeccompProfile {
    SeccompProfile { default_action, architectures: architectures.to_vec(), rules, flags: None }
}

fn call(identity: u32, number: u32, arguments: [u64; 6]) -> TestSyscall {
    TestSyscall { identity, number, arguments }
}

fn verdict(program: &BpfProgram, call: &TestSyscall) -> u32 {
    run(program.instructions(), call).verdict
}

#[test]
fn foreign_architectures_and_x32_numbers_are_killed() {
    let read = rule(&["read"], SeccompAction::Allow, &[]);
    let allow_read = profile(SeccompAction::Errno(1), &[Architecture::X86_64], vec![read]);
    let program = compile(&allow_read).expect("compiles");
    let gives = |identity, number| verdict(&program, &call(identity, number, [0; 6]));
    assert_eq!(gives(X86_64, 0), return_value(SeccompAction::Allow));
    assert_eq!(gives(X86_64, 1), return_value(SeccompAction::Errno(1)));
    assert_eq!(gives(X86_64, 0x4000_0000), return_value(SeccompAction::KillProcess), "read of x32");
    assert_eq!(gives(X86_64, u32::MAX), return_value(SeccompAction::Errno(1)), "a skipped call");
    assert_eq!(gives(X86, 3), return_value(SeccompAction::KillProcess));
    assert_eq!(gives(AARCH64, 63), return_value(SeccompAction::KillProcess));
    assert_eq!(gives(0, 0), return_value(SeccompAction::KillProcess));
}

#[test]
fn a_syscall_name_resolves_per_architecture() {
    let all = [Architecture::X86_64, Architecture::X86, Architecture::X32, Architecture::Aarch64];
    let allow_read =
        profile(SeccompAction::Trap, &all, vec![rule(&["read"], SeccompAction::Allow, &[])]);
    let program = compile(&allow_read).expect("compiles");
    for (identity, number) in [(X86_64, 0), (X86_64, 0x4000_0000), (X86, 3), (AARCH64, 63)] {
        let allowed = return_value(SeccompAction::Allow);
        assert_eq!(verdict(&program, &call(identity, number, [0; 6])), allowed);
        let trapped = return_value(SeccompAction::Trap);
        assert_eq!(verdict(&program, &call(identity, number + 1000, [0; 6])), trapped);
    }
}

#[test]
fn the_first_matching_rule_decides() {
    let rules = vec![
        rule(&["read"], SeccompAction::Errno(9), &[on(0, ArgumentComparison::Equal(7))]),
        rule(&["read"], SeccompAction::Allow, &[]),
        rule(&["read"], SeccompAction::KillThread, &[on(0, ArgumentComparison::Equal(8))]),
    ];
    let program =
        compile(&profile(SeccompAction::Trap, &[Architecture::X86_64], rules)).expect("compiles");
    let gives = |argument| verdict(&program, &call(X86_64, 0, [argument, 0, 0, 0, 0, 0]));
    assert_eq!(gives(7), return_value(SeccompAction::Errno(9)));
    assert_eq!(gives(8), return_value(SeccompAction::Allow), "an earlier rule has decided");
}

#[test]
fn a_rule_with_two_conditions_on_an_argument_matches_if_either_holds() {
    let above = on(0, ArgumentComparison::GreaterOrEqual(10));
    let below = on(0, ArgumentComparison::LessOrEqual(5));
    let other = on(1, ArgumentComparison::Equal(1));
    let gives = |conditions: &[ArgumentCondition], first, second| {
        let rules = vec![rule(&["read"], SeccompAction::Errno(1), conditions)];
        let native = [Architecture::X86_64];
        let program = compile(&profile(SeccompAction::Allow, &native, rules)).expect("compiles");
        verdict(&program, &call(X86_64, 0, [first, second, 0, 0, 0, 0]))
    };
    let (denied, allowed) =
        (return_value(SeccompAction::Errno(1)), return_value(SeccompAction::Allow));
    for (first, second, expected) in [(3, 0, denied), (12, 0, denied), (7, 0, allowed)] {
        assert_eq!(gives(&[above, below], first, second), expected, "{first}");
    }
    // Then every condition is a rule of its own, also those on other arguments.
    assert_eq!(gives(&[above, other, below], 7, 1), denied);
    assert_eq!(gives(&[above, other, below], 7, 2), allowed);
    // Without a repeated argument all must hold.
    assert_eq!(gives(&[above, other], 12, 1), denied);
    assert_eq!(gives(&[above, other], 12, 0), allowed);
    assert_eq!(gives(&[above, other], 7, 1), allowed);
}

#[test]
fn comparisons_look_at_all_64_bits() {
    let value = 0x0000_0005_8000_0000_u64;
    let around = [
        0,
        value - 1,
        value,
        value + 1,
        0x8000_0000,
        0x0000_0004_ffff_ffff,
        0x0000_0006_0000_0000,
        0x0000_0006_8000_0000,
        u64::MAX,
    ];
    let comparisons = [
        ArgumentComparison::Equal(value),
        ArgumentComparison::NotEqual(value),
        ArgumentComparison::Less(value),
        ArgumentComparison::LessOrEqual(value),
        ArgumentComparison::Greater(value),
        ArgumentComparison::GreaterOrEqual(value),
        ArgumentComparison::MaskedEqual { mask: 0xf_8000_0000, value },
        ArgumentComparison::MaskedEqual { mask: 0, value: 0 },
        ArgumentComparison::MaskedEqual { mask: 1, value: 2 },
    ];
    for comparison in comparisons {
        for argument in 0..6u8 {
            let rules = vec![rule(&["read"], SeccompAction::Allow, &[on(argument, comparison)])];
            let wanted = profile(SeccompAction::Trap, &[Architecture::X86_64], rules);
            let program = compile(&wanted).expect("compiles");
            for tried in around {
                let mut arguments = [0xdead_beef_dead_beef; 6];
                arguments[usize::from(argument)] = tried;
                let call = call(X86_64, 0, arguments);
                let expected = return_value(evaluate(&wanted, &call));
                assert_eq!(verdict(&program, &call), expected, "{comparison:?} {tried:#x}");
            }
        }
    }
}

/// Many different rules with conditions: more than 255 instructions between a test and its target.
fn long_profile(rules: u16) -> SeccompProfile {
    let names = ["read", "write", "close", "openat", "mmap", "ioctl", "socket", "clone"];
    let rules = (0..rules)
        .map(|index| {
            let name = names[usize::from(index) % names.len()];
            let condition = on((index % 6) as u8, ArgumentComparison::Equal(u64::from(index)));
            rule(&[name], SeccompAction::Errno(index), &[condition])
        })
        .collect();
    profile(SeccompAction::Allow, &[Architecture::X86_64, Architecture::Aarch64], rules)
}

#[test]
fn long_programs_reach_every_verdict() {
    let wanted = long_profile(400);
    let program = compile(&wanted).expect("fits");
    assert!(program.instructions().len() > 2_000, "{}", program.instructions().len());
    check_as_the_kernel_does(program.instructions());
    for number in 0..70 {
        for value in 0..400 {
            let call = call(X86_64, number, [value; 6]);
            assert_eq!(verdict(&program, &call), return_value(evaluate(&wanted, &call)));
        }
    }
}

#[test]
fn invalid_profiles_are_refused() {
    let refused = |profile: &SeccompProfile| compile(profile).expect_err("refused");
    assert_eq!(
        refused(&profile(SeccompAction::Allow, &[], Vec::new())),
        CompileError::NoArchitecture
    );
    let one = [Architecture::X86_64];
    let sixth = vec![
        rule(&["read"], SeccompAction::Allow, &[]),
        rule(&["read"], SeccompAction::Allow, &[on(6, ArgumentComparison::Equal(0))]),
    ];
    let expected = CompileError::Argument { rule: 1, argument: 6 };
    assert_eq!(refused(&profile(SeccompAction::Allow, &one, sixth)), expected);
    let large = profile(SeccompAction::Errno(4096), &one, Vec::new());
    assert_eq!(refused(&large), CompileError::Errno(4096));
    let CompileError::TooLong(length) = refused(&long_profile(1_000)) else {
        panic!("too long expected")
    };
    assert!(length > INSTRUCTION_LIMIT);
}

#[test]
fn unknown_names_are_reported_once_and_have_no_effect() {
    let names = ["raed", "open", "raed", "socketcall"];
    let rules = vec![rule(&names, SeccompAction::KillProcess, &[])];
    let one = [Architecture::X86_64];
    let program = compile(&profile(SeccompAction::Allow, &one, rules)).expect("compiles");
    assert_eq!(program.unknown_syscalls(), ["raed", "socketcall"]);
    let empty = compile(&profile(SeccompAction::Allow, &one, Vec::new())).expect("compiles");
    let number = 102;
    let socketcall = call(X86_64, number, [0; 6]);
    assert_eq!(verdict(&program, &socketcall), verdict(&empty, &socketcall));
}

#[test]
fn a_large_profile_is_decided_in_few_steps() {
    // As a runtime's default profile: a few hundred calls allowed, the others not.
    let every_other: Vec<&str> =
        crate::syscalls::syscall_names(Architecture::X86_64).step_by(2).collect();
    let rules = vec![rule(&every_other, SeccompAction::Allow, &[])];
    let program = compile(&profile(SeccompAction::Errno(1), &[Architecture::X86_64], rules))
        .expect("compiles");
    let longest =
        (0..500).map(|number| run(program.instructions(), &call(X86_64, number, [0; 6])).steps);
    let longest = longest.max().unwrap_or(0);
    assert!(longest <= 16, "{longest} steps");
}

fn comparison() -> impl Strategy<Value = ArgumentComparison> {
    // Values that share halves, so that equal halves meet often.
    let value = prop_oneof![
        Just(0u64),
        Just(1),
        Just(u64::from(u32::MAX)),
        Just(1 << 32),
        Just((1 << 32) + 1),
        Just(u64::MAX),
        any::<u64>()
    ];
    (0..7u8, value, any::<u64>()).prop_map(|(kind, value, mask)| match kind {
        0 => ArgumentComparison::Equal(value),
        1 => ArgumentComparison::NotEqual(value),
        2 => ArgumentComparison::Less(value),
        3 => ArgumentComparison::LessOrEqual(value),
        4 => ArgumentComparison::Greater(value),
        5 => ArgumentComparison::GreaterOrEqual(value),
        _ => ArgumentComparison::MaskedEqual { mask, value: value & mask },
    })
}

fn action() -> impl Strategy<Value = SeccompAction> {
    prop_oneof![
        Just(SeccompAction::Allow),
        (0..=4095u16).prop_map(SeccompAction::Errno),
        Just(SeccompAction::KillProcess),
        Just(SeccompAction::KillThread),
        Just(SeccompAction::Trap),
        Just(SeccompAction::Log),
        any::<u16>().prop_map(SeccompAction::Trace),
        Just(SeccompAction::Notify),
    ]
}

fn any_rule() -> impl Strategy<Value = SyscallRule> {
    let names = [
        "read",
        "write",
        "open",
        "openat",
        "clone",
        "clone3",
        "socketcall",
        "rt_sigaction",
        "getcwd",
        "uname",
        "futex",
        "no_such_call",
        "readv",
        "file_setattr",
    ];
    let condition = (0..6u8, comparison())
        .prop_map(|(argument, comparison)| ArgumentCondition { argument, comparison });
    (
        proptest::sample::subsequence(names.to_vec(), 0..=names.len()),
        action(),
        proptest::collection::vec(condition, 0..4),
    )
        .prop_map(|(names, action, conditions)| rule(&names, action, &conditions))
}

fn any_profile() -> impl Strategy<Value = SeccompProfile> {
    let all = [Architecture::X86_64, Architecture::X86, Architecture::X32, Architecture::Aarch64];
    (
        action(),
        proptest::sample::subsequence(all.to_vec(), 1..=4),
        proptest::collection::vec(any_rule(), 0..12),
    )
        .prop_map(|(default_action, architectures, rules)| {
            profile(default_action, &architectures, rules)
        })
}

fn any_call() -> impl Strategy<Value = TestSyscall> {
    let identity = prop_oneof![Just(X86_64), Just(X86), Just(AARCH64), any::<u32>()];
    let number = prop_oneof![
        8 => 0..480u32,
        4 => (0..600u32).prop_map(|number| number | 0x4000_0000),
        1 => Just(u32::MAX),
        1 => any::<u32>(),
    ];
    let argument = prop_oneof![
        Just(0u64),
        Just(1),
        Just(u64::from(u32::MAX)),
        Just(1 << 32),
        Just(u64::MAX),
        any::<u64>()
    ];
    (identity, number, proptest::array::uniform6(argument))
        .prop_map(|(identity, number, arguments)| call(identity, number, arguments))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn compiled_programs_match_their_profiles(
        profile in any_profile(),
        calls in proptest::collection::vec(any_call(), 64),
    ) {
        let program = compile(&profile).expect("small enough");
        check_as_the_kernel_does(program.instructions());
        for call in calls {
            prop_assert_eq!(
                verdict(&program, &call),
                return_value(evaluate(&profile, &call)),
                "{:?}", call
            );
        }
    }
}
