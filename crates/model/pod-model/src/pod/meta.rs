//! A pod's metadata: identity, owners, deletion.
//!
//! Fields that only an API server needs (managed fields, self links) are known but not kept.

use super::codec::object;
use super::values::{IgnoredField, TextMap, Timestamp};

object! {
    pub struct ObjectMeta {
        "name" name: Box<str>;
        "generateName" generate_name: Box<str>;
        "namespace" namespace: Box<str>;
        "selfLink" self_link: IgnoredField;
        "uid" uid: Box<str>;
        "resourceVersion" resource_version: Box<str>;
        "generation" generation: i64;
        "creationTimestamp" creation_timestamp: Option<Timestamp>;
        "deletionTimestamp" deletion_timestamp: Option<Timestamp>;
        "deletionGracePeriodSeconds" deletion_grace_period_seconds: Option<i64>;
        "labels" labels: TextMap;
        "annotations" annotations: TextMap;
        "ownerReferences" owner_references: Vec<OwnerReference>;
        "finalizers" finalizers: Vec<Box<str>>;
        "managedFields" managed_fields: IgnoredField;
    }

    pub struct OwnerReference {
        "apiVersion" api_version: Box<str>, always;
        "kind" kind: Box<str>, always;
        "name" name: Box<str>, always;
        "uid" uid: Box<str>, always;
        "controller" controller: Option<bool>;
        "blockOwnerDeletion" block_owner_deletion: Option<bool>;
    }
}
