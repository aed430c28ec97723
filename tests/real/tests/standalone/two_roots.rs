//! Two roots of `keelson run` on one machine: the default one and another. Their agents, with the
//! embedded runtime in the same process, are killed in turns: at named points and at random instants,
//! while pods come and go.
//!
//! However often: no container of either root is restarted, no pod gets another address, the rules
//! of both stay, and every host port and address answers all the time, also while an agent is dead.
//! In the end each root leaves nothing of its own and everything of the other.
//!
//! `cargo xtask test` makes a few kills; `KEELSON_ROOTS_SECONDS`
//! (`cargo xtask soak --part two-roots`) sets how long it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use container_runtime::crash_points;
use node_testkit::bed::{Bed, BedTest};
use node_testkit::start::get;
use node_testkit::{images, programs};
use real_tests::leftover_check::LeftoverCheck;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

use crate::node::{STEADY, wait_for};

const WAIT_LIMIT: Duration = Duration::from_secs(60);
/// The timeout for an armed agent to reach its crash point.
const POINT: Duration = Duration::from_secs(20);
const KILLS: u64 = 6;

/// One root, and the verbs on it.
struct AgentRoot {
    keelson: PathBuf,
    name: &'static str,
    root: PathBuf,
    state: PathBuf,
    /// The directory for manifests and output.
    work: PathBuf,
    port: u16,
}

/// The properties of a pod that must not change.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SteadyPodFacts {
    address: String,
    container: String,
    restarts: u64,
    /// Generated when its program starts.
    answer: String,
}

