//! Pods on a runtime and a host in memory, on paused time: the whole of the shell, with faults.

mod again;
mod api_pods;
mod api_volumes;
mod bench;
mod cluster;
mod contents;
mod crash;
mod device_fake;
mod devices;
mod faults;
mod hanging_volumes;
mod life;
mod probed;
mod pulls;
mod reporting;
mod restart;
mod unread;
mod upkeep;
mod wanted_again;
