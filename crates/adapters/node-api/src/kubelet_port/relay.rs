//! Copies bytes between two connections, both ways.
//!
//! Rule: bytes only. The end of one direction is passed on, and the other goes on; an error ends
//! both. Streams end when no byte comes for their idle time, much sooner once one side has ended.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf,
};
use tokio::time::{Instant, sleep_until};

const BUFFER_BYTES: usize = 16 * 1024;
/// For the other direction, once one has ended.
const HALF_CLOSED_IDLE: Duration = Duration::from_secs(60);

/// When a byte came last.
struct LastByte {
    start: Instant,
    millis: AtomicU64,
}

impl LastByte {
    fn now(&self) {
        let millis = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.millis.store(millis, Ordering::Relaxed);
    }

    fn at(&self) -> Instant {
        self.start + Duration::from_millis(self.millis.load(Ordering::Relaxed))
    }

    /// Waits until no byte has come for this long. Zero: for ever.
    async fn idle(&self, limit: Duration) {
        if limit.is_zero() {
            return std::future::pending().await;
        }
        loop {
            let until = self.at() + limit;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}

/// Relays until both sides have ended, one has an error, or they are idle for `idle` (zero: no
/// limit).
pub(super) async fn relay<C, S>(client: C, server: S, idle: Duration)
where
    C: AsyncRead + AsyncWrite,
    S: AsyncRead + AsyncWrite,
{
    let last = LastByte { start: Instant::now(), millis: AtomicU64::new(0) };
    let (client_read, client_write) = tokio::io::split(client);
    let (server_read, server_write) = tokio::io::split(server);
    let mut up = Box::pin(copy(client_read, server_write, &last));
    let mut down = Box::pin(copy(server_read, client_write, &last));
    // An error, like the end of the time, ends the relay: the peers see their connections close.
    let up_ended = tokio::select! {
        ended = &mut up => ended.is_ok().then_some(true),
        ended = &mut down => ended.is_ok().then_some(false),
        () = last.idle(idle) => None,
    };
    last.now();
    match up_ended {
        None => {}
        Some(true) => tokio::select! {
            _ = down => {}
            () = last.idle(HALF_CLOSED_IDLE) => {}
        },
        Some(false) => tokio::select! {
            _ = up => {}
            () = last.idle(HALF_CLOSED_IDLE) => {}
        },
    }
}

async fn copy<R, W>(
    mut reader: ReadHalf<R>,
    mut writer: WriteHalf<W>,
    last: &LastByte,
) -> io::Result<()>
where
    R: AsyncRead,
    W: AsyncWrite,
{
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let length = reader.read(&mut buffer).await?;
        if length == 0 {
            return writer.shutdown().await;
        }
        last.now();
        writer.write_all(buffer.get(..length).unwrap_or_default()).await?;
        writer.flush().await?;
        last.now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{DuplexStream, duplex};
    use tokio::task::JoinHandle;

    fn start(idle: Duration) -> (DuplexStream, DuplexStream, JoinHandle<()>) {
        let (client, client_side) = duplex(1024);
        let (server, server_side) = duplex(1024);
        (client, server, tokio::spawn(relay(client_side, server_side, idle)))
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_one_direction_leaves_the_other_open() {
        let (mut client, mut server, relay) = start(Duration::ZERO);
        client.write_all(b"question").await.expect("writes");
        client.shutdown().await.expect("ends");
        let mut question = String::new();
        server.read_to_string(&mut question).await.expect("reads");
        assert_eq!(question, "question");
        server.write_all(b"answer").await.expect("writes");
        let mut answer = [0; 6];
        client.read_exact(&mut answer).await.expect("reads");
        assert_eq!(&answer, b"answer");
        server.shutdown().await.expect("ends");
        assert_eq!(client.read(&mut answer).await.expect("reads"), 0);
        relay.await.expect("ends");
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_is_gone_ends_the_relay_even_if_the_other_stays_silent() {
        let (client, mut server, relay) = start(Duration::ZERO);
        drop(client);
        let mut byte = [0];
        assert_eq!(server.read(&mut byte).await.expect("reads"), 0);
        relay.await.expect("ends");
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_silent_stream_is_idle() {
        let idle = Duration::from_secs(100);
        let (mut client, mut server, relay) = start(idle);
        let begun = Instant::now();
        let mut byte = [0];
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_secs(90)).await;
            server.write_all(b"x").await.expect("writes");
            client.read_exact(&mut byte).await.expect("reads");
        }
        relay.await.expect("ends");
        assert_eq!(begun.elapsed().as_secs(), 5 * 90 + 100);
        assert_eq!(client.read(&mut byte).await.expect("reads"), 0);
    }

    #[tokio::test]
    async fn many_bytes_both_ways_are_the_same_bytes() {
        let (client, server, relay) = start(Duration::from_secs(60));
        let pattern = |seed: usize| -> Vec<u8> {
            (0..3_000_000_usize).map(|at| ((at / 251) ^ (at * seed)) as u8).collect()
        };
        let (upwards, downwards) = (pattern(3), pattern(7));
        let exchange = |stream: DuplexStream, sent: Vec<u8>| async move {
            let (mut read, mut write) = tokio::io::split(stream);
            let sending = async move {
                write.write_all(&sent).await.expect("writes");
                write.shutdown().await.expect("ends");
            };
            let mut received = Vec::new();
            let (_, result) = tokio::join!(sending, read.read_to_end(&mut received));
            result.expect("reads");
            received
        };
        let (at_client, at_server) =
            tokio::join!(exchange(client, upwards.clone()), exchange(server, downwards.clone()));
        assert!(at_client == downwards && at_server == upwards);
        relay.await.expect("ends");
    }
}