impl AgentRoot {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.keelson);
        command.args(["run", "--detach", "--root"]).arg(&self.root);
        command.arg("--state").arg(&self.state).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// False: the agent did not accept it, or died meanwhile.
    fn run(&self, arguments: &[&str], crash_at: Option<&str>) -> Result<bool> {
        let printed = fs::File::options().create(true).append(true).open(self.work.join("said"))?;
        let mut command = self.command(arguments);
        command.stderr(printed).envs(crash_at.map(|point| ("KEELSON_CRASH_AT", point)));
        Ok(command.status()?.success())
    }

    fn ask(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.keelson);
        command.args(arguments).arg("--socket").arg(self.state.join("agent.sock"));
        let output = command.output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    fn manifest(&self, pod: &str, port: u16) -> Result<String> {
        let script = format!(
            "mkdir /w; cat /proc/sys/kernel/random/uuid > /w/index.html; httpd -p 80 -h /w; {STEADY}"
        );
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {pod}}}\nspec:\n  \
             terminationGracePeriodSeconds: 2\n  containers:\n  - name: main\n    image: {}\n    \
             imagePullPolicy: Never\n    command: [sh, -c, {script:?}]\n    \
             ports: [{{containerPort: 80, hostPort: {port}}}]\n",
            images::BUSYBOX
        );
        let path = self.work.join(format!("{pod}.yaml"));
        fs::write(&path, text)?;
        Ok(path.display().to_string())
    }

    fn agent(&self) -> Result<Pid> {
        let path = self.root.join("agent/keelson/agent.lock");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let pid = text.lines().find_map(|line| line.strip_prefix("pid ")?.parse().ok());
        pid.and_then(Pid::from_raw).with_context(|| text.clone())
    }

    fn kill_agent(&self) -> Result<()> {
        let agent = self.agent()?;
        let _ = kill_process(agent, Signal::KILL);
        wait_for("the killed agent is gone", WAIT_LIMIT, || Ok(test_kill_process(agent).is_err()))
    }

    fn pods(&self) -> Result<Vec<Value>> {
        let list: Value = serde_json::from_str(&self.ask(&["ps", "-o", "json"])?)?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Stops its pods; the agent exits with the last, and leaves nothing.
    fn end(&self) -> Result<()> {
        let agent = self.agent()?;
        wait_for("the agent ends with its last pod", WAIT_LIMIT, || {
            // It may just be gone, and one that was handed over may not be listed yet.
            for pod in self.pods().unwrap_or_default() {
                let _ = self.ask(&["stop", pod["metadata"]["name"].as_str().unwrap_or_default()]);
            }
            Ok(test_kill_process(agent).is_err())
        })?;
        let mut left = Vec::new();
        let gone = wait_for("nothing is left of it", Duration::from_secs(10), || {
            left = self.left()?;
            Ok(left.is_empty())
        });
        gone.with_context(|| format!("{}: {left:?}", self.name))
    }

    fn steady(&self) -> [(String, u16); 2] {
        [1, 2].map(|number| (format!("{}-{number}", self.name), self.port + number))
    }

    /// The properties of the steady pods that run.
    fn facts(&self) -> Result<BTreeMap<String, SteadyPodFacts>> {
        let mut facts = BTreeMap::new();
        for pod in self.pods()? {
            let Some((name, port)) = self.steady().into_iter().find(|it| is_called(&pod, &it.0))
            else {
                continue;
            };
            let status = &pod["status"]["containerStatuses"][0];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let found = SteadyPodFacts {
                address: text(&pod["status"]["podIP"]),
                container: text(&status["containerID"]),
                restarts: status["restartCount"].as_u64().unwrap_or(u64::MAX),
                answer: get(([127, 0, 0, 1], port).into(), "/")?.body,
            };
            if status["ready"].as_bool() == Some(true) && !found.address.is_empty() {
                facts.insert(name, found);
            }
        }
        Ok(facts)
    }

    fn bridge(&self) -> Result<String> {
        let names: Value = serde_json::from_slice(&fs::read(self.root.join("names.json"))?)?;
        Ok(names["bridge"].as_str().context("a bridge")?.to_owned())
    }

    /// The firewall rules with one of these addresses.
    fn rules(&self, facts: &BTreeMap<String, SteadyPodFacts>) -> Result<BTreeSet<String>> {
        let table = format!("keelson-{}", self.bridge()?);
        let mut list = Command::new("nft");
        list.args(["--stateless", "list", "table", "inet"]).arg(table);
        let listed = output(&mut list)?;
        let names = |line: &&str| facts.values().any(|pod| line.contains(&pod.address));
        Ok(listed.lines().filter(names).map(|line| line.trim().to_owned()).collect())
    }

    /// What this root has on the machine.
    fn left(&self) -> Result<Vec<String>> {
        let bridge = self.bridge()?;
        let mut left = Vec::new();
        for (what, text) in [
            ("link", output(Command::new("ip").args(["link"]))?),
            ("rules", output(Command::new("nft").args(["list", "ruleset"]))?),
        ] {
            if text.contains(&bridge) {
                left.push(format!("{what} of {bridge}"));
            }
        }
        let links = fs::read_dir("/var/log/containers").into_iter().flatten().flatten();
        let of_this_root = |name: &String| name.starts_with(&format!("{}-", self.name));
        let links = links.map(|it| it.file_name().to_string_lossy().into_owned());
        left.extend(links.filter(of_this_root));
        for directory in ["pods", "netns", "mounts"] {
            let entries = fs::read_dir(self.state.join(directory));
            left.extend(
                entries.into_iter().flatten().flatten().map(|it| it.path().display().to_string()),
            );
        }
        let state = self.state.display().to_string();
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        left.extend(mounts.lines().filter(|line| line.contains(&state)).map(str::to_owned));
        if bridge != "keelson0" {
            let group = format!("keelson/{}", bridge.trim_start_matches("keel-"));
            let at = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"]
                .map(|top| PathBuf::from(top).join(&group));
            left.extend(
                at.iter().filter(|path| path.exists()).map(|path| path.display().to_string()),
            );
        }
        Ok(left)
    }
}

/// Whether this is the pod of the manifest: its name has the node's name as suffix.
fn is_called(pod: &Value, name: &str) -> bool {
    let rest = pod["metadata"]["name"].as_str().and_then(|it| it.strip_prefix(name));
    rest.is_some_and(|rest| rest.starts_with("-bed-"))
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Sends requests to every steady pod by its host port and its address, repeatedly.
struct EndpointWatch {
    ends: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    failures: Arc<Mutex<Vec<String>>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl EndpointWatch {
    fn start(expected: Vec<(u16, SteadyPodFacts)>) -> Self {
        let (ends, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let failures = Arc::new(Mutex::new(Vec::new()));
        let (stop, count, found) = (ends.clone(), asked.clone(), failures.clone());
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                for (port, facts) in &expected {
                    let own = format!("{}:80", facts.address);
                    for address in [format!("127.0.0.1:{port}"), own] {
                        count.fetch_add(1, Ordering::Relaxed);
                        let answer = address.parse().map_err(anyhow::Error::from);
                        match answer.and_then(|it| get(it, "/")) {
                            Ok(answer) if answer.body == facts.answer => {}
                            other => found
                                .lock()
                                .unwrap_or_else(PoisonError::into_inner)
                                .push(format!("{address}: {other:?}")),
                        }
                    }
                }
                sleep(Duration::from_millis(50));
            }
        });
        Self { ends, asked, failures, thread: Some(thread) }
    }

    fn check(&self) -> Result<()> {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(failures.is_empty(), "{} failures, first {:?}", failures.len(), failures[0]);
        Ok(())
    }

    fn end(mut self) -> Result<u64> {
        self.ends.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("it runs")?;
        ensure!(thread.join().is_ok(), "the watch panicked");
        self.check()?;
        Ok(self.asked.load(Ordering::Relaxed))
    }
}

