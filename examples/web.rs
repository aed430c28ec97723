//! The example's container: answers every request with one line, and ends when it is told to. With
//! the argument `ask` it is its own client: for `keelson exec`, in an image that has nothing else.
//!
//! Rule: nothing but the standard library, so that one compiler call makes an image of it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

fn main() -> std::io::Result<()> {
    if std::env::args().nth(1).as_deref() == Some("ask") {
        return ask();
    }
    let listener = TcpListener::bind("[::]:80").or_else(|_| TcpListener::bind("0.0.0.0:80"))?;
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")?.trim().to_owned();
    println!("{name} answers on port 80");
    for connection in listener.incoming() {
        if let Err(error) = connection.and_then(|connection| answer(connection, &name)) {
            eprintln!("a request failed: {error}");
        }
    }
    Ok(())
}

/// Asks the server of this container, and prints what it says.
fn ask() -> std::io::Result<()> {
    let mut connection = TcpStream::connect("127.0.0.1:80")?;
    connection.set_read_timeout(Some(Duration::from_secs(2)))?;
    connection.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    print!("{}", answer.split("\r\n\r\n").nth(1).unwrap_or_default());
    Ok(())
}

fn answer(mut connection: TcpStream, name: &str) -> std::io::Result<()> {
    connection.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut request = [0; 1024];
    let length = connection.read(&mut request)?;
    let head = String::from_utf8_lossy(&request[..length]);
    let first = head.lines().next().unwrap_or_default();
    if !head.contains("kube-probe") {
        println!("{first}");
    }
    let body = format!("hello from {name}\n");
    write!(
        connection,
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
