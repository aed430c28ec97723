//! A simulated node: a runtime that fails, an agent that is killed at any step, events that are
//! lost, late and duplicated. Thousands of seeded runs; every step is checked against the
//! invariants.
//!
//! No task, no clock: time is a number that the simulator advances. A run that breaks an invariant
//! prints its seed and its trace.

use crate::simulation::run::{Chaos, run};

mod invariants;
mod node;
mod rng;
mod run;
mod worker;

const PODS: &[&str] = &[
    "Always app:web",
    "Always static app:web(ready,live,pre) app:log",
    "OnFailure app:job",
    "Never app:job app:other",
    "Never static init:prepare app:job",
    "Always init:one init:two app:web(startup,ready)",
    "Always side:proxy(startup,pre) init:one side:cache app:web(pre) grace=20",
    "OnFailure side:proxy app:job(pre)",
    "Never side:proxy(live) app:job app:more",
    "Always app:web(policy=Never) app:job(policy=OnFailure)",
    "Never init:one app:web(policy=Never,in3=RestartAllContainers) app:log grace=5",
    "Always host app:web(post) eph:debug(target=web)",
    "OnFailure app:job(policy=Never,in3=Restart) deadline=900",
    "Always side:proxy(post,startup) side:cache(post) app:web(post,ready) app:log",
];

#[test]
fn calm_pods_run_and_end() {
    for (at, pod) in PODS.iter().enumerate() {
        for seed in 0..10 {
            run(pod, seed * 100 + at as u64, Chaos::None);
        }
    }
}

#[test]
fn lost_late_and_repeated_events_cost_nothing_but_time() {
    for (at, pod) in PODS.iter().enumerate() {
        for seed in 0..50 {
            run(pod, seed * 100 + at as u64, Chaos::Events);
        }
    }
}

#[test]
fn an_agent_that_is_killed_changes_nothing() {
    for (at, pod) in PODS.iter().enumerate() {
        for seed in 0..70 {
            run(pod, seed * 100 + at as u64, Chaos::Kills);
        }
    }
}

#[test]
fn a_runtime_that_fails_and_forgets_is_survived() {
    for (at, pod) in PODS.iter().enumerate() {
        for seed in 0..70 {
            run(pod, seed * 100 + at as u64, Chaos::Everything);
        }
    }
}
