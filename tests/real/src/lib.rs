//! Tests on real parts: they need root, and build the parts they use.
