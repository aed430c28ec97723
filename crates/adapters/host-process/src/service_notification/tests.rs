//! The environment's variables, and messages on real datagram sockets.

use super::*;
use std::time::Duration;

fn watchdog(usec: &str, pid: &str) -> ServiceEnvironment {
    ServiceEnvironment {
        notify_socket: None,
        watchdog_usec: (!usec.is_empty()).then(|| usec.into()),
        watchdog_pid: (!pid.is_empty()).then(|| pid.into()),
    }
}

#[test]
fn the_watchdog_is_on_only_for_the_process_it_names() {
    let two_seconds = Some(Duration::from_secs(2));
    assert_eq!(watchdog("", "").watchdog(7), Ok(None));
    assert_eq!(watchdog("", "7").watchdog(7), Ok(None));
    assert_eq!(watchdog("2000000", "").watchdog(7), Ok(two_seconds));
    assert_eq!(watchdog("2000000", "7").watchdog(7), Ok(two_seconds));
    assert_eq!(watchdog("2000000", "8").watchdog(7), Ok(None));
}

#[test]
fn a_watchdog_that_cannot_be_served_is_an_error() {
    for text in ["0", "-5", "soon", "1e6"] {
        let error = watchdog(text, "").watchdog(7).unwrap_err();
        assert_eq!(error, ServiceEnvironmentError::Interval(text.into()));
    }
    let error = watchdog("1000000", "").watchdog(7).unwrap_err();
    assert_eq!(error, ServiceEnvironmentError::TooShort("1000000".into()));
    assert!(watchdog("1000001", "").watchdog(7).unwrap().is_some());
    let error = watchdog("2000000", "me").watchdog(7).unwrap_err();
    assert_eq!(error, ServiceEnvironmentError::Pid("me".into()));
}

fn environment(socket: &str) -> ServiceEnvironment {
    ServiceEnvironment { notify_socket: Some(socket.into()), ..Default::default() }
}

fn received(socket: &UnixDatagram) -> String {
    let mut buffer = [0_u8; 256];
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let length = socket.recv(&mut buffer).unwrap();
    String::from_utf8(buffer[..length].to_vec()).unwrap()
}

#[test]
fn messages_arrive_on_a_path_and_on_an_abstract_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let by_path = UnixDatagram::bind(&path).unwrap();
    let abstract_name = format!("keelson-notification-test-{}", std::process::id());
    let by_name =
        UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&abstract_name).unwrap()).unwrap();
    for (listener, name) in
        [(by_path, path.to_str().unwrap().to_owned()), (by_name, format!("@{abstract_name}"))]
    {
        let socket = environment(&name).notification_socket().unwrap().unwrap();
        socket.notify(&ServiceState::Ready).unwrap();
        socket.notify(&ServiceState::Status("one\ntwo".to_owned())).unwrap();
        socket.notify(&ServiceState::Watchdog).unwrap();
        socket.notify(&ServiceState::Stopping).unwrap();
        assert_eq!(received(&listener), "READY=1");
        assert_eq!(received(&listener), "STATUS=one two");
        assert_eq!(received(&listener), "WATCHDOG=1");
        assert_eq!(received(&listener), "STOPPING=1");
    }
}

#[test]
fn without_notify_socket_there_is_none_and_invalid_names_are_refused() {
    assert!(ServiceEnvironment::default().notification_socket().unwrap().is_none());
    assert!(environment("").notification_socket().unwrap().is_none());
    for odd in ["relative/path", "vsock:2:1234"] {
        let error = environment(odd).notification_socket().unwrap_err();
        assert_eq!(error, ServiceEnvironmentError::Socket(odd.into()));
    }
}

#[test]
fn a_socket_without_listener_is_an_error_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().join("nobody");
    let socket = environment(name.to_str().unwrap()).notification_socket().unwrap().unwrap();
    let error = socket.notify(&ServiceState::Ready).unwrap_err();
    assert_eq!(error.socket, name.to_str().unwrap());
    assert_eq!(error.message, "READY=1");
}

#[test]
fn a_manager_that_never_reads_does_not_block_the_agent() {
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().join("deaf");
    let _deaf = UnixDatagram::bind(&name).unwrap();
    let socket = environment(name.to_str().unwrap()).notification_socket().unwrap().unwrap();
    let refused = (0..100_000).any(|_| socket.notify(&ServiceState::Watchdog).is_err());
    assert!(refused, "the queue never filled");
}
