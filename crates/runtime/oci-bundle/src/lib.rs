//! What an OCI command-line runtime is given: config.json, and the devices that CDI names.
