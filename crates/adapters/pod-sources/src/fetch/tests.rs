//! Headers from a URL's user information.

use super::*;

#[test]
fn the_name_and_password_of_a_url_are_decoded() {
    for (user, plain) in [
        ("user:pass", "user:pass"),
        ("user:p%40ss", "user:p@ss"),
        ("us%C3%a9r:%2B", "us\u{e9}r:+"),
        // A sign is no hex digit.
        ("user:%+5", "user:%+5"),
        ("user:%-1", "user:%-1"),
        ("user:% 5", "user:% 5"),
        ("user:%5", "user:%5"),
        ("user:%", "user:%"),
        ("user:%%41", "user:%A"),
        ("a+b:c", "a+b:c"),
    ] {
        let mut start = RequestTarget::parse("http://server/").unwrap();
        start.user = Some(user.to_owned());
        let headers = sent_headers(&start, &[]);
        let coded = base64::engine::general_purpose::STANDARD.encode(plain);
        let expected = ("Authorization".to_owned(), format!("Basic {coded}"));
        assert_eq!(headers.first(), Some(&expected), "{user}");
    }
}
