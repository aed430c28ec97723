//! The CRI v1 messages and services, generated and checked in.
