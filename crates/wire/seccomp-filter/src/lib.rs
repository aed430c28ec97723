//! Seccomp profiles compiled to classic BPF and loaded, without a C library.
