//! The built `keelson node-controller` on a real kube-apiserver and etcd, with short periods: what
//! the tests on paused time show of each rule, shown on the real part.

mod cloud;
mod dying;
mod faults;
mod fight;
mod hand;
mod kubelet;
mod leadership;
mod range_fence;
mod rates;
mod rules;
mod stage;
mod verdict;
mod volumes;
mod zones;