impl Drop for EndpointWatch {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

/// A simple pseudo-random sequence: which instant each kill hits depends on the machine.
struct InstantSequence(u64);

impl InstantSequence {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[derive(Debug, Default)]
struct TwoRootsTally {
    at_points: u64,
    /// How often the armed agent completed an operation without reaching its crash point, by point.
    missed_points: BTreeMap<&'static str, u64>,
    points: BTreeSet<&'static str>,
    at_random: u64,
    /// Of those, the ones while a pod was being started or stopped.
    interrupting: u64,
}

/// Two roots with steady pods, and one pod each that is started and stopped.
struct TwoRoots {
    roots: [AgentRoot; 2],
    steady: [BTreeMap<String, SteadyPodFacts>; 2],
    rules: [BTreeSet<String>; 2],
    tally: TwoRootsTally,
}

impl TwoRoots {
    /// The leftover check's snapshot is from before the pods, with what the default root leaves
    /// permanently: its cgroups, and the directory of log links.
    fn start(bed: &Bed, keelson: &Path, archive: &Path) -> Result<(Self, LeftoverCheck)> {
        // A build that goes on meanwhile replaces the program.
        let own = bed.create_dir("program")?.join("keelson");
        fs::copy(keelson, &own)?;
        let keelson = own.as_path();
        // A plain file system where the default root is.
        let place = bed.create_dir("default-root")?;
        fs::create_dir_all("/var/lib/keelson")?;
        rustix::mount::mount_bind(&place, "/var/lib/keelson")?;
        let other = bed.create_dir("b")?;
        let roots = [
            AgentRoot {
                keelson: keelson.to_owned(),
                name: "default",
                root: "/var/lib/keelson".into(),
                state: "/run/keelson".into(),
                work: bed.create_dir("default-work")?,
                port: 8100,
            },
            AgentRoot {
                keelson: keelson.to_owned(),
                name: "other",
                root: other.join("root"),
                state: other.join("state"),
                work: bed.create_dir("other-work")?,
                port: 8200,
            },
        ];
        let archive = archive.display().to_string();
        let default = &roots[0];
        let first = default.manifest("default-first", default.port)?;
        ensure!(default.run(&["--import", &archive, &first], None)?, "default-first: see said");
        wait_for("the first pod runs", WAIT_LIMIT, || {
            let is_up = |pod: &Value| pod["status"]["phase"] == "Running";
            Ok(default.pods().unwrap_or_default().iter().any(is_up))
        })?;
        default.end()?;
        let leftover_check = LeftoverCheck::start()?;
        for root in &roots {
            for (pod, port) in root.steady() {
                let file = root.manifest(&pod, port)?;
                ensure!(root.run(&["--import", &archive, &file], None)?, "{pod}: see said");
            }
        }
        let facts = |root: &AgentRoot| -> Result<BTreeMap<String, SteadyPodFacts>> {
            let mut facts = BTreeMap::new();
            wait_for("its pods run", WAIT_LIMIT, || {
                facts = root.facts().unwrap_or_default();
                Ok(facts.len() == 2)
            })?;
            Ok(facts)
        };
        let steady = [facts(&roots[0])?, facts(&roots[1])?];
        let rules = [roots[0].rules(&steady[0])?, roots[1].rules(&steady[1])?];
        ensure!(rules.iter().all(|rules| rules.len() >= 4), "{rules:?}");
        Ok((Self { roots, steady, rules, tally: TwoRootsTally::default() }, leftover_check))
    }

    fn watch(&self) -> EndpointWatch {
        let mut expected = Vec::new();
        for (root, facts) in self.roots.iter().zip(&self.steady) {
            expected.extend(root.steady().map(|(name, port)| (port, facts[&name].clone())));
        }
        EndpointWatch::start(expected)
    }

