//! Talks to a Kubernetes API server.
