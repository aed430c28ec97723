//! Whether a toleration matches a taint.
//!
//! An empty key matches every key, an absent effect every effect. Numbers are compared only behind
//! the feature gate, and only if both are in canonical form; anything else matches nothing.
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
    /// An unknown operator; matches nothing.
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

/// A pod's toleration.
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
    /// For how long, in seconds; absent for ever. Zero and less mean not at all.
    pub seconds: Option<i64>,
}

impl Toleration {
    /// Whether it matches this taint.
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

/// A decimal number in canonical form: no plus, no leading zeros, no minus zero.
fn canonical_number(text: &str) -> Option<i64> {
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}
