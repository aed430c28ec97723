//! One run of the machine: power on, stream the output, read the exit status, power off.
//!
//! The rule: output, exit status and console each have a serial line of their own, so that they
//! need not be separated in a mixed stream; a run without an exit status is an error, never a
//! guess. The emulator dies with the thread that started it, and so with the caller.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::payload::fd_path;
use super::recipe::{file, search_path};
use super::{EmulatedMachine, MachineRun, Payload};

const KERNEL_ARGUMENTS: &str = "root=/dev/vda rw console=ttyS0 quiet systemd.show_status=0 psi=1 \
    swapaccount=1 mitigations=off net.ifnames=0";

/// The unnamed files that the emulator reads and writes.
struct MachineFiles<'a> {
    payload: &'a File,
    swap: Option<File>,
    status: File,
    console: File,
}

/// Boots the machine and waits for its end.
pub(super) fn run(
    machine: &EmulatedMachine,
    payload: &Payload,
    disk: &File,
    sink: &mut dyn Write,
) -> Result<MachineRun> {
    let unnamed = || tempfile::tempfile().context("a file for the machine's lines");
    let swap = if payload.swap_mb == 0 { None } else { Some(unnamed()?) };
    if let Some(swap) = &swap {
        swap.set_len(u64::from(payload.swap_mb) << 20).context("the machine's swap")?;
    }
    let mut lines = MachineFiles { payload: disk, swap, status: unnamed()?, console: unnamed()? };
    let started = Instant::now();
    let mut emulator = Emulator(
        kill_with_caller(&mut command(machine, payload, &lines)?)
            .spawn()
            .context("starting qemu-system-x86_64")?,
    );
    let output = stream(&mut emulator.0, started + payload.deadline, sink)?;
    let elapsed = started.elapsed();
    let in_time = elapsed < payload.deadline;
    drop(emulator);
    match exit_status(&text_of(&mut lines.status)?) {
        Some(status) => Ok(MachineRun { output, status, elapsed }),
        None => bail!(
            "the machine {} after {:.0} s without an exit status\nend of its console:\n{}\n\
             end of the payload's output:\n{}",
            if in_time { "ended" } else { "was stopped at its deadline" },
            elapsed.as_secs_f64(),
            tail(&text_of(&mut lines.console)?),
            tail(&output)
        ),
    }
}

/// The emulator, stopped on drop.
struct Emulator(Child);

impl Drop for Emulator {
    fn drop(&mut self) {
        // Fails only when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(
    machine: &EmulatedMachine,
    payload: &Payload,
    lines: &MachineFiles<'_>,
) -> Result<Command> {
    let dir: &Path = &machine.dir;
    let arguments = format!("{KERNEL_ARGUMENTS} {}", machine.variant.kernel_arguments());
    let mut command = Command::new("qemu-system-x86_64");
    command
        .env("PATH", search_path())
        .args(["-accel", "tcg,thread=multi", "-cpu", "max"])
        .args(["-m", &payload.memory_mb.to_string(), "-smp", &payload.cpus.to_string()])
        .args(["-nodefaults", "-no-user-config", "-no-reboot"])
        .args(["-display", "none", "-monitor", "none"])
        .arg("-kernel")
        .arg(file(dir, "vmlinuz")?)
        .arg("-initrd")
        .arg(file(dir, "initrd")?)
        .args(["-append", arguments.trim_end()]);
    let root = file(dir, "rootfs.img")?;
    drive(&mut command, "root", &root.to_string_lossy(), ",snapshot=on");
    drive(&mut command, "payload", &fd_path(lines.payload), ",readonly=on");
    if let Some(swap) = &lines.swap {
        drive(&mut command, "swap", &fd_path(swap), "");
    }
    command.args(["-device", "virtio-serial-pci"]);
    for (name, path) in
        [("output", "/proc/self/fd/1".to_owned()), ("status", fd_path(&lines.status))]
    {
        command.args(["-chardev", &format!("file,id={name},path={path}")]);
        command.args(["-device", &format!("virtserialport,chardev={name},name=keelson.{name}")]);
    }
    command
        .args(["-chardev", &format!("file,id=console,path={}", fd_path(&lines.console))])
        .args(["-serial", "chardev:console"])
        // Leads nowhere: it gives the guest a link for its address and default route.
        .args(["-netdev", "user,id=link,restrict=on"])
        .args(["-device", "virtio-net-pci,netdev=link,romfile="])
        .args(["-device", "virtio-rng-pci"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(lines.console.try_clone()?);
    Ok(command)
}

fn drive(command: &mut Command, name: &str, path: &str, options: &str) {
    // A comma ends a value in the emulator's language; doubled it stands for itself.
    let path = path.replace(',', ",,");
    command
        .args(["-drive", &format!("file={path},format=raw,if=none,id={name}{options}")])
        .args(["-device", &format!("virtio-blk-pci,drive={name},serial={name}")]);
}

/// Passes the output on as it arrives, until the emulator closes it or the deadline passes.
fn stream(emulator: &mut Child, until: Instant, sink: &mut dyn Write) -> Result<String> {
    let mut pipe = emulator.stdout.take().context("the emulator has no output")?;
    let (sender, receiver) = mpsc::channel::<Vec<u8>>();
    let reader = thread::spawn(move || {
        let mut buffer = [0_u8; 8192];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            if sender.send(buffer[..count].to_vec()).is_err() {
                break;
            }
        }
    });
    let mut output = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match receiver.recv_timeout(left.max(Duration::from_millis(1))) {
            Ok(bytes) => {
                sink.write_all(&bytes).and_then(|()| sink.flush()).context("passing output on")?;
                output.extend_from_slice(&bytes);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if Instant::now() < until => {}
            Err(RecvTimeoutError::Timeout) => {
                emulator.kill().context("stopping the machine at its deadline")?;
                break;
            }
        }
    }
    // The pipe ends with the emulator, and the reader with the pipe.
    emulator.wait().context("waiting for the emulator")?;
    let _ = reader.join();
    output.extend(receiver.try_iter().flatten());
    Ok(String::from_utf8_lossy(&output).into_owned())
}

/// The number in `exit N`, which is all that the status line ever carries.
pub(super) fn exit_status(line: &str) -> Option<i32> {
    line.strip_suffix('\n')?.strip_prefix("exit ")?.parse().ok()
}

fn text_of(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes).context("reading a line of the machine")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last lines of a text.
pub(super) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

/// Makes the child die when the thread that starts it does.
pub(super) fn kill_with_caller(command: &mut Command) -> &mut Command {
    let caller = rustix::process::getpid();
    // SAFETY: between fork and exec only two system calls are made; nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The caller may have died before the call: then no signal will be sent.
            if getppid() != Some(caller) {
                return Err(rustix::io::Errno::SRCH.into());
            }
            Ok(())
        })
    }
}
