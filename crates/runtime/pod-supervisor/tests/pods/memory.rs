//! Memory use of a supervisor. The numbers are printed; the limit holds for every build.

use std::collections::BTreeMap;

use super::fixture::{PodFixture, run};

/// Kibibytes by name, from `smaps_rollup`.
fn memory(pid: u32) -> BTreeMap<String, u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("read");
    text.lines()
        .filter_map(|line| {
            let (name, rest) = line.split_once(':')?;
            Some((name.to_owned(), rest.trim().strip_suffix(" kB")?.parse().ok()?))
        })
        .collect()
}

fn show(what: &str, pid: u32) -> u64 {
    let of = memory(pid);
    let get = |name: &str| of.get(name).copied().unwrap_or_default();
    // The program's own pages are in a memfd and count as dirty; pods share them.
    let own = get("Anonymous");
    let (share, dirty) = (get("Pss"), get("Private_Dirty"));
    println!("{what}: PSS {share} KiB, Private_Dirty {dirty} KiB, anonymous {own} KiB");
    own
}

#[test]
fn pods_share_the_program() {
    run(async {
        let mut fixtures = Vec::new();
        for _ in 0..10 {
            let fixture = PodFixture::new().await;
            let spec = fixture.spec("main", "echo hello; sleep 1000");
            fixture.start(spec).await;
            fixtures.push(fixture);
        }
        let sum = |name: &str| {
            let all = fixtures.iter().map(|fixture| memory(fixture.supervisor).get(name).copied());
            all.map(Option::unwrap_or_default).sum::<u64>() / fixtures.len() as u64
        };
        let (share, dirty) = (sum("Pss"), sum("Private_Dirty"));
        println!("of ten pods, each: PSS {share} KiB, Private_Dirty {dirty} KiB");
        // A debug build with a dynamic loader; SPECIFICATION.md has the release build's number.
        assert!(dirty <= 1024, "{dirty} KiB");
        for fixture in &mut fixtures {
            fixture.shut_down().await;
        }
    });
}

#[test]
fn a_supervisor_is_small_and_stays_small() {
    run(async {
        let mut fixture = PodFixture::new().await;
        show("empty pod", fixture.supervisor);
        let spec = fixture.spec("main", "sleep 1000");
        fixture.start(spec).await;
        let one = show("one container", fixture.supervisor);
        // Floods and execs leave no memory behind.
        for round in 0..5 {
            let id = format!("flood{round}");
            let lines = fixture.output(&id, "seq 50000").await;
            assert_eq!(lines.len(), 50_000);
            fixture.client.delete(&id).await.expect("deleted");
            for _ in 0..20 {
                fixture.exec("main", "true").await;
            }
        }
        let after = show("after floods and execs", fixture.supervisor);
        assert!(after <= one + 256, "it grew from {one} to {after} KiB");
        for number in 0..4 {
            let spec = fixture.spec(&format!("more{number}"), "echo hello; sleep 1000");
            fixture.start(spec).await;
        }
        let five = show("five containers", fixture.supervisor);
        assert!(five <= after + 4 * 128, "a container costs {} KiB", (five - after) / 4);
        fixture.shut_down().await;
    });
}
