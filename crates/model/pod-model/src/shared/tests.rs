//! Sharing and writing.

use super::Shared;

#[test]
fn a_copy_is_the_same_memory_until_somebody_writes() {
    let one = Shared::from(vec![1, 2]);
    let mut other = one.clone();
    assert!(one.is_one_with(&other));
    assert_eq!(one, Shared::from(vec![1, 2]), "equal by value too");
    other.push(3);
    assert!(!one.is_one_with(&other));
    assert_eq!((&**one, &**other), (&[1, 2][..], &[1, 2, 3][..]));
    assert_ne!(one, other);
}
