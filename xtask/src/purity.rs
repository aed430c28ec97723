//! Shows that the pure layers' clippy rules bite: each rule gets a planted violation, which
//! clippy must refuse with the reason that stands beside the rule.

#[cfg(test)]
mod tests;
