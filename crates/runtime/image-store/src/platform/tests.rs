//! Which offered platform is chosen, as a table of preferences.

use super::Platform;
use crate::spec::PlatformField;

fn offered(text: &str) -> PlatformField {
    let mut parts = text.split('/').map(str::to_owned);
    PlatformField {
        os: parts.next().unwrap_or_default(),
        architecture: parts.next().unwrap_or_default(),
        variant: parts.next().unwrap_or_default(),
    }
}

#[test]
fn the_best_matching_platform_is_chosen() {
    let rows: &[(Platform, &[&str], Option<&str>)] = &[
        (Platform::linux("amd64", ""), &["linux/arm64", "linux/amd64"], Some("linux/amd64")),
        (Platform::linux("amd64", ""), &["linux/amd64/v3", "linux/amd64"], Some("linux/amd64")),
        (
            Platform::linux("amd64", "v3"),
            &["linux/amd64", "linux/amd64/v2"],
            Some("linux/amd64/v2"),
        ),
        (Platform::linux("amd64", "v2"), &["linux/amd64/v3"], None),
        (Platform::linux("amd64", ""), &["linux/x86_64"], Some("linux/x86_64")),
        (Platform::linux("arm64", ""), &["linux/arm64/v8", "linux/arm/v7"], Some("linux/arm64/v8")),
        (Platform::linux("arm64", "v8"), &["linux/arm64"], Some("linux/arm64")),
        (Platform::linux("arm64", ""), &["linux/arm64/v9"], None),
        (Platform::linux("arm", "v7"), &["linux/arm/v5", "linux/arm/v6"], Some("linux/arm/v6")),
        (Platform::linux("arm", "v6"), &["linux/arm"], None),
        (Platform::linux("riscv64", ""), &["linux/riscv64"], Some("linux/riscv64")),
        (Platform::linux("amd64", ""), &["windows/amd64", "unknown/unknown"], None),
    ];
    for (machine, texts, expected) in rows {
        let best = texts
            .iter()
            .filter_map(|text| Some((machine.suits(&offered(text))?, *text)))
            .max_by_key(|(score, _)| *score);
        assert_eq!(best.map(|(_, text)| text), *expected, "{machine} of {texts:?}");
    }
}
