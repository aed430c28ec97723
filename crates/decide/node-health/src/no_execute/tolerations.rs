//! Whether a toleration covers a taint.
//!
//! An empty key covers every key, an absent effect every effect. Numbers are compared only behind
//! the gate, and only where both sides are written canonically; anything else covers nothing.
//! upstream: api/core/v1/toleration.go

use pod_model::TaintEffect;

use crate::facts::{Taint, TaintKey};

/// How a toleration compares values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// The values are equal; also what an empty operator means.
    Equal,
    /// Any value.
    Exists,
    /// The taint's number is smaller.
    Lt,
    /// The taint's number is larger.
    Gt,
    /// A word that means nothing to us; covers nothing.
    Other,
}

impl Operator {
    /// Reads an operator.
    pub fn parse(text: &str) -> Self {
        match text {
            "" | "Equal" => Self::Equal,
            "Exists" => Self::Exists,
            "Lt" => Self::Lt,
            "Gt" => Self::Gt,
            _ => Self::Other,
        }
    }
}

/// What a pod bears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toleration {
    /// The taint's key; absent for every key.
    pub key: Option<TaintKey>,
    /// How values are compared.
    pub operator: Operator,
    /// The value to compare with.
    pub value: Box<str>,
    /// The effect; absent for every effect.
    pub effect: Option<TaintEffect>,
    /// For how long, in seconds; absent for ever. Nothing and less mean not at all.
    pub seconds: Option<i64>,
}

impl Toleration {
    /// Whether it covers this taint.
    pub fn tolerates(&self, taint: &Taint, comparisons: bool) -> bool {
        if self.effect.is_some_and(|effect| effect != taint.effect) {
            return false;
        }
        if self.key.as_ref().is_some_and(|key| *key != taint.key) {
            return false;
        }
        match self.operator {
            Operator::Exists => true,
            Operator::Equal => self.value == taint.value,
            Operator::Lt => comparisons && self.compare(taint, |taint, own| taint < own),
            Operator::Gt => comparisons && self.compare(taint, |taint, own| taint > own),
            Operator::Other => false,
        }
    }

    fn compare(&self, taint: &Taint, holds: impl Fn(i64, i64) -> bool) -> bool {
        match (canonical_number(&taint.value), canonical_number(&self.value)) {
            (Some(taint), Some(own)) => holds(taint, own),
            _ => false,
        }
    }
}

/// A decimal number as a person writes it: no plus, no leading zeros, no minus zero.
fn canonical_number(text: &str) -> Option<i64> {
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}
