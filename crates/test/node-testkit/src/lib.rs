//! Beds, real parts and images for tests; judges what they leave behind.
