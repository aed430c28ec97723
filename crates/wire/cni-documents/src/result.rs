//! A plugin's result, validated as far as the runtime uses it. Pure.

use std::net::IpAddr;

use serde_json::Value;

use crate::CniError;

/// The result that later plugins and the record get.
pub fn parse_result(plugin: &str, answer: &[u8]) -> Result<Value, CniError> {
    match serde_json::from_slice::<Value>(answer) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(CniError(format!("CNI plugin {plugin}: its result is no object"))),
        Err(error) => Err(CniError(format!("CNI plugin {plugin}: its result: {error}"))),
    }
}

/// The pod's addresses, the primary one first: IPv4 if there is one.
pub fn addresses_of(result: &[u8], link: &str) -> Result<Vec<String>, CniError> {
    let value: Value = serde_json::from_slice(result)
        .map_err(|error| CniError(format!("the CNI result does not read: {error}")))?;
    let mut addresses: Vec<IpAddr> = Vec::new();
    for entry in value.get("ips").and_then(Value::as_array).into_iter().flatten() {
        if belongs(&value, entry, link) {
            addresses.extend(address(entry.get("address")));
        }
    }
    // The format before 0.3.0.
    for old in ["ip4", "ip6"] {
        addresses.extend(address(value.get(old).and_then(|part| part.get("ip"))));
    }
    let Some(main) =
        addresses.iter().position(IpAddr::is_ipv4).or((!addresses.is_empty()).then_some(0))
    else {
        return Err(CniError(format!("the CNI result has no address for {link}")));
    };
    let main = addresses.remove(main);
    addresses.insert(0, main);
    Ok(addresses.iter().map(ToString::to_string).collect())
}

fn address(value: Option<&Value>) -> Option<IpAddr> {
    value?.as_str()?.split('/').next()?.parse().ok()
}

/// An address belongs to the pod's interface unless it names another.
fn belongs(result: &Value, entry: &Value, link: &str) -> bool {
    let Some(index) = entry.get("interface").and_then(Value::as_u64) else { return true };
    let interface =
        usize::try_from(index).ok().and_then(|index| result.get("interfaces")?.get(index));
    let Some(interface) = interface else { return false };
    let text = |name: &str| interface.get(name).and_then(Value::as_str).unwrap_or_default();
    text("name") == link && !text("sandbox").is_empty()
}
