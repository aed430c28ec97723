//! The record as client-go writes it, and an election among candidates with wrong clocks, lost
//! responses and stalls: never two leaders at once.

use proptest::prelude::*;

use super::*;

fn at(seconds: i64) -> ControllerTime {
    ControllerTime::from_secs(seconds)
}

fn record(holder: &str, renewed: i64, transitions: i32) -> LeaderElectionRecord {
    LeaderElectionRecord {
        holder: holder.to_owned(),
        duration_seconds: 15,
        acquired: at(0).stamp(),
        renewed: at(renewed).stamp(),
        transitions,
    }
}

fn candidate() -> Candidate {
    Candidate::new("me", LeaderElectionTimes::default(), at(0))
}

const CALM: Jitter = Jitter::new(0);

fn answer(
    candidate: &mut Candidate,
    second: i64,
    lease_result: LeaseResult,
) -> Vec<LeadershipChange> {
    candidate.on_result(at(second), at(second), lease_result, CALM)
}

#[test]
fn times_that_work_together() {
    let secs = Duration::from_secs;
    let new = |lease, renew, retry| LeaderElectionTimes::new(secs(lease), secs(renew), secs(retry));
    assert_eq!(new(15, 10, 2), Ok(LeaderElectionTimes::default()));
    assert!(matches!(new(10, 10, 2), Err(LeaderElectionTimesError::LeaseTooShort { .. })));
    assert!(matches!(new(15, 4, 2), Err(LeaderElectionTimesError::RenewTooShort { .. })));
    assert!(new(15, 5, 2).is_ok(), "above 2 and 1.2 times 2");
    assert!(matches!(new(0, 10, 2), Err(LeaderElectionTimesError::NoLease { .. })));
    assert_eq!(new(15, 10, 0), Err(LeaderElectionTimesError::NoRetry));
    let split = LeaderElectionTimes::new(
        Duration::from_millis(10_900),
        Duration::from_millis(10_500),
        secs(2),
    );
    assert!(split.is_err(), "a record says 10 s, which is less than the deadline");
}

#[test]
fn the_first_creates() {
    let mut me = candidate();
    assert_eq!(me.step(at(0)), LeaseStep::Read);
    answer(&mut me, 0, LeaseResult::NotFound);
    let LeaseStep::Create(mine) = me.step(at(1)) else { panic!("should create") };
    assert_eq!(mine, LeaderElectionRecord { acquired: at(1).stamp(), ..record("me", 1, 0) });
    assert_eq!(answer(&mut me, 1, LeaseResult::Written(mine.clone())), [LeadershipChange::Began]);
    assert_eq!((me.may_act_until(), me.leader()), (Some(at(11)), "me"));
    assert_eq!(me.step(at(2)), LeaseStep::Wait(at(3)));
    let LeaseStep::Update(renewed) = me.step(at(3)) else { panic!("should renew without reading") };
    assert_eq!(renewed, LeaderElectionRecord { renewed: at(3).stamp(), ..mine });
    assert_eq!(answer(&mut me, 3, LeaseResult::Written(renewed)), []);
    assert_eq!(me.may_act_until(), Some(at(13)));
}

/// Only the creator of the record can be sure that no other leader has requests in flight.
#[test]
fn the_creator_of_the_lease_is_the_first_leader() {
    let mine = |renewed| record("me", renewed, 0);
    let mut me = candidate();
    answer(&mut me, 0, LeaseResult::NotFound);
    assert!(!me.is_first());
    assert_eq!(answer(&mut me, 1, LeaseResult::Written(mine(1))), [LeadershipChange::Began]);
    assert!(me.is_first());
    answer(&mut me, 3, LeaseResult::Written(mine(3)));
    assert!(me.is_first(), "a renewal changes nothing");
    // In its second term it has a predecessor: itself.
    assert_eq!(me.changes(at(13)), [LeadershipChange::Ended]);
    assert!(!me.is_first());
    answer(&mut me, 14, LeaseResult::Failed);
    answer(&mut me, 15, LeaseResult::Found(mine(3)));
    assert_eq!(answer(&mut me, 16, LeaseResult::Written(mine(16))), [LeadershipChange::Began]);
    assert!(!me.is_first());

    // A record created without a response may belong to another candidate by now.
    let mut me = candidate();
    answer(&mut me, 0, LeaseResult::NotFound);
    answer(&mut me, 1, LeaseResult::Failed);
    answer(&mut me, 4, LeaseResult::Found(mine(1)));
    assert_eq!(answer(&mut me, 5, LeaseResult::Written(mine(5))), [LeadershipChange::Began]);
    assert!(!me.is_first());

    // A released record had a holder.
    let mut me = candidate();
    answer(&mut me, 0, LeaseResult::Found(record("", 0, 4)));
    assert_eq!(
        answer(&mut me, 1, LeaseResult::Written(record("me", 1, 5))),
        [LeadershipChange::Began]
    );
    assert!(!me.is_first());
}

