//! Keys, heads and values as JSON: bytes in base64, names as in the HTTP interface.
//!
//! Times are milliseconds since the Unix epoch.

use data_encoding::BASE64;
use serde_json::{Map, Value, json};
use tallybook::head::Head;

/// Key and head as an object.
pub(crate) fn head_object(key: &[u8], head: &Head) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("key".into(), json!(BASE64.encode(key)));
    object.insert("version".into(), json!(head.version));
    object.insert("length".into(), json!(head.length));
    object.insert("checksum".into(), json!(format!("{:08x}", head.checksum)));
    object.insert("written_at".into(), json!(head.written_at_ms));
    if let Some(expires_at_ms) = head.expires_at_ms {
        object.insert("expires_at".into(), json!(expires_at_ms));
    }
    if !head.attributes.is_empty() {
        object.insert("attributes".into(), json!(BASE64.encode(&head.attributes)));
    }
    object
}

/// Key, head and value as an object.
pub(crate) fn entry_object(key: &[u8], head: &Head, value: &[u8]) -> Map<String, Value> {
    let mut object = head_object(key, head);
    object.insert("value".into(), json!(BASE64.encode(value)));
    object
}
