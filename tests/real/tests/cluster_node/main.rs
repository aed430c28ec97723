//! The agent as a node of a real cluster: kube-apiserver with the Node authorizer and
//! NodeRestriction, a certificate of this node, containerd.

mod bootstrap;
mod content_kills;
mod contents;
mod kubectl;
mod node_object;
