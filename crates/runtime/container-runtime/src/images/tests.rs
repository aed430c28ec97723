//! Unit tests of small functions; the calls themselves are tested on the real server.

use super::views::user_of;
use super::{Puller, RuntimeImages};
use crate::settings::RuntimeSettings;

#[test]
fn a_store_that_cannot_be_swept_is_served() {
    let root = tempfile::tempdir().unwrap();
    let settings = RuntimeSettings::new(root.path().join("root"), root.path().join("state"));
    let open = || RuntimeImages::open(root.path(), Puller::new(&settings).unwrap());
    drop(open().unwrap());
    // A corrupt lease: what it keeps is not known, so nothing is swept.
    std::fs::write(root.path().join("images/leases/odd.json"), "odd").unwrap();
    let images = open().unwrap();
    assert!(images.store().sweep().is_err(), "nothing is shown");
}

#[test]
fn the_user_of_an_image_is_a_number_or_a_name() {
    for (user, uid, name) in [
        ("", None, ""),
        ("1000", Some(1000), ""),
        ("1000:50", Some(1000), ""),
        ("web", None, "web"),
        ("web:web", None, "web"),
    ] {
        assert_eq!(user_of(user), (uid, name.to_owned()), "{user:?}");
    }
}
