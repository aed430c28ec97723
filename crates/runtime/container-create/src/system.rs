//! System calls without a safe wrapper.
//!
//! Rule: all `unsafe` code of the crate is here, one call per function, each with its reason. Knows
//! nothing of containers.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::spec::TerminalSize;

pub(crate) const NEW_MOUNT: u64 = libc::CLONE_NEWNS as u64;
pub(crate) const NEW_PID: u64 = libc::CLONE_NEWPID as u64;
pub(crate) const NEW_IPC: u64 = libc::CLONE_NEWIPC as u64;
pub(crate) const NEW_NET: u64 = libc::CLONE_NEWNET as u64;
pub(crate) const NEW_UTS: u64 = libc::CLONE_NEWUTS as u64;
pub(crate) const NEW_USER: u64 = libc::CLONE_NEWUSER as u64;
pub(crate) const NEW_CGROUP: u64 = libc::CLONE_NEWCGROUP as u64;

fn check(outcome: libc::c_long) -> io::Result<libc::c_long> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(outcome) }
}

fn check_int(outcome: libc::c_int) -> io::Result<()> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Which side of a fork the caller is.
#[derive(Debug)]
pub enum ForkSide {
    Child,
    Parent { pid: i32 },
}

/// Forks. Only for processes with one thread, or whose other threads never allocate or lock: the
/// child may then run any code.
pub fn fork() -> io::Result<ForkSide> {
    // SAFETY: the library's fork makes its own locks usable in the child; our callers have no other
    // thread that could hold a lock (see above).
    match unsafe { libc::fork() } {
        0 => Ok(ForkSide::Child),
        pid if pid > 0 => Ok(ForkSide::Parent { pid }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A sibling instead of a child: its parent is the caller's parent, which receives its exit.
#[derive(Debug)]
pub(crate) enum Sibling {
    Self_,
    Other { pid: i32, pidfd: OwnedFd },
}

/// Clones this process as a child of its parent, in new namespaces. Only for processes with one
/// thread.
pub(crate) fn clone_sibling(namespaces: u64) -> io::Result<Sibling> {
    let mut pidfd: RawFd = -1;
    let mut arguments = libc::clone_args {
        flags: namespaces | libc::CLONE_PARENT as u64 | libc::CLONE_PIDFD as u64,
        pidfd: (&raw mut pidfd) as u64,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: 0,
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: 0,
    };
    // SAFETY: without CLONE_VM the child has a copy of the address space and goes on on the same
    // stack; the caller has one thread, so no lock can be held by another. The kernel writes one
    // descriptor to `pidfd`, which lives until the call returns.
    let pid = check(unsafe {
        libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of::<libc::clone_args>())
    })?;
    if pid == 0 {
        return Ok(Sibling::Self_);
    }
    // SAFETY: the kernel has just returned this new descriptor.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Sibling::Other { pid: i32::try_from(pid).map_err(io::Error::other)?, pidfd })
}

/// Enters namespaces of the kinds `kinds`: those of a process (pidfd), or a single one.
pub(crate) fn enter(namespace: BorrowedFd<'_>, kinds: u64) -> io::Result<()> {
    let kinds = libc::c_int::try_from(kinds).map_err(io::Error::other)?;
    // SAFETY: changes the namespaces of this process only; takes no pointers.
    check_int(unsafe { libc::setns(namespace.as_raw_fd(), kinds) })
}

pub(crate) fn unshare(kinds: u64) -> io::Result<()> {
    let kinds = libc::c_int::try_from(kinds).map_err(io::Error::other)?;
    // SAFETY: as above.
    check_int(unsafe { libc::unshare(kinds) })
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MountChange<'a> {
    pub(crate) set: u64,
    pub(crate) clear: u64,
    pub(crate) propagation: u64,
    pub(crate) user_namespace: Option<BorrowedFd<'a>>,
    pub(crate) recursive: bool,
}

/// Changes attributes of the descriptor's mount.
pub(crate) fn change_mount(mount: BorrowedFd<'_>, change: MountChange<'_>) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: change.set,
        attr_clr: change.clear,
        propagation: change.propagation,
        userns_fd: change.user_namespace.map_or(0, |descriptor| descriptor.as_raw_fd() as u64),
    };
    let recursive = if change.recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the kernel reads an empty string and one structure of the given size.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    })
    .map(drop)
}

