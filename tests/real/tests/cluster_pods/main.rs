//! The API server's pods on a real cluster of one node: etcd, kube-apiserver with the Node authorizer
//! and NodeRestriction, kube-controller-manager, kube-scheduler, containerd and our agent.

mod dev_cluster;
mod endings;
mod kills;
mod outages;
mod statuses;
mod workloads;
