//! A pseudo terminal for a program under test: its input, its output, its size.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// A pseudo terminal: this end, and the one for a program.
fn terminal() -> Result<(File, OwnedFd)> {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let slave = rustix::fs::open(name, flags, rustix::fs::Mode::empty())?;
    Ok((File::from(master), slave))
}

/// A program on a terminal of 100 columns and 30 rows.
pub(crate) struct OnTerminal {
    master: File,
    child: Child,
    pub(crate) seen: String,
}

impl OnTerminal {
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        let (master, slave) = terminal()?;
        set_size(&master, 100, 30)?;
        command.stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(slave);
        let child = command.spawn()?;
        drop(command);
        Ok(Self { master, child, seen: String::new() })
    }

    pub(crate) fn type_in(&mut self, text: &str) -> Result<()> {
        Ok(self.master.write_all(text.as_bytes())?)
    }

    /// Reads until the text has appeared.
    pub(crate) fn until(&mut self, words: &str) -> Result<()> {
        let begun = Instant::now();
        let mut part = [0; 4096];
        while !self.seen.contains(words) {
            ensure!(begun.elapsed() < WAIT_LIMIT, "no {words:?} in {:?}", self.seen);
            let timeout = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
            let mut ready =
                [rustix::event::PollFd::new(&self.master, rustix::event::PollFlags::IN)];
            if rustix::event::poll(&mut ready, Some(&timeout))? == 0 {
                continue;
            }
            match self.master.read(&mut part) {
                Ok(0) | Err(_) => bail!("it ended; no {words:?} in {:?}", self.seen),
                Ok(read) => self.seen.push_str(&String::from_utf8_lossy(&part[..read])),
            }
        }
        Ok(())
    }

    /// Changes the size and sends SIGWINCH. It is not the program's controlling terminal here, so
    /// the kernel sends no signal.
    pub(crate) fn resize(&self, columns: u16, rows: u16) -> Result<()> {
        set_size(&self.master, columns, rows)?;
        kill_process(Pid::from_child(&self.child), Signal::WINCH).context("tell of a new size")
    }

    pub(crate) fn end(mut self) -> Result<(Option<i32>, String)> {
        let mut part = [0; 4096];
        while let Ok(read @ 1..) = self.master.read(&mut part) {
            self.seen.push_str(&String::from_utf8_lossy(&part[..read]));
        }
        Ok((self.child.wait()?.code(), self.seen))
    }
}

fn set_size(master: &File, columns: u16, rows: u16) -> Result<()> {
    let size =
        rustix::termios::Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(rustix::termios::tcsetwinsize(master, size)?)
}
