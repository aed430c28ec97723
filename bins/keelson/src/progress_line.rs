//! Progress of an import or a pull, on one line of a terminal.
//!
//! Rule: only if standard error is a terminal, at most ten times a second, and the line is cleared
//! when the work is done: pipes and logs see nothing of it. Text is pure; one place writes.

use std::collections::HashMap;
use std::io::{IsTerminal as _, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use container_runtime::PullProgress;
use image_store::{Digest, ProgressListener, ProgressStep};
use tokio::sync::watch;

const EVERY: Duration = Duration::from_millis(100);
/// A narrow terminal, so that the line never wraps.
const WIDTH: usize = 78;

/// Bytes in human-readable form.
fn bytes(number: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown with one digit behind the point")]
    let value = number as f64;
    match number {
        0..1_000 => format!("{number} B"),
        1_000..1_000_000 => format!("{:.1} kB", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", value / 1e6),
        _ => format!("{:.2} GB", value / 1e9),
    }
}

/// The text of the line; the name is shortened if there is no room.
fn text(progress: &PullProgress) -> String {
    let mut tail = String::new();
    if progress.total_bytes > progress.bytes {
        tail.push_str(&format!(" {} of {}", bytes(progress.bytes), bytes(progress.total_bytes)));
    } else if progress.bytes > 0 {
        tail.push_str(&format!(" {}", bytes(progress.bytes)));
    }
    if progress.total_layers > 0 {
        tail.push_str(&format!(", layers {}/{}", progress.layers, progress.total_layers));
    }
    let room = WIDTH.saturating_sub(tail.chars().count());
    let name: String = if progress.image.chars().count() > room {
        let skip = progress.image.chars().count() - room.saturating_sub(1);
        std::iter::once('…').chain(progress.image.chars().skip(skip)).collect()
    } else {
        progress.image.clone()
    };
    format!("{name}{tail}")
}

fn write(line: &str) {
    let mut output = std::io::stderr().lock();
    // Back to the line's beginning, and clear it.
    let _ = output.write_all(format!("\r\u{1b}[K{line}").as_bytes());
    let _ = output.flush();
}

/// The progress of one import.
#[derive(Debug)]
pub(crate) struct ProgressLine {
    shown: bool,
    state: Mutex<ProgressState>,
}

#[derive(Debug)]
struct ProgressState {
    progress: PullProgress,
    content: HashMap<Digest, (u64, u64)>,
    last: Option<Instant>,
}

impl ProgressState {
    fn take(&mut self, step: &ProgressStep) {
        match step {
            ProgressStep::Received { digest: Some(digest), done, total } => {
                self.content.insert(*digest, (*done, total.unwrap_or(*done)));
            }
            ProgressStep::Present { digest, bytes } => {
                self.content.insert(*digest, (*bytes, *bytes));
            }
            ProgressStep::Layers { done, of } => {
                (self.progress.layers, self.progress.total_layers) = (*done, *of);
            }
            ProgressStep::Received { digest: None, done, .. } => {
                self.progress.bytes = self.progress.bytes.max(*done);
                return;
            }
            ProgressStep::Unpacking { .. } => return,
        }
        self.progress.bytes = self.content.values().map(|(done, _)| done).sum();
        self.progress.total_bytes = self.content.values().map(|(_, total)| total).sum();
    }
}

impl ProgressLine {
    pub(crate) fn new(name: &str) -> Self {
        let progress = PullProgress { image: name.to_owned(), ..PullProgress::default() };
        let state = ProgressState { progress, content: HashMap::new(), last: None };
        Self { shown: std::io::stderr().is_terminal(), state: Mutex::new(state) }
    }

    fn locked(&self) -> MutexGuard<'_, ProgressState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProgressListener for ProgressLine {
    fn step(&self, step: ProgressStep) {
        let mut state = self.locked();
        state.take(&step);
        if self.shown && state.last.is_none_or(|last| last.elapsed() >= EVERY) {
            state.last = Some(Instant::now());
            write(&text(&state.progress));
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.shown && self.locked().last.is_some() {
            write("");
        }
    }
}

/// Shows the pulls of a runtime until it is gone.
pub(crate) async fn show_pulls(mut pulls: watch::Receiver<Vec<PullProgress>>) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let mut shown = false;
    while pulls.changed().await.is_ok() {
        let line = pulls.borrow_and_update().first().map(text);
        if line.is_some() || shown {
            write(line.as_deref().unwrap_or_default());
        }
        shown = line.is_some();
        tokio::time::sleep(EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_shows_the_progress_and_never_wraps() {
        let of = |bytes, total_bytes, layers, total_layers| PullProgress {
            image: "registry.test/web:1".to_owned(),
            bytes,
            total_bytes,
            layers,
            total_layers,
        };
        for (progress, expected) in [
            (of(0, 0, 0, 0), "registry.test/web:1"),
            (of(999, 999, 0, 0), "registry.test/web:1 999 B"),
            (of(1_500, 2_000_000, 0, 3), "registry.test/web:1 1.5 kB of 2.0 MB, layers 0/3"),
            (of(3_000_000_000, 3_000_000_000, 3, 3), "registry.test/web:1 3.00 GB, layers 3/3"),
        ] {
            assert_eq!(text(&progress), expected);
        }
        let long = PullProgress { image: "x".repeat(200), ..of(1, 2, 1, 2) };
        assert_eq!(text(&long).chars().count(), WIDTH);
        assert!(text(&long).starts_with("…x") && text(&long).ends_with("layers 1/2"));
    }

    #[test]
    fn steps_add_up() {
        let line = ProgressLine::new("it");
        let (one, two) = (Digest::of(b"1"), Digest::of(b"2"));
        for step in [
            ProgressStep::Received { digest: Some(one), done: 5, total: Some(10) },
            ProgressStep::Present { digest: two, bytes: 7 },
            ProgressStep::Received { digest: Some(one), done: 10, total: Some(10) },
            ProgressStep::Unpacking { diff_id: one, done: 3 },
            ProgressStep::Layers { done: 1, of: 2 },
        ] {
            line.step(step);
        }
        let progress = line.locked().progress.clone();
        assert_eq!((progress.bytes, progress.total_bytes), (17, 17));
        assert_eq!((progress.layers, progress.total_layers), (1, 2));
    }
}