#[test]
fn acting_counts_from_sending() {
    let mut me = candidate();
    answer(&mut me, 0, LeaseResult::NotFound);
    let LeaseStep::Create(mine) = me.step(at(0)) else { panic!("should create") };
    me.on_result(at(0), at(7), LeaseResult::Written(mine), CALM);
    assert!(me.may_act(at(9)));
    assert!(!me.may_act(at(10)));
}

#[test]
fn a_follower_waits_the_whole_duration_after_the_last_change() {
    let mut me = candidate();
    // The other's clock is years off; only the change counts.
    assert_eq!(
        answer(&mut me, 0, LeaseResult::Found(record("other", -99_999, 3))),
        [LeadershipChange::NewLeader("other".into())]
    );
    assert_eq!(me.step(at(1)), LeaseStep::Wait(at(2)));
    assert_eq!(me.step(at(2)), LeaseStep::Read);
    answer(&mut me, 10, LeaseResult::Found(record("other", -99_989, 3)));
    answer(&mut me, 24, LeaseResult::Found(record("other", -99_989, 3)));
    assert!(matches!(me.step(at(24)), LeaseStep::Wait(_)), "14 s since it changed");
    answer(&mut me, 25, LeaseResult::Found(record("other", -99_989, 3)));
    let LeaseStep::Update(mine) = me.step(at(25)) else { panic!("should take over") };
    assert_eq!((mine.transitions, mine.acquired), (4, at(25).stamp()));
    assert_eq!(answer(&mut me, 25, LeaseResult::Written(mine)), [LeadershipChange::Began]);
}

#[test]
fn a_released_lease_is_taken_at_once() {
    let mut me = candidate();
    let free =
        LeaderElectionRecord { holder: String::new(), duration_seconds: 1, ..record("", 0, 5) };
    assert_eq!(answer(&mut me, 0, LeaseResult::Found(free)), []);
    let LeaseStep::Update(mine) = me.step(at(0)) else { panic!("should take it") };
    assert_eq!(mine.transitions, 6);
}

#[test]
fn a_lost_race_is_no_lead() {
    let mut me = candidate();
    answer(&mut me, 0, LeaseResult::NotFound);
    assert_eq!(answer(&mut me, 0, LeaseResult::Failed), []);
    assert!(!me.may_act(at(0)));
    assert_eq!(me.step(at(1)), LeaseStep::Wait(at(2)));
    let spread =
        Candidate::new("me", LeaderElectionTimes::default(), at(0)).pause(at(0), Jitter::new(999));
    assert_eq!(
        spread,
        NextLeaseStep::At(ControllerTime::from_nanos(4_397_600_000)),
        "2 s and 0.999 of 2.4 s"
    );
}

fn leading() -> Candidate {
    let mut me = candidate();
    answer(&mut me, 0, LeaseResult::NotFound);
    let LeaseStep::Create(mine) = me.step(at(0)) else { panic!("should create") };
    answer(&mut me, 0, LeaseResult::Written(mine));
    me
}

#[test]
fn a_leader_that_cannot_renew_stops_before_others_may_start() {
    let mut me = leading();
    assert!(matches!(me.step(at(2)), LeaseStep::Update(_)));
    assert_eq!(answer(&mut me, 2, LeaseResult::Failed), []);
    assert_eq!(me.step(at(2)), LeaseStep::Read, "somebody may have changed it");
    assert_eq!(answer(&mut me, 3, LeaseResult::Failed), []);
    assert_eq!(me.step(at(4)), LeaseStep::Wait(at(5)));
    assert_eq!(me.next_wake(), Some(at(5)));
    assert_eq!(me.changes(at(9)), []);
    assert_eq!(me.changes(at(10)), [LeadershipChange::Ended]);
    assert_eq!(me.changes(at(11)), [], "told once");
}

#[test]
fn a_leader_that_was_replaced_stops_at_once() {
    let mut me = leading();
    answer(&mut me, 2, LeaseResult::Failed);
    let changes = answer(&mut me, 3, LeaseResult::Found(record("other", 3, 1)));
    assert_eq!(changes, [LeadershipChange::Ended, LeadershipChange::NewLeader("other".into())]);
    assert!(!me.may_act(at(3)));
}

#[test]
fn releasing() {
    let mut me = leading();
    let free = me.release(at(5)).expect("it is ours");
    let expected = LeaderElectionRecord {
        holder: String::new(),
        duration_seconds: 1,
        acquired: at(5).stamp(),
        renewed: at(5).stamp(),
        transitions: 0,
    };
    assert_eq!(free, expected);
    assert!(!me.may_act(at(5)));
    assert_eq!(candidate().release(at(5)), None);
}

