//! The fence at a take-over: what an earlier leader had sent can give no range away any more.
//!
//! A range is written guarded by its node's version, and by that alone: what a dead leader had sent
//! for one node may be taken at the very moment at which its successor gives the same range to
//! another. But it was decided before our term, on a version from before our term. So each node that
//! is without a range when our term begins is changed once in our name; from then on whatever names
//! an older version is refused. Only when all of them are behind the fence (changed by us, or seen
//! with a range, gone, or on its way out) is the first range handed out. A node that comes later
//! needs nothing: no earlier leader can have known it.
//!
//! One node that cannot be written to does not hold up all others for ever: when the API server has
//! answered about it, and not with a yes, for [`PATIENCE`], it is given up on, and that is told. No
//! API server works on a request for that long; what remains is one that lay somewhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::facts::NodeId;
use crate::time::Moment;

/// For how long a node that cannot be written to holds up all ranges: twice as long as an API server
/// works on a request (`--request-timeout`, one minute).
pub const PATIENCE: Duration = Duration::from_secs(120);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// After so many conflicts in a row, somebody writes faster than we do.
const QUICK_TRIES: u32 = 5;

/// What became of the write that changes a node in our name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TouchFate {
    /// The node is in a version that we made.
    Changed,
    /// It is in another version than we knew, which was looked at since.
    Outdated,
    /// There was an answer, to this or to a look at the node after it, and it is no yes.
    Refused,
    /// There was none at all.
    Unanswered,
}

/// What follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touched {
    /// The node is behind the fence, or was before.
    Shielded,
    /// It will be due again.
    Again,
    /// It was tried for long enough: ranges are handed out without it. To be told.
    GivenUp,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Post {
    tries: u32,
    /// Since when there are answers, none of which is a yes.
    refused_since: Option<Moment>,
    /// When it is tried again; nothing while a write is on its way.
    due: Option<Moment>,
}

/// How far it is, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// How many nodes are still to be changed.
    pub left: usize,
    /// How many of them could not be.
    pub failing: usize,
    /// Until when those that answer so are waited for at most.
    pub patience_ends: Option<Moment>,
}

/// Who is still outside.
#[derive(Clone, Debug, Default)]
pub struct Fence {
    posts: BTreeMap<NodeId, Post>,
    due: BTreeSet<(Moment, NodeId)>,
    opened: bool,
}

impl Fence {
    /// Around these: all that are without a range in the first whole list of our term.
    pub fn around(now: Moment, nodes: impl IntoIterator<Item = NodeId>) -> Self {
        let post = Post { due: Some(now), ..Post::default() };
        let posts: BTreeMap<NodeId, Post> = nodes.into_iter().map(|node| (node, post)).collect();
        let due = posts.keys().map(|node| (now, *node)).collect();
        Self { posts, due, opened: false }
    }

    /// Whether no range may be handed out yet.
    pub fn stands(&self) -> bool {
        !self.posts.is_empty()
    }

    /// Whether this node is still to be changed.
    pub fn awaits(&self, node: NodeId) -> bool {
        self.posts.contains_key(&node)
    }

    /// Nodes to be written to now; they are taken to be on their way from here on.
    pub fn due(&mut self, now: Moment) -> Vec<NodeId> {
        let mut nodes = Vec::new();
        while let Some((when, node)) = self.due.first().copied().filter(|(when, _)| *when <= now) {
            self.due.remove(&(when, node));
            if let Some(post) = self.posts.get_mut(&node) {
                post.due = None;
                nodes.push(node);
            }
        }
        nodes
    }

    /// When `due` has something.
    pub fn next_wake(&self) -> Option<Moment> {
        self.due.first().map(|(when, _)| *when)
    }

    /// What became of the write to a node.
    pub fn touched(&mut self, now: Moment, node: NodeId, fate: TouchFate) -> Touched {
        let Some(post) = self.posts.get_mut(&node) else { return Touched::Shielded };
        post.tries = post.tries.saturating_add(1);
        match fate {
            TouchFate::Changed => {
                self.passes(node);
                return Touched::Shielded;
            }
            // Whoever does not answer may be sitting on old requests just as well.
            TouchFate::Unanswered => post.refused_since = None,
            TouchFate::Outdated | TouchFate::Refused => {
                let since = *post.refused_since.get_or_insert(now);
                if now.since(since) >= PATIENCE {
                    self.passes(node);
                    return Touched::GivenUp;
                }
            }
        }
        let quick = fate == TouchFate::Outdated && post.tries < QUICK_TRIES;
        let pause = FIRST_PAUSE.saturating_mul(1 << (post.tries - 1).min(8)).min(LONGEST_PAUSE);
        let when = if quick { now } else { now.after(pause) };
        if let Some(before) = post.due.replace(when) {
            self.due.remove(&(before, node));
        }
        self.due.insert((when, node));
        Touched::Again
    }

    /// A node needs nothing any more: it has a range, is gone, or is about to go. One that is about
    /// to go is in a newer version than any for which somebody would have given it a range.
    pub fn passes(&mut self, node: NodeId) {
        let Some(post) = self.posts.remove(&node) else { return };
        if let Some(when) = post.due {
            self.due.remove(&(when, node));
        }
        self.opened |= self.posts.is_empty();
    }

    /// Whether the last one has passed since this was asked last.
    pub fn has_opened(&mut self) -> bool {
        std::mem::take(&mut self.opened)
    }

    /// How far it is; nothing when ranges are handed out.
    pub fn outlook(&self) -> Option<Outlook> {
        let failing = self.posts.values().filter(|post| post.tries > 0);
        let ends = failing.clone().filter_map(|post| Some(post.refused_since?.after(PATIENCE)));
        self.stands().then(|| Outlook {
            left: self.posts.len(),
            failing: failing.count(),
            patience_ends: ends.max(),
        })
    }
}

#[cfg(test)]
mod tests;
