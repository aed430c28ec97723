//! Which users are allowed under `runAsNonRoot`.

use super::*;
use crate::testing::{first, one_with};

fn checked(spec: &str, container: &str, user: &ImageUser) -> Result<(), String> {
    let pod = one_with(spec, container);
    check_non_root(&pod, first(&pod), user).map_err(|error| error.to_string())
}

const ASKED: &str = "securityContext: {runAsNonRoot: true},";

#[test]
fn an_image_without_a_user_runs_as_root() {
    let image = |uid, name: &str| ImageRecord { uid, user_name: name.into(), ..Default::default() };
    for (image, expected) in [
        (image(Some(7), ""), ImageUser::Number(7)),
        (image(Some(0), "ignored"), ImageUser::Number(0)),
        (image(None, "app"), ImageUser::Name("app".into())),
        (image(None, ""), ImageUser::Number(0)),
    ] {
        assert_eq!(of_image(&image), expected);
    }
}

#[test]
fn users_that_satisfy_run_as_non_root() {
    let root = ImageUser::Number(0);
    let named = ImageUser::Name("app".into());
    for (spec, container, user) in [
        ("", "", &root),
        ("", "", &named),
        ("securityContext: {runAsNonRoot: false},", "", &root),
        (ASKED, "securityContext: {runAsNonRoot: false}", &root),
        (ASKED, "securityContext: {runAsUser: 5}", &root),
        (ASKED, "securityContext: {runAsUser: 5}", &named),
        ("securityContext: {runAsNonRoot: true, runAsUser: 5},", "", &root),
        (ASKED, "", &ImageUser::Number(1)),
        (ASKED, "", &ImageUser::Number(i64::from(i32::MAX))),
    ] {
        assert_eq!(checked(spec, container, user), Ok(()), "{spec} {container} {user:?}");
    }
}

#[test]
fn users_that_violate_run_as_non_root() {
    let place = "(pod: \"web_shop(u-1)\", container: app)";
    let own = "securityContext: {runAsNonRoot: true}";
    for (spec, container, user, text) in [
        (ASKED, "", ImageUser::Number(0), "container has runAsNonRoot and image will run as root"),
        ("", own, ImageUser::Number(0), "container has runAsNonRoot and image will run as root"),
        (
            ASKED,
            "",
            ImageUser::Name("app".into()),
            "container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root",
        ),
        (
            "securityContext: {runAsNonRoot: true, runAsUser: 5},",
            "securityContext: {runAsUser: 0}",
            ImageUser::Number(9),
            "container's runAsUser breaks non-root policy",
        ),
        (
            "securityContext: {runAsUser: 0},",
            own,
            ImageUser::Number(9),
            "container's runAsUser breaks non-root policy",
        ),
        (
            ASKED,
            "",
            ImageUser::Number(-1),
            "container has runAsNonRoot and image has an invalid user id (-1). (Must be 1-(2147483647)): must be between 0 and 2147483647, inclusive",
        ),
        (
            ASKED,
            "",
            ImageUser::Number(1 << 31),
            "container has runAsNonRoot and image has an invalid user id (2147483648). (Must be 1-(2147483647)): must be between 0 and 2147483647, inclusive",
        ),
    ] {
        assert_eq!(checked(spec, container, &user), Err(format!("{text} {place}")));
    }
}
