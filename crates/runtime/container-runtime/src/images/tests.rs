//! The small decisions; the calls themselves are tried on the real server.

use super::views::user_of;

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
