//! Who is admitted when.

use super::*;

fn pod(uid: &str) -> Arc<Pod> {
    let mut pod = Pod::default();
    pod.metadata.uid = Box::from(uid);
    Arc::new(pod)
}

#[test]
fn those_who_were_here_stay_and_new_ones_need_room() {
    let admissions =
        Admissions::new(NodeRoom { pods: 1, ..NodeRoom::default() }, NodeAbilities::default());
    let changes = admissions.changes();
    for uid in ["old-1", "old-2"] {
        admissions.decide(&pod(uid), true, true);
    }
    admissions.decide(&pod("new"), false, true);
    assert!(changes.has_changed().unwrap());
    let of = |uid: &str| admissions.watch(uid).borrow().clone();
    assert_eq!(of("old-2"), Admission::Admitted);
    assert!(matches!(of("new"), Admission::Rejected { .. }));
    assert_eq!(admissions.admitted().len(), 2);
    for uid in ["old-1", "old-2"] {
        admissions.release(uid);
    }
    admissions.decide(&pod("new"), false, true);
    assert!(matches!(of("new"), Admission::Rejected { .. }), "what was decided holds");
    admissions.release("new");
    admissions.decide(&pod("new"), false, true);
    assert_eq!(of("new"), Admission::Admitted);
    assert_eq!(of("nobody asked"), Admission::Admitted);
}
