//! Verbs for daily work.

fn main() {}
