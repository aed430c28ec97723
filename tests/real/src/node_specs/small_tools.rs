//! Programs that upstream's specs call in their images and a small busybox lacks: `curl`, `nc -u`,
//! `nmeter`, `ipcs`, a web server with a PID file, and the program that prints its effective user.
//! One static program, which acts by the name it is run under.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs, UdpSocket};
use std::time::Duration;

fn main() {
    let mut arguments = std::env::args();
    let name = arguments.next().unwrap_or_default();
    let arguments: Vec<String> = arguments.collect();
    let outcome = match name.rsplit('/').next().unwrap_or_default() {
        "curl" => curl(&arguments),
        "nc" => nc(&arguments),
        "nmeter" => now(),
        "nginx" => serve(),
        "ipcs" => shared_memory(),
        _ => effective_user(),
    };
    if let Err(error) = outcome {
        eprintln!("{name}: {error}");
        std::process::exit(1);
    }
}

/// The time of day with milliseconds, as `nmeter '%3t'` shows it.
fn now() -> std::io::Result<()> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let since = since.unwrap_or_default();
    let (seconds, milliseconds) = (since.as_secs() % 86_400, since.subsec_millis());
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    println!("{hours:02}:{minutes:02}:{:02}.{milliseconds:03}", seconds % 60);
    Ok(())
}

/// The shared memory segments, as `ipcs -m` begins its lines: key and number.
fn shared_memory() -> std::io::Result<()> {
    for line in std::fs::read_to_string("/proc/sysvipc/shm")?.lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().take(2).collect();
        println!("0x{:08x} {}", words[0].parse::<i32>().unwrap_or(0), words[1]);
    }
    Ok(())
}

/// Answers every request on port 80 with the same response.
fn serve() -> std::io::Result<()> {
    std::fs::create_dir_all("/var/run")?;
    std::fs::write("/var/run/nginx.pid", format!("{}\n", std::process::id()))?;
    let listener = std::net::TcpListener::bind("0.0.0.0:80")?;
    for stream in listener.incoming() {
        let mut stream = stream?;
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\nwelcome\n",
        );
    }
    Ok(())
}

fn effective_user() -> std::io::Result<()> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    println!("Effective uid: {}", line.split_whitespace().nth(1).unwrap_or("unknown"));
    Ok(())
}

fn curl(arguments: &[String]) -> std::io::Result<()> {
    let (mut url, mut limit, mut format, mut quiet, mut head) = ("", 60, "", false, false);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--max-time" | "-m" | "--connect-timeout" => {
                limit = rest.next().and_then(|text| text.parse().ok()).unwrap_or(limit);
            }
            "-o" => quiet = rest.next().is_some(),
            "-w" => format = rest.next().map_or("", String::as_str),
            "-i" => head = true,
            flag if flag.starts_with('-') => {}
            place => url = place,
        }
    }
    let bare = url.strip_prefix("http://").unwrap_or(url);
    let (host, path) = bare.split_once('/').unwrap_or((bare, ""));
    let with_port = !host.ends_with(']') && host.contains(':');
    let address = if with_port { host.to_owned() } else { format!("{host}:80") };
    let place = address.to_socket_addrs()?.next().ok_or(std::io::ErrorKind::NotFound)?;
    let mut stream = TcpStream::connect_timeout(&place, Duration::from_secs(limit))?;
    stream.set_read_timeout(Some(Duration::from_secs(limit)))?;
    let question = format!("GET /{path} HTTP/1.0\r\nHost: {host}\r\nUser-Agent: curl\r\n\r\n");
    stream.write_all(question.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.map_or(answer.len(), |at| at + 4);
    let mut output = std::io::stdout();
    if !quiet {
        output.write_all(if head { &answer } else { &answer[end..] })?;
    }
    if format.contains("http_code") {
        let first = String::from_utf8_lossy(&answer[..end]).into_owned();
        write!(output, "{}", first.split(' ').nth(1).unwrap_or("000"))?;
    }
    output.flush()
}

fn nc(arguments: &[String]) -> std::io::Result<()> {
    if !arguments.iter().any(|argument| argument == "-u") {
        use std::os::unix::process::CommandExt;
        return Err(std::process::Command::new("/bin/busybox").arg("nc").args(arguments).exec());
    }
    let (mut wait, mut places) = (5, Vec::new());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "-w" => wait = rest.next().and_then(|text| text.parse().ok()).unwrap_or(wait),
            "-u" => {}
            place => places.push(place),
        }
    }
    let [host, port] = places[..] else { return Err(std::io::ErrorKind::InvalidInput.into()) };
    let local = if host.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(local)?;
    socket.connect((host, port.parse().unwrap_or(0)))?;
    socket.set_read_timeout(Some(Duration::from_secs(wait)))?;
    let mut question = Vec::new();
    std::io::stdin().read_to_end(&mut question)?;
    socket.send(&question)?;
    let mut part = vec![0; 65536];
    while let Ok(count) = socket.recv(&mut part) {
        std::io::stdout().write_all(&part[..count])?;
        std::io::stdout().flush()?;
    }
    Ok(())
}
