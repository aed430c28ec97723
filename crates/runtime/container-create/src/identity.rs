//! A process's credentials and privileges, reduced irrevocably before its program runs.
//!
//! Rule: bounding set, groups, user, capabilities, no_new_privs, seccomp filter, in an order in
//! which each step is still permitted and none can be reverted. Without a capability set there are
//! no capabilities. Capabilities that the host itself lacks are left out, as other runtimes do.

use rustix::process::{Gid, Resource, Rlimit, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::error::{CreateError, During, Result};
use crate::process_files::ProcessFiles;
use crate::spec::{CapabilitySpec, ProcessLimit, SeccompSpec, SecuritySpec};

const FILTER_LOG: libc::c_ulong = 1 << 1;
const FILTER_ALLOW_SPECULATION: libc::c_ulong = 1 << 2;

impl SeccompSpec {
    /// A compiled filter, in its wire form.
    pub fn from_program(program: &seccomp_filter::BpfProgram) -> Self {
        let bytes = program.instructions().iter().flat_map(|one| {
            let [a, b] = one.code.to_ne_bytes();
            let [e, f, g, h] = one.operand.to_ne_bytes();
            [a, b, one.jump_true, one.jump_false, e, f, g, h]
        });
        Self { program: bytes.collect(), ..Self::default() }
    }

    fn load(&self) -> Result<()> {
        let mut flags = 0;
        if self.log {
            flags |= FILTER_LOG;
        }
        if self.allow_speculation {
            flags |= FILTER_ALLOW_SPECULATION;
        }
        crate::system::load_seccomp(&self.program, flags).during("loading the seccomp filter")
    }
}

/// The kernel takes this number as "unchanged": the process would stay root.
const NO_ID: u32 = u32::MAX;

/// Checked before any file is given to that user.
pub(crate) fn check_ids(security: &SecuritySpec) -> Result<()> {
    let (uid, gid) = (security.uid, security.gid);
    if [uid, gid].into_iter().chain(security.additional_gids.iter().copied()).any(|id| id == NO_ID)
    {
        return Err(CreateError::invalid_spec(format!(
            "the user {uid}:{gid}: {NO_ID} is no user and no group"
        )));
    }
    Ok(())
}

/// Sets the labels that execve changes the process to. Runs as the host's root, before any user
/// namespace; children inherit it.
pub(crate) fn set_labels(process: &ProcessFiles, security: &SecuritySpec) -> Result<()> {
    let own = rustix::process::getpid().as_raw_nonzero();
    if !security.apparmor_profile.is_empty() {
        let value = format!("exec {}", security.apparmor_profile);
        let here = format!("{own}/attr/apparmor/exec");
        let path = match process.open_file(&here, rustix::fs::OFlags::PATH) {
            Ok(_) => here,
            Err(_) => format!("{own}/attr/exec"),
        };
        if std::fs::metadata("/sys/module/apparmor").is_err() {
            let profile = &security.apparmor_profile;
            return Err(CreateError::invalid_spec(format!(
                "AppArmor profile {profile}: this kernel has no AppArmor"
            )));
        }
        process.write(&path, &value)?;
    }
    if !security.selinux_label.is_empty() {
        if std::fs::metadata("/sys/fs/selinux/enforce").is_err() {
            let label = &security.selinux_label;
            return Err(CreateError::invalid_spec(format!(
                "SELinux label {label}: this kernel has no SELinux"
            )));
        }
        process.write(&format!("{own}/attr/exec"), &security.selinux_label)?;
    }
    Ok(())
}

pub(crate) fn set_oom_score(process: &ProcessFiles, security: &SecuritySpec) -> Result<()> {
    // If not set, the process would inherit the supervisor's score, which protects from the OOM
    // killer.
    let score = security.oom_score_adjustment.unwrap_or(0);
    let own = rustix::process::getpid().as_raw_nonzero();
    process.write(&format!("{own}/oom_score_adj"), &score.to_string()).or_else(|error| {
        // Lowering it needs CAP_SYS_RESOURCE; without it the score stays as it is.
        let have = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
        let lower = have.trim().parse().is_ok_and(|have: i32| score < have);
        if lower { Ok(()) } else { Err(error) }
    })
}

/// The resources of setrlimit(2) by name.
const LIMITS: &[(&str, Resource)] = &[
    ("RLIMIT_AS", Resource::As),
    ("RLIMIT_CORE", Resource::Core),
    ("RLIMIT_CPU", Resource::Cpu),
    ("RLIMIT_DATA", Resource::Data),
    ("RLIMIT_FSIZE", Resource::Fsize),
    ("RLIMIT_LOCKS", Resource::Locks),
    ("RLIMIT_MEMLOCK", Resource::Memlock),
    ("RLIMIT_MSGQUEUE", Resource::Msgqueue),
    ("RLIMIT_NICE", Resource::Nice),
    ("RLIMIT_NOFILE", Resource::Nofile),
    ("RLIMIT_NPROC", Resource::Nproc),
    ("RLIMIT_RSS", Resource::Rss),
    ("RLIMIT_RTPRIO", Resource::Rtprio),
    ("RLIMIT_RTTIME", Resource::Rttime),
    ("RLIMIT_SIGPENDING", Resource::Sigpending),
    ("RLIMIT_STACK", Resource::Stack),
];

/// Runs as the host's root, which alone may raise a hard limit.
pub(crate) fn set_limits(limits: &[ProcessLimit]) -> Result<()> {
    for limit in limits {
        let name = &limit.name;
        let known = LIMITS.iter().find(|(one, _)| one == name);
        let (_, resource) =
            known.ok_or_else(|| CreateError::invalid_spec(format!("{name:?} is no limit")))?;
        let value = |number: u64| (number != u64::MAX).then_some(number);
        let wanted = Rlimit { current: value(limit.soft), maximum: value(limit.hard) };
        rustix::process::setrlimit(*resource, wanted)
            .during(format_args!("setting {name} to {}:{}", limit.soft, limit.hard))?;
    }
    Ok(())
}

/// All irrevocable steps. Runs inside the container, last.
pub(crate) fn become_user(security: &SecuritySpec) -> Result<()> {
    let wanted = security.capabilities.unwrap_or_default();
    let mut bits = 0o022;
    if let Some(umask) = security.umask {
        bits = umask;
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(bits & 0o777));
    // Without no_new_privs a filter needs CAP_SYS_ADMIN, which is about to be dropped.
    if !security.no_new_privileges
        && let Some(filter) = &security.seccomp
    {
        filter.load()?;
    }
    let have = rustix::thread::capabilities(None).during("reading the capabilities")?;
    drop_bounding(wanted.bounding)?;
    rustix::thread::set_keep_capabilities(true).during("keeping capabilities")?;
    let groups: Vec<Gid> = security.additional_gids.iter().map(|one| Gid::from_raw(*one)).collect();
    rustix::thread::set_thread_groups(&groups)
        .during(format_args!("setting the groups {:?}", security.additional_gids))?;
    let gid = Gid::from_raw(security.gid);
    rustix::thread::set_thread_res_gid(gid, gid, gid)
        .during(format_args!("becoming the group {}", security.gid))?;
    let uid = Uid::from_raw(security.uid);
    rustix::thread::set_thread_res_uid(uid, uid, uid)
        .during(format_args!("becoming the user {}", security.uid))?;
    rustix::thread::set_keep_capabilities(false).during("no longer keeping capabilities")?;
    set_capabilities(wanted, have.permitted.bits())?;
    if security.no_new_privileges {
        rustix::thread::set_no_new_privs(true).during("setting no_new_privs")?;
        if let Some(filter) = &security.seccomp {
            filter.load()?;
        }
    }
    Ok(())
}

/// Capabilities that this kernel knows.
fn known_capabilities() -> impl Iterator<Item = CapabilitySet> {
    (0..64)
        .map(|number| CapabilitySet::from_bits_retain(1 << number))
        .take_while(|one| rustix::thread::capability_is_in_bounding_set(*one).is_ok())
}

fn drop_bounding(keep: u64) -> Result<()> {
    for one in known_capabilities() {
        let there = rustix::thread::capability_is_in_bounding_set(one).unwrap_or(true);
        if keep & one.bits() == 0 && there {
            rustix::thread::remove_capability_from_bounding_set(one)
                .during(format_args!("dropping {one:?} from the bounding set"))?;
        }
    }
    Ok(())
}

fn set_capabilities(wanted: CapabilitySpec, have: u64) -> Result<()> {
    let set = |bits: u64| CapabilitySet::from_bits_retain(bits & have);
    let sets = CapabilitySets {
        effective: set(wanted.effective & wanted.permitted),
        permitted: set(wanted.permitted),
        inheritable: set(wanted.inheritable),
    };
    rustix::thread::set_capabilities(None, sets).during("setting the capabilities")?;
    rustix::thread::clear_ambient_capability_set().during("clearing the ambient capabilities")?;
    let ambient = set(wanted.ambient & wanted.permitted & wanted.inheritable);
    for one in known_capabilities().filter(|one| ambient.contains(*one)) {
        rustix::thread::configure_capability_in_ambient_set(one, true)
            .during(format_args!("setting the ambient capability {one:?}"))?;
    }
    Ok(())
}
