//! The program of the pause image: it holds a pod's namespaces and reaps orphans, nothing else.
//!
//! The rule: no allocation, no thread, no signal handler. The three signals that matter are blocked
//! and taken one by one. It ends with 0 on TERM and INT, also as PID 1, where the kernel drops
//! signals that have no handler but keeps blocked ones. Compiled by `known.rs`, not part of the crate.

#![no_std]
#![no_main]

use core::ffi::{c_int, c_long};

// From the kernel's and the C library's interface; the same on every Linux that Rust's musl covers.
const SIGNAL_INTERRUPT: c_int = 2;
const SIGNAL_TERMINATE: c_int = 15;
const SIGNAL_CHILD: c_int = 17;
const BLOCK: c_int = 0;
const NO_HANG: c_int = 1;

#[repr(C)]
struct SignalSet([c_long; 128 / size_of::<c_long>()]);

#[link(name = "c", kind = "static")]
unsafe extern "C" {
    fn sigemptyset(set: *mut SignalSet) -> c_int;
    fn sigaddset(set: *mut SignalSet, signal: c_int) -> c_int;
    fn sigprocmask(how: c_int, set: *const SignalSet, old: *mut SignalSet) -> c_int;
    fn sigwait(set: *const SignalSet, signal: *mut c_int) -> c_int;
    fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn abort() -> !;
}

#[unsafe(no_mangle)]
extern "C" fn main(_count: c_int, _arguments: *const *const u8) -> c_int {
    let mut signals = SignalSet([0; 128 / size_of::<c_long>()]);
    // SAFETY: `signals` is as large as the C library's set and lives through every call; the old
    // mask is not asked for, and a null status tells waitpid to keep it to itself.
    unsafe {
        sigemptyset(&mut signals);
        for signal in [SIGNAL_INTERRUPT, SIGNAL_TERMINATE, SIGNAL_CHILD] {
            sigaddset(&mut signals, signal);
        }
        if sigprocmask(BLOCK, &signals, core::ptr::null_mut()) != 0 {
            return 1;
        }
        loop {
            let mut signal = 0;
            if sigwait(&signals, &mut signal) != 0 {
                return 2;
            }
            if signal != SIGNAL_CHILD {
                return 0;
            }
            while waitpid(-1, core::ptr::null_mut(), NO_HANG) > 0 {}
        }
    }
}

#[panic_handler]
fn panic(_what: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: takes nothing and does not return.
    unsafe { abort() }
}
