//! Finding the descendants of a process.

use super::*;

#[test]
fn the_whole_tree_below_a_process_is_found_and_nothing_else() {
    let parents = BTreeMap::from([(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (6, 1)]);
    assert_eq!(descendants_of(2, &parents), vec![3, 4, 5]);
    assert_eq!(descendants_of(6, &parents), Vec::<u32>::new());
}

#[test]
fn a_child_of_this_process_is_seen() {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
    let below = descendants_of(std::process::id(), &parents());
    child.kill().expect("kill it");
    child.wait().expect("its end");
    assert!(below.contains(&child.id()), "{below:?}");
}
