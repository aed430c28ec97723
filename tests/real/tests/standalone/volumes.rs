//! emptyDir, hostPath and subPath, and an attempt to get out of a volume.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::start::Containerd;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::node::{
    StandaloneNode, archives, container, container_id, ensure_has, is_ready, keelson, manifest,
    restarts, uid, wait_for,
};

#[test]
fn volumes_have_the_specified_content_and_containers_cannot_escape_them() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(180)).run(move |bed| {
        let host = bed.create_dir("host")?;
        fs::write(host.join("file"), "from the host")?;
        fs::write(host.join("secret"), "not for pods")?;
        // A device node is enough: it is never opened.
        let (mode, loop_0) = (Mode::from_raw_mode(0o600), rustix::fs::makedev(7, 0));
        mknodat(CWD, host.join("block"), FileType::BlockDevice, mode, loop_0)?;
        let _socket = UnixListener::bind(host.join("socket"))?;
        let node = StandaloneNode::start(bed, &keelson, &archives, "")?;
        for (name, spec) in
            [("empty", EMPTY), ("host", HOST), ("missing", MISSING), ("escape", ESCAPE)]
        {
            node.place(name, spec)?;
        }
        for (kind, path) in [
            ("Directory", "/run/bed/host/file"),
            ("File", "/run/bed/host"),
            ("Socket", "/run/bed/host/file"),
            ("CharDevice", "/run/bed/host/file"),
            ("BlockDevice", "/dev/null"),
        ] {
            node.place(&format!("not-a-{}", kind.to_lowercase()), &wrong_kind(kind, path))?;
        }
        // What waits is tried ever more rarely, so it comes first.
        mended(&node).context("what was not there at first")?;
        empty(&node).context("emptyDir")?;
        on_host(&node).context("hostPath")?;
        kinds(&node).context("what is not of the kind that was said")?;
        escape(&node).context("a way out by symlinks")?;
        edited(&node).context("a manifest that is edited")?;
        let root = node.home.root();
        node.agent.withdraw_all()?;
        node.runtime.wait_gone("")?;
        wait_for("nothing is mounted", Duration::from_secs(30), || {
            let mounts = fs::read_to_string("/proc/self/mounts")?;
            Ok(!mounts.contains(&*root.join("pods").to_string_lossy()))
        })?;
        ensure!(fs::read_to_string(host.join("file"))? == "from the host", "the host's own stays");
        node.end()
    })
}

const EMPTY: &str = r#"
  terminationGracePeriodSeconds: 1
  volumes:
  - {name: disk, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory, sizeLimit: 2Mi}}
  containers:
  - name: main
    image: BUSYBOX
    command: [sh, -c, "[ -e /disk/here ] || { touch /disk/here /memory/here; exit 1; }; exec sleep 1000"]
    env: [{name: PART, value: three}]
    volumeMounts:
    - {name: disk, mountPath: /disk}
    - {name: disk, mountPath: /part, subPath: one/two}
    - {name: disk, mountPath: /named, subPathExpr: by-$(PART)}
    - {name: disk, mountPath: /read, readOnly: true}
    - {name: memory, mountPath: /memory}
"#;

fn empty(node: &StandaloneNode<'_>) -> Result<()> {
    let pod =
        node.until("its second life", "empty", |pod| restarts(pod, "main") == 1 && is_ready(pod))?;
    let script = "ls /disk /memory; stat -c '%a %F' /disk; mount | grep ' /memory '; \
        df -k /memory | tail -1; head -c 3000000 /dev/zero > /memory/big; \
        stat -c 'big %s' /memory/big; touch /read/x; touch /part/deep /named/file; \
        find /disk -type f; true";
    let output = node.shell(&pod, "main", &format!("({script}) 2>&1"))?;
    ensure_has(
        &output,
        &[
            "here\n",
            "777 directory",
            "tmpfs",
            " 2048 ",
            "I/O error",
            "big 2097152",
            "Read-only file system",
            "/disk/one/two/deep",
            "/disk/by-three/file",
        ],
    )?;
    ensure!(output.matches("here\n").count() >= 2, "both outlive a container: {output}");
    let dir = node.home.root().join("pods").join(uid(&pod)?);
    let disk = dir.join("volumes/kubernetes.io~empty-dir/disk/one/two/deep");
    ensure!(disk.is_file(), "{}", disk.display());
    Ok(())
}

