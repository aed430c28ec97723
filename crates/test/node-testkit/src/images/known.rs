//! The images that tests use, under the names that users know: pause, busybox, agnhost.
//!
//! The rule: everything comes from files of this machine (Debian's static busybox, our own pause
//! program, an agnhost built from pinned source). They stand in for the published images; they are not
//! equal to them: Debian's busybox lacks a few applets (`nmeter`, `pgrep`), its `ash` drops
//! environment names with dashes, and there is no `curl` in agnhost.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::TestImage;
use super::build::digest;
use super::output::write_whole;

/// The sandbox image of Kubernetes 1.36.
pub const PAUSE: &str = "registry.k8s.io/pause:3.10.2";
/// The sandbox image that containerd 2.2 asks for when its configuration names none.
pub const CONTAINERD_PAUSE: &str = "registry.k8s.io/pause:3.10.1";
pub const BUSYBOX: &str = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1";
pub const DOCKER_HUB_BUSYBOX: &str = "docker.io/library/busybox:latest";
pub const AGNHOST: &str = "registry.k8s.io/e2e-test-images/agnhost:2.63.0";

/// What must be installed on this machine to make these images.
pub const HOST_PACKAGES: &[&str] = &["busybox-static"];

const BUSYBOX_PROGRAM: &str = "/bin/busybox";
const PAUSE_SOURCE: &str = include_str!("pause_program.rs");
const SEARCH_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n\
    daemon:x:1:1:daemon:/usr/sbin:/bin/false\n\
    nobody:x:65534:65534:nobody:/home:/bin/false\n";
const GROUP: &str = "root:x:0:\ndaemon:x:1:\ntty:x:5:\nnogroup:x:65534:\n";

/// The pause image, named [`PAUSE`].
pub fn pause() -> Result<TestImage> {
    let program = pause_program()?;
    let image = TestImage::new(PAUSE).with_host_file("/pause", 0o755, &program);
    Ok(image.configured(|config| {
        config.user = "65535:65535".to_owned();
        config.env = vec![SEARCH_PATH.to_owned()];
        config.entrypoint = vec!["/pause".to_owned()];
    }))
}

/// A small userland from this machine's static busybox, named [`BUSYBOX`].
pub fn busybox() -> Result<TestImage> {
    busybox_from(Path::new(BUSYBOX_PROGRAM))
}

/// The same from another static busybox.
pub fn busybox_from(program: &Path) -> Result<TestImage> {
    Ok(userland(TestImage::new(BUSYBOX), program)?.configured(|config| {
        config.env = vec![SEARCH_PATH.to_owned()];
        config.cmd = vec!["sh".to_owned()];
    }))
}

/// The Kubernetes test image from a static `agnhost`, with busybox beside it, named [`AGNHOST`].
pub fn agnhost(program: &Path) -> Result<TestImage> {
    ensure_static(program, "agnhost")?;
    let users = format!("{PASSWD}user-defined-in-image:x:1000:1000::/home/user:/bin/sh\n");
    let groups = format!(
        "{GROUP}user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n"
    );
    let image = userland(TestImage::new(AGNHOST), Path::new(BUSYBOX_PROGRAM))?
        .with_host_file("/agnhost", 0o755, program)
        .with_link("/agnhost-2", "agnhost")
        .with_bytes("/etc/passwd", 0o644, users)
        .with_bytes("/etc/group", 0o644, groups);
    Ok(image.configured(|config| {
        config.env = vec![SEARCH_PATH.to_owned()];
        config.entrypoint = vec!["/agnhost".to_owned()];
        config.cmd = vec!["pause".to_owned()];
    }))
}