/// One lease on a server, and several candidates with their own clocks.
struct SimulatedElection {
    lease: Option<LeaderElectionRecord>,
    version: u64,
    candidates: Vec<SimulatedCandidate>,
}

struct SimulatedCandidate {
    candidate: Candidate,
    offset: i64,
    stalled_until: i64,
    /// The request in flight: sent, arrives, answered, its kind, version seen, response lost.
    under_way: Option<LeaseRequest>,
    read_version: u64,
}

struct LeaseRequest {
    sent: i64,
    arrives: i64,
    on_result: i64,
    step: LeaseStep,
    lost: bool,
    result: Option<(LeaseResult, u64)>,
}

impl SimulatedElection {
    fn new(offsets: &[i64]) -> Self {
        let contender = |(number, offset): (usize, &i64)| SimulatedCandidate {
            candidate: Candidate::new(
                format!("c{number}"),
                LeaderElectionTimes::default(),
                at(*offset),
            ),
            offset: *offset,
            stalled_until: 0,
            under_way: None,
            read_version: 0,
        };
        Self {
            lease: None,
            version: 0,
            candidates: offsets.iter().enumerate().map(contender).collect(),
        }
    }

    fn serve(
        lease: &mut Option<LeaderElectionRecord>,
        version: &mut u64,
        contender: &mut SimulatedCandidate,
    ) {
        let Some(request) = &mut contender.under_way else { return };
        let lease_result = match (&request.step, &mut *lease) {
            (LeaseStep::Read, Some(record)) => LeaseResult::Found(record.clone()),
            (LeaseStep::Read, None) => LeaseResult::NotFound,
            (LeaseStep::Create(record), slot @ None) => {
                *slot = Some(record.clone());
                *version += 1;
                LeaseResult::Written(record.clone())
            }
            (LeaseStep::Update(record), slot @ Some(_)) if contender.read_version == *version => {
                *slot = Some(record.clone());
                *version += 1;
                LeaseResult::Written(record.clone())
            }
            _ => LeaseResult::Failed,
        };
        request.result = Some((lease_result, *version));
    }

    /// Simulates one second. Returns the candidates that may act.
    fn second(&mut self, now: i64, rng: &mut impl FnMut() -> u64) -> Vec<usize> {
        for contender in &mut self.candidates {
            if contender
                .under_way
                .as_ref()
                .is_some_and(|it| it.arrives == now && it.result.is_none())
            {
                Self::serve(&mut self.lease, &mut self.version, contender);
            }
            if now < contender.stalled_until {
                continue;
            }
            if rng().is_multiple_of(40) {
                contender.stalled_until = now + i64::try_from(rng() % 40).unwrap_or(0);
                continue;
            }
            let here = at(now + contender.offset);
            contender.candidate.changes(here);
            if let Some(request) = contender.under_way.take_if(|it| it.on_result <= now) {
                let (lease_result, version) = request.result.unwrap_or((LeaseResult::Failed, 0));
                let lease_result = if request.lost { LeaseResult::Failed } else { lease_result };
                if matches!(lease_result, LeaseResult::Found(_) | LeaseResult::Written(_)) {
                    contender.read_version = version;
                }
                let jitter = Jitter::new(u16::try_from(rng() % 1_000).unwrap_or(0));
                contender.candidate.on_result(
                    at(request.sent + contender.offset),
                    here,
                    lease_result,
                    jitter,
                );
            }
            let step = contender.candidate.step(here);
            if contender.under_way.is_none() && !matches!(step, LeaseStep::Wait(_)) {
                let arrives = now + 1 + i64::try_from(rng() % 3).unwrap_or(0);
                let on_result = arrives + i64::try_from(rng() % 3).unwrap_or(0);
                let lost = rng().is_multiple_of(5);
                contender.under_way =
                    Some(LeaseRequest { sent: now, arrives, on_result, step, lost, result: None });
            }
        }
        let may = |(number, it): (usize, &SimulatedCandidate)| {
            it.candidate.may_act(at(now + it.offset)).then_some(number)
        };
        self.candidates.iter().enumerate().filter_map(may).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn never_two_leaders(seed in 1_u64.., offsets in proptest::collection::vec(-1_000_000_i64..1_000_000, 2..5)) {
        let mut state = seed;
        let mut rng = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut election = SimulatedElection::new(&offsets);
        let mut led = 0;
        let mut leaders_seen = std::collections::BTreeSet::new();
        for now in 1..3_000 {
            let leaders = election.second(now, &mut rng);
            prop_assert!(leaders.len() <= 1, "{leaders:?} at {now}");
            led += leaders.len();
            leaders_seen.extend(leaders);
        }
        prop_assert!(led > 500, "somebody leads most of the time: {led}");
        prop_assert!(leaders_seen.len() > 1, "the lead changes hands");
    }
}
