//! On real sockets: no data is lost, and there are few reads.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

async fn pair(batch_interval: Duration) -> (BatchingSocket, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let address = listener.local_addr().expect("its address");
    let (ours, theirs) = tokio::join!(TcpStream::connect(address), listener.accept());
    let mut socket =
        BatchingSocket::new(ours.expect("a connection"), batch_interval).expect("a timer");
    socket.pauses_from = Instant::now();
    (socket, theirs.expect("its other end").0)
}

#[tokio::test]
async fn bytes_within_a_batch_interval_are_read_together() {
    let (mut socket, mut theirs) = pair(Duration::from_secs(1)).await;
    let sender = tokio::spawn(async move {
        for _ in 0..40 {
            theirs.write_all(b"beat").await.expect("a write");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    let (mut reads, mut all) = (0, 0);
    let mut buffer = [0; 4096];
    loop {
        let count = socket.read(&mut buffer).await.expect("a read");
        if count == 0 {
            break;
        }
        reads += 1;
        all += count;
    }
    sender.await.expect("all is sent");
    assert_eq!(all, 160);
    assert!(reads < 20, "{reads} reads for 40 beats");
}

#[tokio::test]
async fn a_paused_socket_can_be_written_to_and_loses_nothing() {
    let (socket, mut theirs) = pair(Duration::from_millis(5)).await;
    let sent: Vec<u8> = (0..3_000_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    let (mut from, mut to) = tokio::io::split(socket);
    let whole = sent.clone();
    let writer = tokio::spawn(async move {
        to.write_all(&whole).await.expect("a write");
        to.shutdown().await.expect("an end");
    });
    // Echoes what it receives.
    let echo = tokio::spawn(async move {
        let (mut read, mut write) = theirs.split();
        tokio::io::copy(&mut read, &mut write).await.expect("a copy");
        write.shutdown().await.expect("an end");
    });
    let mut back = Vec::new();
    from.read_to_end(&mut back).await.expect("all of it");
    writer.await.expect("written");
    echo.await.expect("echoed");
    assert!(back == sent, "{} of {} bytes", back.len(), sent.len());
}

#[tokio::test]
async fn a_read_after_a_quiet_period_is_not_delayed() {
    let batch_interval = Duration::from_secs(2);
    let (mut socket, mut theirs) = pair(batch_interval).await;
    let mut buffer = [0; 16];
    theirs.write_all(b"one").await.expect("a write");
    assert_eq!(socket.read(&mut buffer).await.expect("a read"), 3);
    // It rests now, and then waits for more.
    let reader = tokio::spawn(async move {
        let count = socket.read(&mut buffer).await.expect("a read");
        (count, Instant::now())
    });
    tokio::time::sleep(batch_interval + Duration::from_millis(200)).await;
    let sent_at = Instant::now();
    theirs.write_all(b"two").await.expect("a write");
    let (count, read) = reader.await.expect("the reader");
    assert_eq!(count, 3);
    assert!(read >= sent_at && read - sent_at < batch_interval, "read {:?} later", read - sent_at);
}