/// Busybox with a link for each applet it lists, users, and the directories that programs expect.
fn userland(mut image: TestImage, program: &Path) -> Result<TestImage> {
    ensure_static(program, "busybox-static")?;
    let listed = run(Command::new(program).arg("--list"))?;
    for applet in listed.lines().filter(|&applet| applet != "busybox") {
        image = image.with_link(&format!("/bin/{applet}"), "busybox");
    }
    Ok(image
        .with_host_file("/bin/busybox", 0o755, program)
        .with_link("/usr/bin/env", "../../bin/env")
        .with_bytes("/etc/passwd", 0o644, PASSWD)
        .with_bytes("/etc/group", 0o644, GROUP)
        .with_directory("/dev", 0o755)
        .with_directory("/home", 0o755)
        .with_directory("/proc", 0o555)
        .with_directory("/root", 0o700)
        .with_directory("/sys", 0o555)
        .with_directory("/tmp", 0o1777)
        .with_directory("/var/tmp", 0o1777))
}

fn pause_program() -> Result<PathBuf> {
    static_program("pause", PAUSE_SOURCE)
}

/// Compiles a static program of one source file into the cache, keyed by source and compiler.
pub fn static_program(name: &str, source: &str) -> Result<PathBuf> {
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
    let version = run(Command::new(&compiler).arg("--version").arg("--verbose"))?;
    let recipe = [source, &version, &target].join("\0");
    let key = digest(recipe.as_bytes()).trim_start_matches("sha256:").to_owned();
    let kept = crate::cache::root()?.join("images/programs").join(format!("{name}-{key}"));
    if kept.exists() {
        return Ok(kept);
    }
    add_target(&compiler, &target)?;
    let dir = tempfile::tempdir().with_context(|| format!("a folder for compiling {name}"))?;
    let file = format!("{name}.rs");
    fs::write(dir.path().join(&file), source)?;
    run(Command::new(&compiler)
        .current_dir(dir.path())
        .args(["--edition=2024", "--crate-name", name, "--target", &target])
        .args(["-Copt-level=s", "-Cpanic=abort", "-Cstrip=symbols"])
        .args(["-Crelocation-model=static", "-Ctarget-feature=+crt-static"])
        .args(["-o", name, &file]))?;
    let bytes = fs::read(dir.path().join(name))?;
    write_whole(&kept, |file| {
        std::io::Write::write_all(file, &bytes)?;
        Ok(file.set_permissions(fs::Permissions::from_mode(0o755))?)
    })?;
    Ok(kept)
}

/// Adds the musl target, a rustup download, if it is missing.
fn add_target(compiler: &OsString, target: &str) -> Result<()> {
    let dir =
        run(Command::new(compiler).args(["--print=target-libdir", &format!("--target={target}")]))?;
    if Path::new(dir.trim()).is_dir() {
        return Ok(());
    }
    eprintln!("installing the Rust target {target} for the pause image");
    run(Command::new("rustup").args(["target", "add", target]))?;
    Ok(())
}

/// A program that needs an interpreter would not start in an image that has none.
fn ensure_static(program: &Path, package: &str) -> Result<()> {
    let bytes = fs::read(program)
        .with_context(|| format!("reading {} (from {package})", program.display()))?;
    match names_interpreter(&bytes) {
        Some(false) => Ok(()),
        Some(true) => {
            bail!("{} is dynamically linked; expected the one of {package}", program.display())
        }
        None => bail!("{} is no 64-bit ELF program", program.display()),
    }
}

/// Whether a 64-bit little-endian ELF file names an interpreter; `None` for anything else.
pub(super) fn names_interpreter(elf: &[u8]) -> Option<bool> {
    const INTERPRETER: u32 = 3;
    if elf.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let half = |at: usize| Some(u16::from_le_bytes(elf.get(at..at + 2)?.try_into().ok()?));
    let table = u64::from_le_bytes(elf.get(32..40)?.try_into().ok()?);
    let (size, count) = (usize::from(half(54)?), usize::from(half(56)?));
    let table = usize::try_from(table).ok()?;
    for entry in 0..count {
        let at = table.checked_add(entry * size)?;
        let kind = u32::from_le_bytes(elf.get(at..at.checked_add(4)?)?.try_into().ok()?);
        if kind == INTERPRETER {
            return Some(true);
        }
    }
    Some(false)
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