    /// Checks that both roots have what they had.
    fn check(&self, root: usize) -> Result<()> {
        let (name, found) = (self.roots[root].name, self.roots[root].facts()?);
        ensure!(found == self.steady[root], "{name}: {found:?}, was {:?}", self.steady[root]);
        let rules = self.roots[root].rules(&self.steady[root])?;
        ensure!(rules == self.rules[root], "{name}: {rules:?}, were {:?}", self.rules[root]);
        Ok(())
    }

    /// Starts or stops the pod that changes.
    fn change(&self, root: usize, comes: bool) -> Result<Child> {
        let root = &self.roots[root];
        let pod = format!("{}-comes", root.name);
        let file = root.manifest(&pod, root.port)?;
        let mut command = if comes {
            root.command(&[&file])
        } else {
            let mut command = Command::new(&root.keelson);
            command.args(["stop", &pod, "--socket"]).arg(root.state.join("agent.sock"));
            command
        };
        let printed = fs::File::options().create(true).append(true).open(root.work.join("said"))?;
        Ok(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(printed).spawn()?)
    }

    /// The agent dies at a crash point while a pod is started or stopped.
    fn crash(&mut self, victim: usize, point: &'static str) -> Result<()> {
        self.roots[victim].kill_agent()?;
        // It may die before it has said that it is there.
        let began = Instant::now();
        let _ = self.roots[victim].run(&[], Some(point))?;
        let agent = self.roots[victim].agent()?;
        let is_alive = || test_kill_process(agent).is_ok();
        for comes in [true, false, true, false] {
            if is_alive() {
                let mut change = self.change(victim, comes)?;
                let until = Instant::now() + Duration::from_secs(4);
                while is_alive() && Instant::now() < until && !self.has_changed(victim, comes) {
                    sleep(Duration::from_millis(20));
                }
                if !is_alive() {
                    let _ = change.kill();
                }
                change.wait()?;
            }
        }
        while is_alive() && began.elapsed() < POINT {
            sleep(Duration::from_millis(20));
        }
        if is_alive() {
            *self.tally.missed_points.entry(point).or_default() += 1;
            return self.roots[victim].kill_agent();
        }
        // It has pods, so it does not end by itself; what it says last is lost with it.
        let log = fs::read_to_string(self.roots[victim].root.join("agent.log"))?;
        ensure!(!log.contains("panicked"), "it panicked");
        self.tally.at_points += 1;
        self.tally.points.insert(point);
        Ok(())
    }

    fn has_changed(&self, root: usize, came: bool) -> bool {
        let pod = format!("{}-comes", self.roots[root].name);
        let Ok(pods) = self.roots[root].pods() else { return false };
        let found = pods.iter().find(|found| is_called(found, &pod));
        match (found, came) {
            (Some(found), true) => found["status"]["phase"] == "Running",
            (None, false) => true,
            _ => false,
        }
    }

    /// The agent is killed while a pod is started or stopped.
    fn kill(&mut self, victim: usize, dice: &mut InstantSequence) -> Result<()> {
        let comes = self.has_changed(victim, false);
        let mut change = self.change(victim, comes)?;
        sleep(Duration::from_millis(dice.below(if comes { 240 } else { 110 })));
        self.tally.at_random += 1;
        if !self.has_changed(victim, comes) {
            self.tally.interrupting += 1;
        }
        self.roots[victim].kill_agent()?;
        let _ = change.kill();
        change.wait()?;
        Ok(())
    }