const HOST: &str = r#"
  terminationGracePeriodSeconds: 1
  volumes:
  - {name: plain, hostPath: {path: /run/bed/host}}
  - {name: folder, hostPath: {path: /run/bed/host, type: Directory}}
  - {name: made, hostPath: {path: /run/bed/made/below, type: DirectoryOrCreate}}
  - {name: file, hostPath: {path: /run/bed/host/file, type: File}}
  - {name: new, hostPath: {path: /run/bed/host/new, type: FileOrCreate}}
  - {name: socket, hostPath: {path: /run/bed/host/socket, type: Socket}}
  - {name: device, hostPath: {path: /dev/null, type: CharDevice}}
  - {name: block, hostPath: {path: /run/bed/host/block, type: BlockDevice}}
  containers:
  - name: main
    image: BUSYBOX
    command: [sleep, "1000"]
    volumeMounts:
    - {name: plain, mountPath: /plain}
    - {name: folder, mountPath: /folder, readOnly: true}
    - {name: made, mountPath: /made}
    - {name: file, mountPath: /file}
    - {name: new, mountPath: /new}
    - {name: socket, mountPath: /socket}
    - {name: device, mountPath: /device}
    - {name: block, mountPath: /block}
"#;

fn on_host(node: &StandaloneNode<'_>) -> Result<()> {
    let pod = node.until_ready("host")?;
    let script = "cat /file; echo; touch /folder/no; echo yes > /plain/written; \
        echo made > /made/file; echo new > /new; stat -c '%F' /socket /device /block";
    let output = node.shell(&pod, "main", &format!("({script}) 2>&1"))?;
    ensure_has(
        &output,
        &[
            "from the host",
            "Read-only file system",
            "socket",
            "character special file",
            "block special file",
        ],
    )?;
    for (path, content) in
        [("host/written", "yes\n"), ("made/below/file", "made\n"), ("host/new", "new\n")]
    {
        let found = fs::read_to_string(Path::new("/run/bed").join(path)).context(path)?;
        ensure!(found == content, "{path}: {found}");
    }
    Ok(())
}

const MISSING: &str = r#"
  terminationGracePeriodSeconds: 1
  volumes: [{name: late, hostPath: {path: /run/bed/late, type: Directory}}]
  containers:
  - name: main
    image: BUSYBOX
    command: [sleep, "1000"]
    volumeMounts: [{name: late, mountPath: /late}]
"#;

fn wrong_kind(kind: &str, path: &str) -> String {
    format!(
        "  volumes: [{{name: odd, hostPath: {{path: {path}, type: {kind}}}}}]\n  containers:\n  \
         - name: main\n    image: BUSYBOX\n    command: [sleep, \"1000\"]\n    \
         volumeMounts: [{{name: odd, mountPath: /odd}}]\n"
    )
}

fn kinds(node: &StandaloneNode<'_>) -> Result<()> {
    for kind in ["directory", "file", "socket", "chardevice", "blockdevice"] {
        let name = format!("not-a-{kind}");
        let output = node.until_explained(&name, "FailedMount")?;
        ensure_has(&output, &["hostPath type check failed", "\"odd\""])?;
        let pod = node.pod(&name)?.context("the pod")?;
        ensure!(pod["status"]["phase"] == "Pending", "{pod:#}");
    }
    Ok(())
}

/// A corrected volume is retried automatically.
fn mended(node: &StandaloneNode<'_>) -> Result<()> {
    node.until_explained("missing", "/run/bed/late")?;
    fs::create_dir("/run/bed/late")?;
    node.until_ready("missing")?;
    Ok(())
}

