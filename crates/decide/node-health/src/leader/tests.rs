//! The record as client-go writes it, and an election among candidates with wrong clocks, lost
//! responses and stalls: never two leaders at once.

use proptest::prelude::*;

use super::*;

fn at(seconds: i64) -> Moment {
    Moment::from_secs(seconds)
}

fn record(holder: &str, renewed: i64, transitions: i32) -> Record {
    Record {
        holder: holder.to_owned(),
        duration_seconds: 15,
        acquired: at(0).stamp(),
        renewed: at(renewed).stamp(),
        transitions,
    }
}

fn candidate() -> Candidate {
    Candidate::new("me", LeaderTimes::default(), at(0))
}

const CALM: Jitter = Jitter::new(0);

fn tell(candidate: &mut Candidate, second: i64, answer: Answer) -> Vec<Change> {
    candidate.answered(at(second), at(second), answer, CALM)
}

#[test]
fn times_that_work_together() {
    let secs = Duration::from_secs;
    let new = |lease, renew, retry| LeaderTimes::new(secs(lease), secs(renew), secs(retry));
    assert_eq!(new(15, 10, 2), Ok(LeaderTimes::default()));
    assert!(matches!(new(10, 10, 2), Err(LeaderTimesError::LeaseTooShort { .. })));
    assert!(matches!(new(15, 4, 2), Err(LeaderTimesError::RenewTooShort { .. })));
    assert!(new(15, 5, 2).is_ok(), "above 2 and 1.2 times 2");
    assert!(matches!(new(0, 10, 2), Err(LeaderTimesError::NoLease { .. })));
    assert_eq!(new(15, 10, 0), Err(LeaderTimesError::NoRetry));
    let split =
        LeaderTimes::new(Duration::from_millis(10_900), Duration::from_millis(10_500), secs(2));
    assert!(split.is_err(), "a record says 10 s, which is less than the deadline");
}

#[test]
fn the_first_creates() {
    let mut me = candidate();
    assert_eq!(me.step(at(0)), Step::Read);
    tell(&mut me, 0, Answer::NotFound);
    let Step::Create(mine) = me.step(at(1)) else { panic!("should create") };
    assert_eq!(mine, Record { acquired: at(1).stamp(), ..record("me", 1, 0) });
    assert_eq!(tell(&mut me, 1, Answer::Written(mine.clone())), [Change::Began]);
    assert_eq!((me.may_act_until(), me.leader()), (Some(at(11)), "me"));
    assert_eq!(me.step(at(2)), Step::Wait(at(3)));
    let Step::Update(renewed) = me.step(at(3)) else { panic!("should renew without reading") };
    assert_eq!(renewed, Record { renewed: at(3).stamp(), ..mine });
    assert_eq!(tell(&mut me, 3, Answer::Written(renewed)), []);
    assert_eq!(me.may_act_until(), Some(at(13)));
}

/// Only the creator of the record can be sure that no other leader has requests in flight.
#[test]
fn who_is_the_first() {
    let mine = |renewed| record("me", renewed, 0);
    let mut me = candidate();
    tell(&mut me, 0, Answer::NotFound);
    assert!(!me.is_first());
    assert_eq!(tell(&mut me, 1, Answer::Written(mine(1))), [Change::Began]);
    assert!(me.is_first());
    tell(&mut me, 3, Answer::Written(mine(3)));
    assert!(me.is_first(), "a renewal changes nothing");
    // In its second term it has a predecessor: itself.
    assert_eq!(me.changes(at(13)), [Change::Ended]);
    assert!(!me.is_first());
    tell(&mut me, 14, Answer::Failed);
    tell(&mut me, 15, Answer::Found(mine(3)));
    assert_eq!(tell(&mut me, 16, Answer::Written(mine(16))), [Change::Began]);
    assert!(!me.is_first());

    // A record created without a response may belong to another candidate by now.
    let mut me = candidate();
    tell(&mut me, 0, Answer::NotFound);
    tell(&mut me, 1, Answer::Failed);
    tell(&mut me, 4, Answer::Found(mine(1)));
    assert_eq!(tell(&mut me, 5, Answer::Written(mine(5))), [Change::Began]);
    assert!(!me.is_first());

    // A released record had a holder.
    let mut me = candidate();
    tell(&mut me, 0, Answer::Found(record("", 0, 4)));
    assert_eq!(tell(&mut me, 1, Answer::Written(record("me", 1, 5))), [Change::Began]);
    assert!(!me.is_first());
}

