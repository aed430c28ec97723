//! Kills test processes and wardens, once or many times, and runs the leftover check after each
//! kill.
//!
//! Rule: the first kill hits a bed in which a container runs. The others come at instants that a
//! fixed seed spreads evenly over creation, run and end, in victims that end by themselves; the
//! durations of creation and end are measured first, so that a slow machine is hit everywhere too.

use std::collections::BTreeMap;
use std::fs::File;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use node_testkit::bed::{beds_folder, sweep};
use real_tests::judge::Judge;
use rustix::process::{Pid, Signal, kill_process};

use super::victim::{Phase, Victim};

/// How long the container of a victim runs before the victim ends by itself.
const STAY: Duration = Duration::from_millis(300);
/// How long the next beds may take to clean up: killed processes hold their locks a little longer.
const SWEEPING: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    TestProcess,
    Warden,
    Both,
}

/// How often each is killed: once in `cargo xtask test`, more with `cargo xtask soak`.
fn kills() -> Result<u32> {
    std::env::var("KEELSON_KILLS").map_or(Ok(1), |text| text.parse().context("KEELSON_KILLS"))
}

pub(super) fn kill_rounds(target: Target, test: &'static str) -> Result<()> {
    let kills = kills()?;
    ensure!(kills > 0, "KEELSON_KILLS=0 shows nothing");
    let mut hits: BTreeMap<&str, u32> = BTreeMap::new();
    let mut count = |round: u32, after: Duration, phase: Phase| {
        let hit = describe(phase);
        println!("{target:?}: kill {round} after {} ms hit a bed {hit}", after.as_millis());
        *hits.entry(hit).or_default() += 1;
    };
    let judge = Judge::call()?;
    let mut victim = Victim::start(test, None)?;
    let age = victim.wait_until_it_runs()?;
    count(1, age, Phase::Running);
    kill_at_rest(target, &mut victim, &judge)?;
    judge.finds_nothing()?;
    drop(victim);
    let pace = if kills > 1 { Pace::measure(test)? } else { Pace::default() };
    for (round, moment) in (2..=kills).zip(moments(target)) {
        let judge = Judge::call()?;
        let mut victim = Victim::start(test, Some(STAY))?;
        moment.wait_for(&mut victim, &pace)?;
        let phase = victim.phase()?;
        count(round, victim.age(), phase);
        kill_at_any_time(target, &mut victim, &judge).with_context(|| format!("kill {round}"))?;
        judge.finds_nothing().with_context(|| format!("kill {round}, {}", describe(phase)))?;
    }
    println!("{target:?}: {kills} kills: {hits:?}");
    Ok(())
}

fn describe(phase: Phase) -> &'static str {
    match phase {
        Phase::Making => "in the making",
        Phase::Running => "running",
        Phase::Ending => "ending",
        Phase::Gone => "that was gone",
    }
}

/// The durations of a bed's creation and end on this machine.
#[derive(Debug, Default)]
struct Pace {
    making: Duration,
    ending: Duration,
}

impl Pace {
    /// Measures a victim that is not killed.
    fn measure(test: &'static str) -> Result<Self> {
        let mut victim = Victim::start(test, Some(STAY))?;
        let making = victim.wait_until_it_runs()?;
        let over = victim.wait_until_it_is_over()?;
        let status = victim.process.wait()?;
        ensure!(status.success(), "the victim failed by itself: {status}");
        let pace = Self { making, ending: victim.age().saturating_sub(over) };
        println!("{test}: {pace:?}");
        Ok(pace)
    }
}

/// When to kill: in which phase, and after how many thousandths of it.
struct Moment {
    phase: Phase,
    thousandths: u32,
}

impl Moment {
    fn wait_for(&self, victim: &mut Victim, pace: &Pace) -> Result<()> {
        let length = match self.phase {
            Phase::Making => pace.making,
            Phase::Running => {
                victim.wait_until_it_runs()?;
                STAY
            }
            Phase::Ending | Phase::Gone => {
                victim.wait_until_it_is_over()?;
                pace.ending
            }
        };
        sleep(length * self.thousandths / 1000);
        Ok(())
    }
}

/// The same kill times in every run.
fn moments(target: Target) -> impl Iterator<Item = Moment> {
    let mut state: u64 = match target {
        Target::TestProcess => 0x9e37_79b9_7f4a_7c15,
        Target::Warden => 0xd1b5_4a32_d192_ed03,
        Target::Both => 0x94d0_49bb_1331_11eb,
    };
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u32::try_from(state >> 40).unwrap_or_default()
    };
    std::iter::repeat_with(move || {
        let phase = match random() % 3 {
            0 => Phase::Making,
            1 => Phase::Running,
            _ => Phase::Ending,
        };
        Moment { phase, thousandths: random() % 1000 }
    })
}

/// Kills while the container runs, which must fail the test and, if no process is left to clean up,
/// leave what the check then finds.
fn kill_at_rest(target: Target, victim: &mut Victim, judge: &Judge) -> Result<()> {
    match target {
        Target::TestProcess => drop(victim.kill()?),
        Target::Warden => {
            signal(victim.warden().context("a warden")?, Signal::KILL)?;
            let status = victim.process.wait()?;
            ensure!(!status.success(), "a test whose warden was killed has passed");
        }
        Target::Both => {
            // No bed is made or swept while this is held.
            let all = File::open(beds_folder().join(".lock"))?;
            all.lock()?;
            // Stopped first, so that it cannot clean up after its warden.
            signal(victim.process.id(), Signal::STOP)?;
            signal(victim.warden().context("a warden")?, Signal::KILL)?;
            victim.kill()?;
            let found = judge.finds_now()?;
            let expected = ["cgroup: ", "folder: "];
            let all_found = expected.iter().all(|kind| found.contains(kind));
            ensure!(all_found, "expected {expected:?} to be found:\n{found}");
            drop(all);
            sweep()?;
        }
    }
    Ok(())
}

fn kill_at_any_time(target: Target, victim: &mut Victim, judge: &Judge) -> Result<()> {
    match target {
        Target::TestProcess => drop(victim.kill()?),
        Target::Warden => {
            // It may not be there yet, or no more.
            while victim.process.try_wait()?.is_none() {
                if let Some(warden) = victim.warden() {
                    // Gone in between: then it was too late, and the test has passed.
                    let _ = signal(warden, Signal::KILL);
                    break;
                }
                sleep(Duration::from_millis(1));
            }
            let status = victim.process.wait()?;
            let passed_too_early = status.success() && !victim.is_over();
            ensure!(!passed_too_early, "a test whose warden was killed has passed");
        }
        Target::Both => {
            if victim.process.try_wait()?.is_none() {
                signal(victim.process.id(), Signal::STOP)?;
                if let Some(warden) = victim.warden() {
                    let _ = signal(warden, Signal::KILL);
                }
                victim.kill()?;
            }
            let began = Instant::now();
            while began.elapsed() < SWEEPING && !judge.finds_now()?.is_empty() {
                sweep()?;
            }
        }
    }
    Ok(())
}

fn signal(process: u32, signal: Signal) -> Result<()> {
    let target = i32::try_from(process).ok().and_then(Pid::from_raw).context("a process id")?;
    kill_process(target, signal).with_context(|| format!("{signal:?} to {process}"))
}