/// The first container plants symlinks, the others would be mounted through them.
const ESCAPE: &str = r#"
  terminationGracePeriodSeconds: 1
  volumes: [{name: data, emptyDir: {}}]
  initContainers:
  - name: plant
    image: BUSYBOX
    command: [sh, -c, "ln -s / /data/root; ln -s ../../../../../../../run/bed/host /data/up; mkdir /data/inner; ln -s inner /data/inside; touch /data/inner/fine"]
    volumeMounts: [{name: data, mountPath: /data}]
  containers:
  - name: root
    image: BUSYBOX
    command: [sleep, "1000"]
    volumeMounts: [{name: data, mountPath: /got, subPath: root}]
  - name: below
    image: BUSYBOX
    command: [sleep, "1000"]
    volumeMounts: [{name: data, mountPath: /got, subPath: root/run/bed/host}]
  - name: up
    image: BUSYBOX
    command: [sleep, "1000"]
    volumeMounts: [{name: data, mountPath: /got, subPath: up/secret}]
  - name: inside
    image: BUSYBOX
    command: [sleep, "1000"]
    volumeMounts: [{name: data, mountPath: /got, subPath: inside}]
"#;

fn escape(node: &StandaloneNode<'_>) -> Result<()> {
    for name in ["root", "below", "up"] {
        let pod = node.until("it is refused", "escape", |pod| {
            let waiting = &container(pod, name)["state"]["waiting"]["reason"];
            waiting == "CreateContainerConfigError"
        })?;
        let waiting = &container(&pod, name)["state"]["waiting"];
        ensure_has(waiting["message"].as_str().unwrap_or_default(), &["subPath", "\"data\""])?;
        ensure!(container(&pod, name)["containerID"].is_null(), "{pod:#}");
    }
    let pod = node.until("the honest link works", "escape", |pod| {
        container(pod, "inside")["ready"] == true
    })?;
    let output = node.shell(&pod, "inside", "ls /got")?;
    ensure!(output == "fine\n", "{output}");
    Ok(())
}

const BEFORE: &str = r#"
  terminationGracePeriodSeconds: 1
  volumes: [{name: one, emptyDir: {}}]
  containers:
  - name: main
    image: BUSYBOX
    command: [sh, -c, "echo kept > /one/file; exec sleep 1000"]
    volumeMounts: [{name: one, mountPath: /one}]
"#;

const AFTER: &str = r#"
  terminationGracePeriodSeconds: 1
  volumes:
  - {name: one, emptyDir: {}}
  - {name: two, emptyDir: {medium: Memory}}
  - {name: three, hostPath: {path: /run/bed/host, type: Directory}}
  containers:
  - name: main
    image: BUSYBOX
    command: [sh, -c, "echo kept > /one/file; exec sleep 1000"]
    volumeMounts: [{name: one, mountPath: /one}]
  - name: other
    image: BUSYBOX
    command: [sleep, "1000"]
    volumeMounts:
    - {name: one, mountPath: /one}
    - {name: two, mountPath: /two}
    - {name: three, mountPath: /three}
"#;

/// An explicit UID makes it the same pod: its old volume stays, and the new ones are added.
fn edited(node: &StandaloneNode<'_>) -> Result<()> {
    let text = |spec: &str| {
        let named = "  name: edited\n";
        manifest("edited", spec).replace(named, &format!("{named}  uid: stated-uid\n"))
    };
    node.agent.place("edited", &text(BEFORE))?;
    let before = node.until_ready("edited")?;
    node.agent.place("edited", &text(AFTER))?;
    let pod = node.until("the added container is ready", "edited", |pod| {
        container(pod, "other")["ready"] == true && is_ready(pod)
    })?;
    ensure!(uid(&pod)? == "stated-uid", "{pod:#}");
    let same = container_id(&before, "main")? == container_id(&pod, "main")?;
    ensure!(same && restarts(&pod, "main") == 0, "the other one was left alone: {pod:#}");
    let output = node.shell(&pod, "other", "cat /one/file /three/file; mount | grep ' /two '")?;
    ensure_has(&output, &["kept\n", "from the host", "tmpfs"])
}
