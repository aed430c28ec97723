//! The host user ID of a container's root user. Pure.

/// The host ID that container ID 0 maps to, by the text of `/proc/PID/uid_map`; `None` if it is not
/// mapped.
pub(super) fn root_outside(text: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(0)), Some(Ok(host_id)), Some(Ok(length))) if length > 0 => Some(host_id),
            _ => None,
        }
    })
}
