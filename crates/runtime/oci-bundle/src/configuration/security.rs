//! The process's user, capabilities and other security settings.

use container_create::capability_names::CAPABILITIES;
use container_create::spec::{CapabilitySpec, ProcessLimit, SecuritySpec};

use crate::json::{Json, Members, texts};

fn names(set: u64) -> Json {
    let all = CAPABILITIES.iter().enumerate().filter(|(number, _)| set >> number & 1 == 1);
    texts(&all.map(|(_, name)| format!("CAP_{name}")).collect::<Vec<_>>())
}

pub(super) fn capabilities(sets: &CapabilitySpec) -> Members {
    let mut all = Members::default();
    all.put("bounding", names(sets.bounding));
    all.put("effective", names(sets.effective));
    all.put("permitted", names(sets.permitted));
    all.put("inheritable", names(sets.inheritable));
    all.put("ambient", names(sets.ambient));
    all
}

pub(super) fn user(security: &SecuritySpec) -> Members {
    let mut all = Members::default();
    all.put("uid", security.uid);
    all.put("gid", security.gid);
    all.put_some("umask", security.umask);
    if !security.additional_gids.is_empty() {
        let groups = security.additional_gids.iter().copied().map(Json::from);
        all.put("additionalGids", Json::List(groups.collect()));
    }
    all
}

pub(super) fn limit(limit: &ProcessLimit) -> Json {
    let mut all = Members::default();
    all.put("type", &limit.name);
    all.put("soft", limit.soft);
    all.put("hard", limit.hard);
    all.into()
}
