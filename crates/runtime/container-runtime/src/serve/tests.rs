//! Connections that cannot be accepted.

use std::cell::Cell;
use std::time::Instant;

use super::*;

/// Refuses some times, as where no descriptor is left, and then gives a connection.
struct Exhausted {
    refusals: Cell<u32>,
    tries: Cell<u32>,
}

impl Accept for Exhausted {
    fn poll_accept(&self, _: &mut Context<'_>) -> Poll<std::io::Result<UnixStream>> {
        self.tries.set(self.tries.get() + 1);
        let Some(left) = self.refusals.get().checked_sub(1) else {
            return Poll::Ready(UnixStream::pair().map(|(ours, _)| ours));
        };
        self.refusals.set(left);
        Poll::Ready(Err(rustix::io::Errno::MFILE.into()))
    }
}

#[tokio::test]
async fn a_failed_accept_is_tried_again_after_a_pause() {
    let listener = Exhausted { refusals: Cell::new(3), tries: Cell::new(0) };
    let mut incoming = Incoming::new(listener);
    let begun = Instant::now();
    let first = std::future::poll_fn(|context| Pin::new(&mut incoming).poll_next(context)).await;
    assert!(matches!(first, Some(Ok(_))), "a failed accept ends nothing");
    assert_eq!(incoming.listener.tries.get(), 4);
    assert!(begun.elapsed() >= 3 * PAUSE, "{:?}", begun.elapsed());
}