/// Closes all descriptors except these.
pub fn close_all_except(descriptors: &[RawFd]) -> io::Result<()> {
    let mut descriptors: Vec<u32> =
        descriptors.iter().filter_map(|one| u32::try_from(*one).ok()).collect();
    descriptors.sort_unstable();
    let mut from = 0_u32;
    for one in descriptors {
        if one > from {
            close_range(from, one - 1)?;
        }
        from = from.max(one + 1);
    }
    close_range(from, u32::MAX)
}

fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: the descriptors' owners in this process are never used or dropped again: callers end
    // in execve or _exit, or have just begun and own nothing.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) }).map(drop)
}

/// Duplicates `descriptor` to `number`, kept across execve only for 0 to 2.
pub(crate) fn dup_to(descriptor: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    if descriptor.as_raw_fd() == number {
        return rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::empty())
            .map_err(Into::into);
    }
    let flags = if number > 2 { libc::O_CLOEXEC } else { 0 };
    // SAFETY: replaces a descriptor that is one of the standard streams or has no owner.
    check_int(unsafe { libc::dup3(descriptor.as_raw_fd(), number, flags) })
}

/// Redirects the standard streams to the null device: those of a supervisor are files of the host.
pub(crate) fn dup_null_to_stdio(null: BorrowedFd<'_>) -> io::Result<()> {
    (0..3).try_for_each(|number| dup_to(null, number))
}

/// A descriptor by number, which stays open.
pub(crate) fn borrowed(number: RawFd) -> BorrowedFd<'static> {
    // SAFETY: used for the standard streams and for descriptors that live as long as the process.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// Exits without cleaning up: for the children of a fork.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process; runs no code of it.
    unsafe { libc::_exit(code) }
}

/// A C array of strings: pointers, and a null at the end.
#[derive(Debug)]
pub(crate) struct StringList {
    _strings: Vec<CString>,
    pointers: Vec<*const libc::c_char>,
}

impl StringList {
    pub(crate) fn new(strings: &[String]) -> io::Result<Self> {
        let strings: Vec<CString> = strings
            .iter()
            .map(|text| CString::new(text.as_bytes()).map_err(io::Error::other))
            .collect::<io::Result<_>>()?;
        let pointers = strings.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect();
        Ok(Self { _strings: strings, pointers })
    }
}

/// Returns only if the program could not be executed.
pub(crate) fn execute(path: &CStr, arguments: &StringList, environment: &StringList) -> io::Error {
    // SAFETY: both lists end in a null pointer and live until the call returns or the process image
    // is replaced.
    unsafe {
        libc::execve(path.as_ptr(), arguments.pointers.as_ptr(), environment.pointers.as_ptr())
    };
    io::Error::last_os_error()
}

/// The same for an open program.
pub(crate) fn execute_descriptor(program: BorrowedFd<'_>, arguments: &StringList) -> io::Error {
    let environment: [*const libc::c_char; 1] = [std::ptr::null()];
    // SAFETY: as above; the path is empty because the descriptor is the program.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program.as_raw_fd(),
            c"".as_ptr(),
            arguments.pointers.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    io::Error::last_os_error()
}

fn control(option: libc::c_int, argument: libc::c_ulong) -> io::Result<()> {
    let none: libc::c_ulong = 0;
    // SAFETY: only called with options that take numbers.
    check_int(unsafe { libc::prctl(option, argument, none, none, none) })
}

/// Makes the process non-dumpable: only root of the initial user namespace may inspect it.
pub fn hide_process() -> io::Result<()> {
    control(libc::PR_SET_DUMPABLE, 0)
}

/// Makes this process a child subreaper: orphaned descendants become its children.
pub fn become_reaper() -> io::Result<()> {
    control(libc::PR_SET_CHILD_SUBREAPER, 1)
}

/// Sends SIGKILL to this process when its parent ends.
pub fn die_with_parent() -> io::Result<()> {
    control(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong)
}

pub(crate) fn outlive_parent() -> io::Result<()> {
    control(libc::PR_SET_PDEATHSIG, 0)
}

/// Unblocks all signals and restores their defaults, as a program expects at its start.
pub fn reset_signals() -> io::Result<()> {
    for signal in 1..=64 {
        // SAFETY: sets the default action, which involves no code of ours. SIGKILL, SIGSTOP and the
        // library's own signals are refused, which is fine.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: an all-zero set is a valid value that `sigemptyset` then makes empty.
    let mut none: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: writes the set that is passed; reads it again.
    check_int(unsafe {
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut())
    })
}

