//! Where the time of a pod's start went: each mark, since the first and since the one before.

use crate::table::Table;
use ports::local_api::LocalPodDetail;

pub(super) fn table(detail: &LocalPodDetail) -> String {
    let Some(first) = detail.marks.first() else {
        return format!(
            "{}/{} has no timeline: it was running before the agent started\n",
            detail.pod.namespace, detail.pod.name
        );
    };
    let mut table = Table::new(&["SINCE START", "STEP", "WHAT", "CONTAINER"]);
    let mut before = first.at;
    for mark in &detail.marks {
        let container = match (mark.container.as_str(), mark.attempt) {
            ("", _) => String::new(),
            (name, 0) => name.to_owned(),
            (name, attempt) => format!("{name} (restart {attempt})"),
        };
        table.row([
            milliseconds(mark.at - first.at),
            format!("+{}", milliseconds(mark.at - before)),
            words(&mark.milestone),
            container,
        ]);
        before = mark.at;
    }
    table.render()
}

fn milliseconds(nanos: i64) -> String {
    let micros = nanos.max(0) / 1_000;
    format!("{}.{:01} ms", micros / 1_000, micros % 1_000 / 100)
}

/// `sandboxRan` for people: `sandbox ran`.
fn words(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    words
}
