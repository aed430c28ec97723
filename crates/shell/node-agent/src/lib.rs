//! The node agent's tasks, channels and time.
