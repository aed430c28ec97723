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
use node_testkit::bed::{beds_dir, sweep};
use real_tests::leftover_check::LeftoverCheck;
use rustix::process::{Pid, Signal, kill_process};

use super::victim::{BedPhase, Victim};

/// How long the container of a victim runs before the victim ends by itself.
const STAY: Duration = Duration::from_millis(300);
/// How long the next beds may take to clean up: killed processes hold their locks a little longer.
const SWEEPING: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KillTarget {
    TestProcess,
    Warden,
    Both,
}

/// How often each is killed: once in `cargo xtask test`, more with `cargo xtask soak`.
fn kills() -> Result<u32> {
    std::env::var("KEELSON_KILLS").map_or(Ok(1), |text| text.parse().context("KEELSON_KILLS"))
}

pub(super) fn kill_rounds(target: KillTarget, test: &'static str) -> Result<()> {
    let kills = kills()?;
    ensure!(kills > 0, "KEELSON_KILLS=0 shows nothing");
    let mut hits: BTreeMap<&str, u32> = BTreeMap::new();
    let mut count = |round: u32, after: Duration, phase: BedPhase| {
        let hit = describe(phase);
        println!("{target:?}: kill {round} after {} ms hit a bed {hit}", after.as_millis());
        *hits.entry(hit).or_default() += 1;
    };
    let leftover_check = LeftoverCheck::start()?;
    let mut victim = Victim::start(test, None)?;
    let age = victim.wait_until_it_runs()?;
    count(1, age, BedPhase::Running);
    kill_at_rest(target, &mut victim, &leftover_check)?;
    leftover_check.expect_none()?;
    drop(victim);
    let timings = if kills > 1 { BedTimings::measure(test)? } else { BedTimings::default() };
    for (round, kill_time) in (2..=kills).zip(kill_times(target)) {
        let leftover_check = LeftoverCheck::start()?;
        let mut victim = Victim::start(test, Some(STAY))?;
        kill_time.wait_for(&mut victim, &timings)?;
        let phase = victim.phase()?;
        count(round, victim.age(), phase);
        kill_at_any_time(target, &mut victim, &leftover_check)
            .with_context(|| format!("kill {round}"))?;
        leftover_check
            .expect_none()
            .with_context(|| format!("kill {round}, {}", describe(phase)))?;
    }
    println!("{target:?}: {kills} kills: {hits:?}");
    Ok(())
}

fn describe(phase: BedPhase) -> &'static str {
    match phase {
        BedPhase::Making => "in the making",
        BedPhase::Running => "running",
        BedPhase::Ending => "ending",
        BedPhase::Gone => "that was gone",
    }
}

/// The durations of a bed's creation and end on this machine.
#[derive(Debug, Default)]
struct BedTimings {
    making: Duration,
    ending: Duration,
}

impl BedTimings {
    /// Measures a victim that is not killed.
    fn measure(test: &'static str) -> Result<Self> {
        let mut victim = Victim::start(test, Some(STAY))?;
        let making = victim.wait_until_it_runs()?;
        let over = victim.wait_until_it_is_over()?;
        let status = victim.process.wait()?;
        ensure!(status.success(), "the victim failed by itself: {status}");
        let timings = Self { making, ending: victim.age().saturating_sub(over) };
        println!("{test}: {timings:?}");
        Ok(timings)
    }
}

/// When to kill: in which phase, and after how many thousandths of it.
struct KillTime {
    phase: BedPhase,
    thousandths: u32,
}

impl KillTime {
    fn wait_for(&self, victim: &mut Victim, timings: &BedTimings) -> Result<()> {
        let length = match self.phase {
            BedPhase::Making => timings.making,
            BedPhase::Running => {
                victim.wait_until_it_runs()?;
                STAY
            }
            BedPhase::Ending | BedPhase::Gone => {
                victim.wait_until_it_is_over()?;
                timings.ending
            }
        };
        sleep(length * self.thousandths / 1000);
        Ok(())
    }
}

/// The same kill times in every run.
fn kill_times(target: KillTarget) -> impl Iterator<Item = KillTime> {
    let mut state: u64 = match target {
        KillTarget::TestProcess => 0x9e37_79b9_7f4a_7c15,
        KillTarget::Warden => 0xd1b5_4a32_d192_ed03,
        KillTarget::Both => 0x94d0_49bb_1331_11eb,
    };
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u32::try_from(state >> 40).unwrap_or_default()
    };
    std::iter::repeat_with(move || {
        let phase = match random() % 3 {
            0 => BedPhase::Making,
            1 => BedPhase::Running,
            _ => BedPhase::Ending,
        };
        KillTime { phase, thousandths: random() % 1000 }
    })
}

/// Kills while the container runs, which must fail the test and, if no process is left to clean up,
/// leave what the check then finds.
fn kill_at_rest(
    target: KillTarget,
    victim: &mut Victim,
    leftover_check: &LeftoverCheck,
) -> Result<()> {
    match target {
        KillTarget::TestProcess => drop(victim.kill()?),
        KillTarget::Warden => {
            signal(victim.warden().context("a warden")?, Signal::KILL)?;
            let status = victim.process.wait()?;
            ensure!(!status.success(), "a test whose warden was killed has passed");
        }
        KillTarget::Both => {
            // No bed is made or swept while this is held.
            let all = File::open(beds_dir().join(".lock"))?;
            all.lock()?;
            // Stopped first, so that it cannot clean up after its warden.
            signal(victim.process.id(), Signal::STOP)?;
            signal(victim.warden().context("a warden")?, Signal::KILL)?;
            victim.kill()?;
            let found = leftover_check.current_leftovers()?;
            let expected = ["cgroup: ", "folder: "];
            let all_found = expected.iter().all(|kind| found.contains(kind));
            ensure!(all_found, "expected {expected:?} to be found:\n{found}");
            drop(all);
            sweep()?;
        }
    }
    Ok(())
}

fn kill_at_any_time(
    target: KillTarget,
    victim: &mut Victim,
    leftover_check: &LeftoverCheck,
) -> Result<()> {
    match target {
        KillTarget::TestProcess => drop(victim.kill()?),
        KillTarget::Warden => {
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
        KillTarget::Both => {
            if victim.process.try_wait()?.is_none() {
                signal(victim.process.id(), Signal::STOP)?;
                if let Some(warden) = victim.warden() {
                    let _ = signal(warden, Signal::KILL);
                }
                victim.kill()?;
            }
            let began = Instant::now();
            while began.elapsed() < SWEEPING && !leftover_check.current_leftovers()?.is_empty() {
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
