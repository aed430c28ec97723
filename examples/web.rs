//! The example's container: answers every request with one line, and ends when it is told to.
//!
//! Rule: nothing but the standard library, so that one compiler call makes an image of it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

fn main() -> std::io::Result<()> {
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
