//! Regular looks around, and when one is over.
//!
//! Rule: told after a round has done what it found to do, so that a process that is otherwise at rest
//! can give back what the round needed. Telling is quick and waits for nothing.

pub trait Rounds: Send + Sync {
    fn ended(&self);
}
