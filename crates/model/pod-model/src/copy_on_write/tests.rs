//! Sharing and writing.

use super::CopyOnWrite;

#[test]
fn a_clone_shares_memory_until_the_first_write() {
    let one = CopyOnWrite::from(vec![1, 2]);
    let mut other = one.clone();
    assert!(one.shares_memory_with(&other));
    assert_eq!(one, CopyOnWrite::from(vec![1, 2]), "equal by value too");
    other.push(3);
    assert!(!one.shares_memory_with(&other));
    assert_eq!((&**one, &**other), (&[1, 2][..], &[1, 2, 3][..]));
    assert_ne!(one, other);
}
