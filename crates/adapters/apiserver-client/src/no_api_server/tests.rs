//! The error says why nothing can be read.

use super::*;
use ports::ContentKind;

#[tokio::test]
async fn every_read_without_an_api_server_is_an_error() {
    for kind in [ContentKind::ConfigMap, ContentKind::Secret] {
        let wanted = ContentName { kind, namespace: "shop".into(), name: "a".into() };
        let reason = ContentError::NoSource("this node has no API server".to_owned());
        assert_eq!(NoApiServer.read(&wanted).await, Err(reason));
    }
}
