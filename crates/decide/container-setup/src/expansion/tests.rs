//! The reference's rows for expansion, and the odd ones.

use super::*;

#[test]
fn references_are_replaced() {
    let values: BTreeMap<&str, &str> = [
        ("VAR_A", "A"),
        ("VAR_B", "B"),
        ("VAR_C", "C"),
        ("VAR_REF", "$(VAR_A)"),
        ("VAR_EMPTY", ""),
        ("", "nameless"),
    ]
    .into();
    for (text, expected) in [
        ("$(VAR_A)", "A"),
        ("___$(VAR_B)___", "___B___"),
        ("___$(VAR_C)", "___C"),
        ("$(VAR_A)-$(VAR_B)", "A-B"),
        ("$(VAR_REF)", "$(VAR_A)"),
        ("%%$(VAR_REF)--$(VAR_REF)%%", "%%$(VAR_A)--$(VAR_A)%%"),
        ("$(VAR_EMPTY)", ""),
        ("foo$(VAR_EMPTY)bar", "foobar"),
        ("$$(VAR_A)", "$(VAR_A)"),
        ("$$$(VAR_A)", "$A"),
        ("$$$$(VAR_A)", "$$(VAR_A)"),
        ("$$$$$$(VAR_A)", "$$$(VAR_A)"),
        ("$(VAR_A)$$", "A$"),
        ("$(MISSING)", "$(MISSING)"),
        ("x$(MISSING)y$(VAR_A)", "x$(MISSING)yA"),
        ("$(VAR_A", "$(VAR_A"),
        ("$(VAR_A$(VAR_B)", "$(VAR_A$(VAR_B)"),
        ("$()", "nameless"),
        ("$VAR_A", "$VAR_A"),
        ("$", "$"),
        ("$$", "$"),
        ("end$", "end$"),
        ("", ""),
        ("$(VAR_A)é$(VAR_B)", "AéB"),
        ("$é", "$é"),
        ("\n", "\n"),
        ("$(VAR_A) $(VAR_A", "A $(VAR_A"),
        ("f000-$__$(VAR_A)", "f000-$__A"),
        ("$?_boo_$(VAR_B)", "$?_boo_B"),
        ("$(VAR_A))", "A)"),
        ("$((VAR_A)", "$((VAR_A)"),
    ] {
        assert_eq!(expand_from(text, &values), expected, "{text}");
    }
}

#[test]
fn each_reference_is_looked_up_once_and_in_order() {
    let mut seen = Vec::new();
    let out = expand("$(a)$(b)$(a)", |name| {
        seen.push(name.to_owned());
        (name == "a").then(|| "$(b)".to_owned())
    });
    assert_eq!(out, "$(b)$(b)$(b)");
    assert_eq!(seen, ["a", "b", "a"]);
}
