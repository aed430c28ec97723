//! Every trait that the shell calls and an adapter or a fake implements.
