//! The host user that is root in a container. Pure.

/// The host id of container id 0, from the text of `/proc/PID/uid_map`; None if it is not mapped.
pub(super) fn root_outside(text: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(0)), Some(Ok(outside)), Some(Ok(length))) if length > 0 => Some(outside),
            _ => None,
        }
    })
}
