//! Where control groups are mounted, read from a mountinfo text.
//!
//! Rule: a pure reading of the text. Does not open anything.

use std::path::PathBuf;

/// One mount of control groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CgroupMount {
    pub(crate) point: PathBuf,
    /// `cgroup2` or `cgroup`.
    pub(crate) unified: bool,
    /// Controllers of a v1 hierarchy, or its `name=`.
    pub(crate) options: Vec<String>,
}

pub(crate) fn cgroup_mounts(mountinfo: &str) -> Vec<CgroupMount> {
    mountinfo.lines().filter_map(cgroup_mount).collect()
}

/// `36 35 98:0 /root /point rw,… shared:1 - cgroup source rw,cpu,cpuacct`
fn cgroup_mount(line: &str) -> Option<CgroupMount> {
    let (left, right) = line.split_once(" - ")?;
    let point = left.split(' ').nth(4)?;
    let mut right = right.split(' ');
    let kind = right.next()?;
    let options = right.nth(1).unwrap_or_default();
    let unified = match kind {
        "cgroup2" => true,
        "cgroup" => false,
        _ => return None,
    };
    Some(CgroupMount {
        point: PathBuf::from(unescape(point)),
        unified,
        options: options.split(',').map(str::to_owned).collect(),
    })
}

/// The kernel writes blank, tab, newline and backslash as three octal digits.
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (bytes[at], code) {
            (b'\\', Some(code)) => {
                out.push(code);
                at += 4;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