#[test]
fn acting_counts_from_sending() {
    let mut me = candidate();
    tell(&mut me, 0, Answer::NotFound);
    let Step::Create(mine) = me.step(at(0)) else { panic!("should create") };
    me.answered(at(0), at(7), Answer::Written(mine), CALM);
    assert!(me.may_act(at(9)));
    assert!(!me.may_act(at(10)));
}

#[test]
fn a_follower_waits_the_whole_duration_after_the_last_change() {
    let mut me = candidate();
    // The other's clock is years off; only the change counts.
    assert_eq!(
        tell(&mut me, 0, Answer::Found(record("other", -99_999, 3))),
        [Change::NewLeader("other".into())]
    );
    assert_eq!(me.step(at(1)), Step::Wait(at(2)));
    assert_eq!(me.step(at(2)), Step::Read);
    tell(&mut me, 10, Answer::Found(record("other", -99_989, 3)));
    tell(&mut me, 24, Answer::Found(record("other", -99_989, 3)));
    assert!(matches!(me.step(at(24)), Step::Wait(_)), "14 s since it changed");
    tell(&mut me, 25, Answer::Found(record("other", -99_989, 3)));
    let Step::Update(mine) = me.step(at(25)) else { panic!("should take over") };
    assert_eq!((mine.transitions, mine.acquired), (4, at(25).stamp()));
    assert_eq!(tell(&mut me, 25, Answer::Written(mine)), [Change::Began]);
}

#[test]
fn a_released_lease_is_taken_at_once() {
    let mut me = candidate();
    let free = Record { holder: String::new(), duration_seconds: 1, ..record("", 0, 5) };
    assert_eq!(tell(&mut me, 0, Answer::Found(free)), []);
    let Step::Update(mine) = me.step(at(0)) else { panic!("should take it") };
    assert_eq!(mine.transitions, 6);
}

#[test]
fn a_lost_race_is_no_lead() {
    let mut me = candidate();
    tell(&mut me, 0, Answer::NotFound);
    assert_eq!(tell(&mut me, 0, Answer::Failed), []);
    assert!(!me.may_act(at(0)));
    assert_eq!(me.step(at(1)), Step::Wait(at(2)));
    let spread = Candidate::new("me", LeaderTimes::default(), at(0)).pause(at(0), Jitter::new(999));
    assert_eq!(spread, Next::At(Moment::from_nanos(4_397_600_000)), "2 s and 0.999 of 2.4 s");
}

fn leading() -> Candidate {
    let mut me = candidate();
    tell(&mut me, 0, Answer::NotFound);
    let Step::Create(mine) = me.step(at(0)) else { panic!("should create") };
    tell(&mut me, 0, Answer::Written(mine));
    me
}

#[test]
fn a_leader_that_cannot_renew_stops_before_others_may_start() {
    let mut me = leading();
    assert!(matches!(me.step(at(2)), Step::Update(_)));
    assert_eq!(tell(&mut me, 2, Answer::Failed), []);
    assert_eq!(me.step(at(2)), Step::Read, "somebody may have changed it");
    assert_eq!(tell(&mut me, 3, Answer::Failed), []);
    assert_eq!(me.step(at(4)), Step::Wait(at(5)));
    assert_eq!(me.next_wake(), Some(at(5)));
    assert_eq!(me.changes(at(9)), []);
    assert_eq!(me.changes(at(10)), [Change::Ended]);
    assert_eq!(me.changes(at(11)), [], "told once");
}

#[test]
fn a_leader_that_was_replaced_stops_at_once() {
    let mut me = leading();
    tell(&mut me, 2, Answer::Failed);
    let changes = tell(&mut me, 3, Answer::Found(record("other", 3, 1)));
    assert_eq!(changes, [Change::Ended, Change::NewLeader("other".into())]);
    assert!(!me.may_act(at(3)));
}

