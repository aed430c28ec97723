//! Port-forward clients on real connections, to a pod that is this host.

use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::streams::tests::pair;

const LONG: Duration = Duration::from_secs(20);

fn dialer() -> PodDialer {
    PodDialer { sandbox: "pod".to_owned(), namespace: None }
}

/// A client's streams for a port.
fn opened(encoder: &mut SpdyEncoder, id: u32, port: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, stream) in [("error", 4 * id + 1), ("data", 4 * id + 3)] {
        let (port, id) = (port.to_string(), id.to_string());
        let headers = [("streamtype", kind), ("port", &port), ("requestid", &id)];
        let headers = Headers::new(headers);
        encoder.write(&SpdyFrame::Open { stream, headers, end: false }, &mut bytes).unwrap();
    }
    bytes
}

struct Forwarded {
    client: TcpStream,
    encoder: SpdyEncoder,
    pod: TcpStream,
    session: tokio::task::JoinHandle<()>,
}

/// One connection through a client's session.
async fn forwarded() -> Forwarded {
    let (socket, mut client) = pair().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let session = tokio::spawn(over_spdy(dialer(), socket));
    let mut encoder = SpdyEncoder::default();
    let port = listener.local_addr().unwrap().port();
    client.write_all(&opened(&mut encoder, 0, port)).await.unwrap();
    let (mut pod, _) =
        tokio::time::timeout(LONG, listener.accept()).await.expect("it comes").unwrap();
    let mut bytes = Vec::new();
    let hello = SpdyFrame::Data { stream: 3, bytes: b"hello".to_vec(), end: false };
    encoder.write(&hello, &mut bytes).unwrap();
    client.write_all(&bytes).await.unwrap();
    let mut received = [0; 5];
    pod.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"hello");
    Forwarded { client, encoder, pod, session }
}

#[tokio::test]
async fn connections_into_a_pod_end_with_the_client() {
    let Forwarded { client, mut pod, session, .. } = forwarded().await;
    drop(client);
    // The pod itself neither sends nor closes anything.
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(LONG, pod.read_to_end(&mut rest)).await;
    let _ = ended.expect("the pod's connection ends, too");
    tokio::time::timeout(LONG, session).await.expect("an end").unwrap();
}

/// A pod reads nothing: the data accepted from its client is limited, and its disconnect is
/// detected.
#[tokio::test]
async fn unread_input_of_a_pod_is_buffered_up_to_a_limit() {
    let Forwarded { mut client, mut encoder, pod, session } = forwarded().await;
    let mut one = Vec::new();
    let frame = SpdyFrame::Data { stream: 3, bytes: vec![b'x'; 1 << 20], end: false };
    encoder.write(&frame, &mut one).unwrap();
    let (mut sent, mut at) = (0, 0);
    while sent < 128 << 20 {
        match tokio::time::timeout(Duration::from_secs(1), client.write(&one[at..])).await {
            Ok(written) => {
                let written = written.unwrap();
                sent += written;
                at = (at + written) % one.len();
            }
            Err(_) => break,
        }
    }
    // The kernel's buffers of the two connections come on top.
    assert!(sent < 48 << 20, "{sent} bytes were taken of a client for nobody");
    // Reset at once, dropping unsent data.
    rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
    drop(client);
    tokio::time::timeout(LONG, session).await.expect("an end").unwrap();
    drop(pod);
}

/// The older protocol: an invalid message ends the connection, and the client's disconnect ends
/// all.
#[tokio::test]
async fn channels_end_with_the_client_or_a_protocol_error() {
    use stream_frames::channels::WEBSOCKET_PROTOCOLS;
    for mistake in [false, true] {
        let (socket, mut client) = pair().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ports = [i32::from(listener.local_addr().unwrap().port())];
        let session = tokio::spawn(async move {
            over_websocket(dialer(), &ports, WEBSOCKET_PROTOCOLS[1], socket).await;
        });
        let accepted = tokio::time::timeout(LONG, listener.accept()).await.expect("it comes");
        let (mut pod, _) = accepted.unwrap();
        if mistake {
            // Not masked.
            client.write_all(&[0x82, 1, 0]).await.unwrap();
        } else {
            drop(client);
        }
        let ended = tokio::time::timeout(LONG, pod.read_to_end(&mut Vec::new())).await;
        let _ = ended.expect("the pod's connection ends, too");
        tokio::time::timeout(LONG, session).await.expect("an end").unwrap();
    }
}

/// Such ids in as many streams as a client may open would take a gigabyte.
#[test]
fn a_pair_with_an_endless_id_is_refused_and_not_kept() {
    let mut pairs = HashMap::new();
    let mut open = |length: usize| {
        let id = "i".repeat(length);
        let headers =
            Headers::new([("streamtype", "data"), ("port", "80"), ("requestid", id.as_str())]);
        (place(&mut pairs, 1, &headers), pairs.len())
    };
    assert_eq!(open(MAX_ID_LENGTH + 1), (None, 0));
    assert_eq!(open(MAX_ID_LENGTH), (Some(None), 1));
}
