//! The user and groups of a container, from the pod's request and the image's tables. Pure.
//!
//! upstream: containerd pkg/oci/spec_opts.go (WithUser, WithAdditionalGIDs)

use std::collections::BTreeSet;

use cri_wire::v1;

use crate::failure::{CriError, Result};

#[cfg(test)]
mod tests;

/// The largest id of a user or group, as in Kubernetes' validation. To the kernel the number with
/// all bits set means "unchanged", which would be root (CVE-2024-40635's class).
const MAX_SIZE: u32 = i32::MAX.unsigned_abs();

fn id(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id <= MAX_SIZE)
}

/// None: it is a name. Digits alone are never a name: admission checks take them for a number, and
/// an image could have a root of that name.
fn id_or_name(what: &str, text: &str) -> Result<Option<u32>> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(None);
    }
    let wrong = || CriError::plain(format!("{what} {text} is no number from 0 to {MAX_SIZE}"));
    id(text).map(Some).ok_or_else(wrong)
}

/// The image's user and group tables.
#[derive(Debug, Clone, Default)]
pub struct UserTables {
    pub passwd: Option<String>,
    pub group: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedUser {
    pub uid: u32,
    pub gid: u32,
    /// Sorted; contains `gid`.
    pub groups: Vec<u32>,
    pub home: String,
}

struct PasswdEntry<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
}

impl UserTables {
    fn users(&self) -> impl Iterator<Item = PasswdEntry<'_>> {
        self.passwd.iter().flat_map(|text| text.lines()).filter_map(|line| {
            let mut parts = line.split(':');
            let name = parts.next()?;
            let _password = parts.next()?;
            let (uid, gid) = (id(parts.next()?)?, id(parts.next()?)?);
            let _comment = parts.next();
            Some(PasswdEntry { name, uid, gid, home: parts.next().unwrap_or_default() })
        })
    }

    /// Name, number and members.
    fn groups(&self) -> impl Iterator<Item = (&str, u32, &str)> {
        self.group.iter().flat_map(|text| text.lines()).filter_map(|line| {
            let mut parts = line.split(':');
            let name = parts.next()?;
            let _password = parts.next()?;
            let gid = id(parts.next()?)?;
            Some((name, gid, parts.next().unwrap_or_default()))
        })
    }

    fn user_by_name(&self, name: &str) -> Result<PasswdEntry<'_>> {
        self.users().find(|user| user.name == name).ok_or_else(|| {
            CriError::plain(format!("user {name:?} is not in the image's /etc/passwd"))
        })
    }

    fn group_by_name(&self, name: &str) -> Result<u32> {
        self.groups().find(|(known, ..)| *known == name).map(|(_, gid, _)| gid).ok_or_else(|| {
            CriError::plain(format!("group {name:?} is not in the image's /etc/group"))
        })
    }
}

/// `user[:group]`, each a number or a name; empty if neither pod nor image sets one.
pub(super) fn user_text(
    security: &v1::LinuxContainerSecurityContext,
    image_user: &str,
) -> Result<String> {
    let number = |value: &v1::Int64Value| value.value.to_string();
    let user = if !security.run_as_username.is_empty() {
        security.run_as_username.clone()
    } else if let Some(uid) = &security.run_as_user {
        number(uid)
    } else {
        String::new()
    };
    match (user.is_empty(), &security.run_as_group) {
        (true, Some(_)) => Err(CriError::plain("user group is specified without user")),
        (true, None) => Ok(image_user.to_owned()),
        (false, Some(gid)) => Ok(format!("{user}:{}", number(gid))),
        (false, None) => Ok(user),
    }
}

/// Resolves the user and all of its groups.
pub fn resolve(
    security: &v1::LinuxContainerSecurityContext,
    image_user: &str,
    tables: &UserTables,
) -> Result<ResolvedUser> {
    let text = user_text(security, image_user)?;
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text.as_str(), None),
    };
    let user = if user.is_empty() { "0" } else { user };
    let (uid, mut gid, name) = match id_or_name("user", user)? {
        Some(uid) => {
            let known = tables.users().find(|user| user.uid == uid);
            let gid = known.as_ref().map_or(0, |user| user.gid);
            (uid, gid, known.map(|user| user.name.to_owned()))
        }
        None => {
            let known = tables.user_by_name(user)?;
            (known.uid, known.gid, Some(known.name.to_owned()))
        }
    };
    if let Some(group) = group.filter(|group| !group.is_empty()) {
        gid = match id_or_name("group", group)? {
            Some(gid) => gid,
            None => tables.group_by_name(group)?,
        };
    }
    let mut groups = BTreeSet::from([gid]);
    match security.supplemental_groups_policy() {
        v1::SupplementalGroupsPolicy::Merge => {
            let member = |members: &str| {
                name.as_deref().is_some_and(|name| members.split(',').any(|one| one == name))
            };
            groups.extend(tables.groups().filter(|(.., all)| member(all)).map(|(_, gid, _)| gid));
        }
        v1::SupplementalGroupsPolicy::Strict => {}
    }
    for group in &security.supplemental_groups {
        let known = u32::try_from(*group).ok().filter(|group| *group <= MAX_SIZE);
        groups.insert(known.ok_or_else(|| {
            CriError::invalid(format!("supplemental group {group} is no group number"))
        })?);
    }
    let home = tables.users().find(|known| known.uid == uid).map(|known| known.home.to_owned());
    let home = home.filter(|home| !home.is_empty()).unwrap_or_else(|| "/".to_owned());
    Ok(ResolvedUser { uid, gid, groups: groups.into_iter().collect(), home })
}