#[test]
fn releasing() {
    let mut me = leading();
    let free = me.release(at(5)).expect("it is ours");
    let expected = Record {
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
struct Fight {
    lease: Option<Record>,
    version: u64,
    candidates: Vec<Fighter>,
}

struct Fighter {
    candidate: Candidate,
    offset: i64,
    stalled_until: i64,
    /// The request in flight: sent, arrives, answered, its kind, version seen, response lost.
    under_way: Option<Request>,
    read_version: u64,
}

struct Request {
    sent: i64,
    arrives: i64,
    answered: i64,
    step: Step,
    lost: bool,
    result: Option<(Answer, u64)>,
}

impl Fight {
    fn new(offsets: &[i64]) -> Self {
        let fighter = |(number, offset): (usize, &i64)| Fighter {
            candidate: Candidate::new(format!("c{number}"), LeaderTimes::default(), at(*offset)),
            offset: *offset,
            stalled_until: 0,
            under_way: None,
            read_version: 0,
        };
        Self {
            lease: None,
            version: 0,
            candidates: offsets.iter().enumerate().map(fighter).collect(),
        }
    }

    fn serve(lease: &mut Option<Record>, version: &mut u64, fighter: &mut Fighter) {
        let Some(request) = &mut fighter.under_way else { return };
        let answer = match (&request.step, &mut *lease) {
            (Step::Read, Some(record)) => Answer::Found(record.clone()),
            (Step::Read, None) => Answer::NotFound,
            (Step::Create(record), slot @ None) => {
                *slot = Some(record.clone());
                *version += 1;
                Answer::Written(record.clone())
            }
            (Step::Update(record), slot @ Some(_)) if fighter.read_version == *version => {
                *slot = Some(record.clone());
                *version += 1;
                Answer::Written(record.clone())
            }
            _ => Answer::Failed,
        };
        request.result = Some((answer, *version));
    }

    /// Simulates one second. Returns the candidates that may act.
    fn second(&mut self, now: i64, dice: &mut impl FnMut() -> u64) -> Vec<usize> {
        for fighter in &mut self.candidates {
            if fighter.under_way.as_ref().is_some_and(|it| it.arrives == now && it.result.is_none())
            {
                Self::serve(&mut self.lease, &mut self.version, fighter);
            }
            if now < fighter.stalled_until {
                continue;
            }
            if dice().is_multiple_of(40) {
                fighter.stalled_until = now + i64::try_from(dice() % 40).unwrap_or(0);
                continue;
            }
            let here = at(now + fighter.offset);
            fighter.candidate.changes(here);
            if let Some(request) = fighter.under_way.take_if(|it| it.answered <= now) {
                let (answer, version) = request.result.unwrap_or((Answer::Failed, 0));
                let answer = if request.lost { Answer::Failed } else { answer };
                if matches!(answer, Answer::Found(_) | Answer::Written(_)) {
                    fighter.read_version = version;
                }
                let jitter = Jitter::new(u16::try_from(dice() % 1_000).unwrap_or(0));
                fighter.candidate.answered(at(request.sent + fighter.offset), here, answer, jitter);
            }
            let step = fighter.candidate.step(here);
            if fighter.under_way.is_none() && !matches!(step, Step::Wait(_)) {
                let arrives = now + 1 + i64::try_from(dice() % 3).unwrap_or(0);
                let answered = arrives + i64::try_from(dice() % 3).unwrap_or(0);
                let lost = dice().is_multiple_of(5);
                fighter.under_way =
                    Some(Request { sent: now, arrives, answered, step, lost, result: None });
            }
        }
        let may = |(number, it): (usize, &Fighter)| {
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
        let mut dice = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut fight = Fight::new(&offsets);
        let mut led = 0;
        let mut who = std::collections::BTreeSet::new();
        for now in 1..3_000 {
            let leaders = fight.second(now, &mut dice);
            prop_assert!(leaders.len() <= 1, "{leaders:?} at {now}");
            led += leaders.len();
            who.extend(leaders);
        }
        prop_assert!(led > 500, "somebody leads most of the time: {led}");
        prop_assert!(who.len() > 1, "the lead changes hands");
    }
}
