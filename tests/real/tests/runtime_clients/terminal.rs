//! A terminal for a program under test: it types, reads the output, and changes its size.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

pub(crate) struct TestTerminal {
    master: File,
    child: Child,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl TestTerminal {
    /// Starts the command with a terminal of this size as its three streams.
    pub(crate) fn start(command: &mut Command, rows: u16, columns: u16) -> Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .context("open a terminal")?;
        grantpt(&master).context("grantpt")?;
        unlockpt(&master).context("unlockpt")?;
        let name = ptsname(&master, Vec::new()).context("ptsname")?;
        let slave = File::options()
            .read(true)
            .write(true)
            .open(name.to_str().context("a terminal's name")?)
            .context("open the terminal's other end")?;
        tcsetwinsize(&master, size(rows, columns)).context("size of the terminal")?;
        let child = command
            .stdin(slave.try_clone()?)
            .stdout(slave.try_clone()?)
            .stderr(slave)
            .spawn()
            .context("start a program on a terminal")?;
        let master = File::from(master);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, kept) = (master.try_clone()?, Arc::clone(&shown));
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            // When the other end is closed, reading from the terminal gives an error.
            while let Ok(count @ 1..) = reader.read(&mut part) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&part[..count]);
            }
        });
        Ok(Self { master, child, shown })
    }

    pub(crate) fn enter(&mut self, line: &str) -> Result<()> {
        self.master.write_all(format!("{line}\r").as_bytes()).context("type")
    }

    pub(crate) fn shown(&self) -> String {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&shown).into_owned()
    }

    pub(crate) fn is_shown(&self, text: &str) -> bool {
        self.shown().contains(text)
    }

    /// Waits until the text appears; retypes the input until then.
    pub(crate) fn until(&mut self, text: &str, typed: Option<&str>) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(30) {
            if let Some(line) = typed {
                self.enter(line)?;
            }
            let asked = Instant::now();
            while asked.elapsed() < Duration::from_secs(2) {
                if self.is_shown(text) {
                    return Ok(());
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        bail!("{text:?} was not shown within 30 s: {:?}", self.shown())
    }

    /// Changes the size and sends SIGWINCH, as a terminal emulator would.
    pub(crate) fn resize(&self, rows: u16, columns: u16) -> Result<()> {
        tcsetwinsize(&self.master, size(rows, columns)).context("size of the terminal")?;
        // It is not the program's controlling terminal, so the kernel sends no signal.
        kill_process(Pid::from_child(&self.child), Signal::WINCH).context("tell of a new size")
    }

    /// Waits for the program's end and returns its exit code.
    pub(crate) fn ended(mut self) -> Result<i32> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return status.code().context("it was killed");
            }
            if begun.elapsed() > Duration::from_secs(30) {
                let _ = self.child.kill();
                bail!("still there after 30 s: {:?}", self.shown());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}
