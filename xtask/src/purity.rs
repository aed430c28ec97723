//! Checks that the pure layers' clippy rules work: each rule gets a planted violation, which clippy
//! must reject with the reason that is written beside the rule.

#[cfg(test)]
mod tests;