    fn round(&mut self, number: u64, dice: &mut InstantSequence) -> Result<()> {
        let victim = usize::try_from(number % 2)?;
        if number % 4 < 2 {
            let at = usize::try_from(dice.below(u64::try_from(crash_points::ALL.len())?))?;
            self.crash(victim, crash_points::ALL[at])
                .with_context(|| crash_points::ALL[at].to_owned())?;
        } else {
            self.kill(victim, dice).context("at a random instant")?;
        }
        // The other one has lost nothing while this one is dead, and both have all afterwards.
        self.check(1 - victim)?;
        let rules = self.roots[victim].rules(&self.steady[victim])?;
        ensure!(rules == self.rules[victim], "of the dead agent: {rules:?}");
        wait_for("the next agent", WAIT_LIMIT, || self.roots[victim].run(&[], None))?;
        wait_for("what the next agent says", WAIT_LIMIT, || Ok(self.check(victim).is_ok()))
            .or_else(|_| self.check(victim))?;
        self.check(1 - victim)
    }
}

#[test]
fn two_roots_lose_nothing_whichever_agent_is_killed() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    let archive = images::busybox()?.oci_archive()?;
    let number = |name: &str| -> Result<Option<u64>> {
        let printed = std::env::var(name).ok();
        printed.map(|printed| printed.parse().with_context(|| name.to_owned())).transpose()
    };
    let seconds = number("KEELSON_ROOTS_SECONDS")?;
    let seed = number("KEELSON_SEED")?.unwrap_or(7) * 2 + 1;
    let limit = Duration::from_secs(240 + seconds.unwrap_or(0));
    BedTest::new().deadline(limit).run(move |bed| {
        let mut dice = InstantSequence(seed);
        let (mut machine, leftover_check) = TwoRoots::start(bed, &keelson, &archive)?;
        let watch = machine.watch();
        let began = Instant::now();
        let is_over = |round: u64| match seconds {
            Some(seconds) => began.elapsed() > Duration::from_secs(seconds),
            None => round >= KILLS,
        };
        let mut rounds = 0;
        while !is_over(rounds) {
            let result = machine.round(rounds, &mut dice).and_then(|()| watch.check());
            result.with_context(|| format!("round {rounds}"))?;
            rounds += 1;
        }
        let asked = watch.end()?;
        machine.roots[1].end()?;
        machine.check(0).context("after the end of the other root")?;
        machine.roots[0].end()?;
        let TwoRootsTally { at_points, at_random, interrupting, .. } = machine.tally;
        let report = format!(
            "{rounds} rounds in {} s: {asked} answers, none wrong; {:?}\n",
            began.elapsed().as_secs(),
            machine.tally
        );
        eprint!("{report}");
        if let Some(path) = std::env::var_os("KEELSON_KILL_REPORT") {
            fs::write(path, report)?;
        }
        ensure!(at_points > 0 && at_random > 0, "nothing was killed");
        if seconds.is_some() {
            let missed: Vec<_> =
                crash_points::ALL.iter().filter(|it| !machine.tally.points.contains(*it)).collect();
            ensure!(missed.is_empty(), "never reached: {missed:?}");
            ensure!(interrupting * 5 >= at_random * 4, "kills between actions");
        }
        leftover_check.expect_none()
    })
}

/// Resources that are configured for both roots are refused to the second, with the first one's
/// root and process in the message; the first one's pods are not affected.
#[test]
fn a_second_root_is_refused_the_resources_of_the_first() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    BedTest::new().deadline(Duration::from_secs(120)).run(move |bed| {
        let work = bed.create_dir("r")?;
        let start = |root: &str, state: &str, config: Option<&str>| -> Result<Child> {
            let mut command = Command::new(&keelson);
            let socket = format!("unix://{}", work.join(root).with_extension("sock").display());
            command.args(["cri", "--listen", &socket]).arg("--root").arg(work.join(root));
            command.arg("--state").arg(work.join(state));
            if let Some(text) = config {
                let file = work.join(format!("{root}.json"));
                fs::write(&file, text)?;
                command.arg("--config").arg(file);
            }
            let log = fs::File::create(bed.logs().join(format!("{root}.log")))?;
            Ok(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?)
        };
        let printed = |root: &str| fs::read_to_string(bed.logs().join(format!("{root}.log")));
        let given = r#"{"network": {"bridge": "given0", "subnets": ["10.70.0.0/16"]}}"#;
        let mut first = start("a", "sa", Some(given))?;
        wait_for("the first answers", WAIT_LIMIT, || Ok(work.join("a.sock").exists()))?;
        let owner =
            format!("belongs to the root {} (pid {})", work.join("a").display(), first.id());
        for (root, state, config, what) in [
            ("b", "sa", None, "the state directory"),
            ("c", "sc", Some(given), "the bridge given0"),
            (
                "d",
                "sd",
                Some(r#"{"network": {"subnets": ["10.70.3.0/24"]}}"#),
                "the subnet 10.70.3.0/24",
            ),
        ] {
            let ended = start(root, state, config)?.wait()?;
            let printed = printed(root)?;
            ensure!(
                !ended.success() && printed.contains(what) && printed.contains(&owner),
                "{printed}"
            );
        }
        let mut beside = start("e", "se", None)?;
        wait_for("another root answers", WAIT_LIMIT, || Ok(work.join("e.sock").exists()))?;
        for process in [&mut first, &mut beside] {
            if let Some(ended) = process.try_wait()? {
                bail!("a server has ended: {ended}");
            }
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    })
}
