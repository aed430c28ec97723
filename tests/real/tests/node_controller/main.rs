//! The built `keelson node-controller` on a real kube-apiserver and etcd, with short periods: the
//! rules that other tests show on paused time, shown with the real parts.

mod cloud;
mod dying;
mod faults;
mod fight;
mod kubelet;
mod leadership;
mod manual_writer;
mod range_fence;
mod rates;
mod rules;
mod stage;
mod verdict;
mod volumes;
mod zones;
