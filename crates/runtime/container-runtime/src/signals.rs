//! Signals by name and number. Pure.

use cri_wire::v1;

pub(crate) const TERMINATE: i32 = 15;

/// By number; 32 and 33 belong to the C library.
const NAMES: [(&str, i32); 33] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("IOT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("CHLD", 17),
    ("CLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("POLL", 29),
    ("PWR", 30),
];
const FIRST_REALTIME: i32 = 34;
const LAST: i32 = 64;

/// `SIGTERM`, `TERM`, `15`, `RTMIN+3`.
pub(crate) fn number(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse::<i32>() {
        return (1..=LAST).contains(&number).then_some(number);
    }
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    if name == "SYS" {
        return Some(31);
    }
    if let Some((_, number)) = NAMES.iter().find(|(known, _)| *known == name) {
        return Some(*number);
    }
    let offset = |text: &str, base: i32, sign: i32| {
        let digits = text.trim_start_matches(['+', '-']);
        let offset = if digits.is_empty() { 0 } else { digits.parse::<i32>().ok()? };
        Some(base + sign * offset).filter(|number| (FIRST_REALTIME..=LAST).contains(number))
    };
    if let Some(rest) = name.strip_prefix("RTMIN") {
        return offset(rest, FIRST_REALTIME, 1);
    }
    name.strip_prefix("RTMAX").and_then(|rest| offset(rest, LAST, -1))
}

/// CRI's names spell the sign out: `SIGRTMINPLUS3`.
fn of_cri(signal: v1::Signal) -> Option<i32> {
    let name = signal.as_str_name().replace("PLUS", "+").replace("MINUS", "-");
    number(&name)
}

/// CRI's signal for a number, for statuses.
pub(crate) fn to_cri(wanted: i32) -> v1::Signal {
    (1..=65)
        .filter_map(|code| v1::Signal::try_from(code).ok())
        .find(|signal| of_cri(*signal) == Some(wanted))
        .unwrap_or(v1::Signal::RuntimeDefault)
}

/// A container's stop signal: the caller's, or the image's, or SIGTERM.
pub(crate) fn of_stop(wanted: v1::Signal, of_image: &str) -> i32 {
    of_cri(wanted).or_else(|| number(of_image)).unwrap_or(TERMINATE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_by_name_and_number() {
        for (text, expected) in [
            ("SIGTERM", Some(15)),
            ("term", Some(15)),
            ("9", Some(9)),
            ("SIGRTMIN+3", Some(37)),
            ("RTMAX-1", Some(63)),
            ("SIGSYS", Some(31)),
            ("SIGRTMIN", Some(34)),
            ("0", None),
            ("65", None),
            ("RTMIN+99", None),
            ("SIGNOTHING", None),
            ("", None),
        ] {
            assert_eq!(number(text), expected, "{text:?}");
        }
    }

    #[test]
    fn the_callers_signal_wins() {
        assert_eq!(of_stop(v1::Signal::Sigusr1, "SIGINT"), 10);
        assert_eq!(of_stop(v1::Signal::RuntimeDefault, "SIGINT"), 2);
        assert_eq!(of_stop(v1::Signal::RuntimeDefault, "nonsense"), 15);
        assert_eq!(of_stop(v1::Signal::Sigrtminplus3, ""), 37);
        assert_eq!(to_cri(37), v1::Signal::Sigrtminplus3);
        assert_eq!(to_cri(15), v1::Signal::Sigterm);
    }
}
