//! Files of variables, good and bad.

use super::*;

#[test]
fn values_are_found() {
    for (content, key, expected) in [
        ("A='b'", "A", "b"),
        ("A='b'\nC='d'\n", "C", "d"),
        ("  A='b'", "A", "b"),
        ("\n\t\n# note\nA='b' # more", "A", "b"),
        ("A='b'#x", "A", "b"),
        ("A='two\nlines'", "A", "two\nlines"),
        ("A='$(x) \\n \"q\"'", "A", "$(x) \\n \"q\""),
        ("A='1'\nA='2'", "A", "1"),
        ("A= 'b'", "A", ""),
        ("A= 'b'\nC='d'", "C", "d"),
        ("A=''", "A", ""),
        ("A='b'", "missing", ""),
        ("", "A", ""),
        ("B='x\ny\n'\nA='c'", "A", "c"),
        ("A='b'\r\n", "A", "b"),
    ] {
        assert_eq!(value(content.as_bytes(), key).as_deref(), Ok(expected), "{content:?}");
    }
}

#[test]
fn mistakes_name_their_line() {
    for (content, line, message) in [
        ("A", 1, "no '='"),
        ("='b'", 1, "no name before '='"),
        ("A ='b'", 1, "a space before '='"),
        ("\nA=b", 2, "the value is not between single quotes"),
        ("A=\"b\"", 1, "the value is not between single quotes"),
        ("A='b' c", 1, "something after the closing quote"),
        ("A='b'\nB='x\ny", 2, "a quote that is never closed"),
        ("A='x\ny' z", 2, "something after the closing quote"),
    ] {
        let error = value(content.as_bytes(), "Z").expect_err(content);
        assert_eq!(error, EnvFileError { line, message }, "{content:?}");
    }
    assert_eq!(value(b"\xff", "A").expect_err("bytes").message, "not UTF-8");
    // A mistake after the variable does not matter.
    assert_eq!(value(b"A='b'\nbroken", "A").as_deref(), Ok("b"));
}
