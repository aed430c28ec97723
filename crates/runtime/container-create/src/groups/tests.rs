//! Which devices a container may use.

use super::*;

#[test]
fn device_rules_start_with_deny_all_and_end_with_the_specification() {
    let extra = DeviceRuleSpec {
        allow: true,
        kind: "b".into(),
        major: Some(8),
        minor: None,
        access: "r".into(),
    };
    let spec = CgroupSpec { device_rules: vec![extra], ..CgroupSpec::default() };
    let rules = device_rules(&spec).expect("rules");
    assert_eq!(rules.first().expect("some").v1_text(), "a *:* rwm");
    assert!(!rules.first().expect("some").allow);
    assert_eq!(rules.last().expect("some").v1_text(), "b 8:* r");
    let all = CgroupSpec { all_devices: true, ..CgroupSpec::default() };
    assert_eq!(device_rules(&all).expect("rules").len(), 1);
}

#[test]
fn invalid_device_rules_are_refused() {
    for (kind, access) in [("x", "r"), ("c", ""), ("c", "rx")] {
        let rule =
            DeviceRuleSpec { kind: kind.into(), access: access.into(), ..Default::default() };
        assert!(device_rule(&rule).is_err(), "{kind} {access}");
    }
}
