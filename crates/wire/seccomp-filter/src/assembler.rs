//! Assembles instructions from the last to the first.
//!
//! Rule: BPF jumps only forward, so a program that is built backwards knows every target when it
//! needs it. A conditional jump reaches 255 instructions; a farther target is reached over a jump
//! instruction right behind it. Equal returns are shared. Does not know system calls.

use std::collections::HashMap;

use crate::profile::SeccompAction;
use crate::program::SeccompInstruction;

const LOAD_WORD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const RETURN: u16 = 0x06;

/// A conditional jump that compares the accumulator with a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum JumpTest {
    Equal = 0x15,
    Greater = 0x25,
    GreaterOrEqual = 0x35,
}

/// An instruction that was emitted already; counted from the end of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// The targets of a conditional jump.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Targets {
    pub(crate) if_true: Label,
    pub(crate) if_false: Label,
}

impl Targets {
    pub(crate) fn swapped(self) -> Self {
        Self { if_true: self.if_false, if_false: self.if_true }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Assembler {
    /// In reverse: the last instruction of the program comes first.
    reversed: Vec<SeccompInstruction>,
    returns: HashMap<SeccompAction, Label>,
}

/// A test and two jumps behind it must fit: 255 less the two jumps.
const MAX_JUMP: usize = 253;

impl Assembler {
    fn push(&mut self, code: u16, operand: u32) -> Label {
        self.push_jump(code, operand, [0, 0])
    }

    fn push_jump(&mut self, code: u16, operand: u32, [jump_true, jump_false]: [u8; 2]) -> Label {
        self.reversed.push(SeccompInstruction { code, jump_true, jump_false, operand });
        Label(self.reversed.len() - 1)
    }

    /// How many instructions the next one would jump over to get there.
    fn distance(&self, target: Label) -> usize {
        self.reversed.len() - target.0 - 1
    }

    pub(crate) fn finish(mut self) -> Vec<SeccompInstruction> {
        self.reversed.reverse();
        self.reversed
    }

    /// Returns an action.
    pub(crate) fn verdict(&mut self, action: SeccompAction) -> Label {
        if let Some(label) = self.returns.get(&action) {
            return *label;
        }
        let label = self.push(RETURN, return_value(action));
        self.returns.insert(action, label);
        label
    }

    /// Loads a word of the call's data, then continues at `next`.
    pub(crate) fn load_word(&mut self, offset: u32, next: Label) -> Label {
        self.fall_through_to(next);
        self.push(LOAD_WORD, offset)
    }

    /// Clears the accumulator's bits that are not in `mask`, then continues at `next`.
    pub(crate) fn mask(&mut self, mask: u32, next: Label) -> Label {
        self.fall_through_to(next);
        self.push(AND, mask)
    }

    pub(crate) fn test(&mut self, test: JumpTest, operand: u32, targets: Targets) -> Label {
        let if_true = self.within_reach(targets.if_true);
        let if_false = self.within_reach(targets.if_false);
        // Both fit: `within_reach` left room for the one jump that may lie between.
        let jump = |distance: usize| u8::try_from(distance).unwrap_or(u8::MAX);
        let offsets = [jump(self.distance(if_true)), jump(self.distance(if_false))];
        self.push_jump(test as u16, operand, offsets)
    }

    /// The target itself if it is near, otherwise a jump to it.
    fn within_reach(&mut self, target: Label) -> Label {
        if self.distance(target) <= MAX_JUMP {
            return target;
        }
        self.step_to(target)
    }

    /// A return is repeated rather than jumped to, which saves an instruction on the path.
    fn step_to(&mut self, target: Label) -> Label {
        let there = self.reversed[target.0];
        if there.code == RETURN {
            return self.push(RETURN, there.operand);
        }
        let distance = self.distance(target);
        // A program has at most 4096 instructions once it is accepted; the operand has 32 bits.
        self.push(JUMP, u32::try_from(distance).unwrap_or(u32::MAX))
    }

    fn fall_through_to(&mut self, next: Label) {
        if self.distance(next) != 0 {
            self.step_to(next);
        }
    }
}

/// The value that a filter returns for an action.
pub(crate) fn return_value(action: SeccompAction) -> u32 {
    match action {
        SeccompAction::KillThread => 0x0000_0000,
        SeccompAction::Trap => 0x0003_0000,
        SeccompAction::Errno(number) => 0x0005_0000 | u32::from(number),
        SeccompAction::Notify => 0x7fc0_0000,
        SeccompAction::Trace(number) => 0x7ff0_0000 | u32::from(number),
        SeccompAction::Log => 0x7ffc_0000,
        SeccompAction::Allow => 0x7fff_0000,
        SeccompAction::KillProcess => 0x8000_0000,
    }
}