/// Makes it the controlling terminal of this session, whose leader this process is.
pub(crate) fn take_terminal(terminal: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the request takes a number.
    check_int(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0) })
}

/// Opens the other side of a terminal by its master, without a path that could lead elsewhere.
pub(crate) fn terminal_peer(master: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let unlocked: libc::c_int = 0;
    // SAFETY: reads one number.
    check_int(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked) })?;
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: the request takes a number and returns a new descriptor.
    let peer = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags) };
    check_int(peer)?;
    // SAFETY: the kernel has just returned this new descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(peer) })
}

pub fn set_terminal_size(terminal: impl AsFd, size: TerminalSize) -> io::Result<()> {
    let cells = |count: u32| u16::try_from(count).unwrap_or(u16::MAX);
    let window = libc::winsize {
        ws_row: cells(size.rows),
        ws_col: cells(size.columns),
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: reads one structure.
    check_int(unsafe {
        libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TIOCSWINSZ, &raw const window)
    })
}

/// Joins a new session keyring: keys of the host's root are not for the container.
pub(crate) fn new_session_keyring() -> io::Result<()> {
    const JOIN_SESSION_KEYRING: libc::c_int = 1;
    let anonymous: *const libc::c_char = std::ptr::null();
    // SAFETY: a null name asks for an anonymous keyring.
    check(unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, anonymous) }).map(drop)
}

/// Installs a seccomp filter. `program` consists of whole instructions of 8 bytes.
pub(crate) fn load_seccomp(program: &[u8], flags: libc::c_ulong) -> io::Result<()> {
    const SET_MODE_FILTER: libc::c_uint = 1;
    if program.is_empty() || !program.len().is_multiple_of(8) {
        return Err(io::Error::other(format!("{} bytes are no filter program", program.len())));
    }
    let instructions: Vec<libc::sock_filter> = program
        .chunks_exact(8)
        .map(|bytes| libc::sock_filter {
            code: u16::from_ne_bytes([bytes[0], bytes[1]]),
            jt: bytes[2],
            jf: bytes[3],
            k: u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        })
        .collect();
    let filter = libc::sock_fprog {
        len: u16::try_from(instructions.len()).map_err(io::Error::other)?,
        filter: instructions.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel reads `len` instructions behind the pointer; they live until it returns.
    check(unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, flags, &raw const filter) })
        .map(drop)
}

/// Sets `lo` up in the network namespace of this process.
pub(crate) fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: all zero is a valid value: an empty name and no flags.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: reads one structure.
    check_int(unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request)
    })
}

/// Makes the working directory the root and unmounts the old root.
pub(crate) fn pivot_here() -> io::Result<()> {
    // SAFETY: both strings are constants.
    check(unsafe { libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) })?;
    // SAFETY: as above; the old root now lies on top of the new one.
    check_int(unsafe { libc::umount2(c".".as_ptr(), libc::MNT_DETACH) })
}

/// bpf(2) with one of its structures.
pub(crate) fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: the kernel reads (and for some commands writes) `attributes`, whose size is passed;
    // the caller keeps what its pointers refer to alive during the call.
    check(unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>())
    })
}

/// Owns a descriptor that the kernel has just returned as a number.
pub(crate) fn owned(number: libc::c_long) -> io::Result<OwnedFd> {
    let number = RawFd::try_from(number).map_err(io::Error::other)?;
    // SAFETY: see above: it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Sleeps until a child has ended. May return early; never misses one that ends while it sleeps.
pub(crate) fn wait_for_child_signal() {
    // SAFETY: all zero is a valid set, which is then filled in.
    let mut children: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: both calls get valid sets. The signal is blocked first, so one that comes between a
    // look for children and the wait stays pending and ends the wait.
    unsafe {
        libc::sigemptyset(&raw mut children);
        libc::sigaddset(&raw mut children, libc::SIGCHLD);
        let mut blocked = children;
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const children, &raw mut blocked) == 0
            && libc::sigismember(&raw const blocked, libc::SIGCHLD) == 0
        {
            // It was not blocked before: one may have come already, so check once more.
            return;
        }
        libc::sigwaitinfo(&raw const children, std::ptr::null_mut());
    }
}
