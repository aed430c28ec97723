//! The precedence of the environment variables.

use std::path::PathBuf;

use super::choose;

fn chosen(set: &[(&str, &str)]) -> Option<PathBuf> {
    choose(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| PathBuf::from(value)))
}

#[test]
fn own_variable_wins_then_xdg_then_home() {
    let home = ("HOME", "/home/a");
    let xdg = ("XDG_CACHE_HOME", "/xdg");
    let own = ("KEELSON_CACHE", "/own");
    assert_eq!(chosen(&[home, xdg, own]), Some(PathBuf::from("/own")));
    assert_eq!(chosen(&[home, xdg]), Some(PathBuf::from("/xdg/keelson")));
    assert_eq!(chosen(&[home]), Some(PathBuf::from("/home/a/.cache/keelson")));
    assert_eq!(chosen(&[]), None);
}
