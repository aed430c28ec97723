//! The two messages of the gRPC health protocol (grpc.health.v1), and gRPC's framing.
//!
//! Rule: pure. A frame is decoded only as far as needed; one that is longer is an error.

/// A health answer has two bytes; this is generous.
pub(crate) const MAX_RESPONSE_BYTES: usize = 64 << 10;

pub(crate) const SERVING: u64 = 1;

/// A framed `HealthCheckRequest { service = 1 }`.
pub(crate) fn request(service: &str) -> Vec<u8> {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(0x0a);
        put_number(&mut message, service.len() as u64);
        message.extend_from_slice(service.as_bytes());
    }
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut frame = vec![0];
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&message);
    frame
}

/// The status in a framed `HealthCheckResponse { status = 1 }`.
pub(crate) fn status_in(frame: &[u8]) -> Result<u64, &'static str> {
    let (head, message) = frame.split_at_checked(5).ok_or("an answer that is cut off")?;
    if head[0] != 0 {
        return Err("a compressed answer, which was not asked for");
    }
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    let mut rest = message.get(..length).ok_or("an answer that is cut off")?;
    let mut status = 0;
    while !rest.is_empty() {
        let key = take_number(&mut rest).ok_or("a field that is cut off")?;
        let skipped = match key & 7 {
            0 => {
                let value = take_number(&mut rest).ok_or("a field that is cut off")?;
                if key >> 3 == 1 {
                    status = value;
                }
                0
            }
            1 => 8,
            2 => {
                let length = take_number(&mut rest).ok_or("a field that is cut off")?;
                usize::try_from(length).map_err(|_| "a field that is too long")?
            }
            5 => 4,
            _ => return Err("a field of an unknown kind"),
        };
        rest = rest.get(skipped..).ok_or("a field that is cut off")?;
    }
    Ok(status)
}

/// The status as the protocol names it.
pub(crate) fn status_name(status: u64) -> String {
    match status {
        0 => "UNKNOWN".to_owned(),
        1 => "SERVING".to_owned(),
        2 => "NOT_SERVING".to_owned(),
        3 => "SERVICE_UNKNOWN".to_owned(),
        other => other.to_string(),
    }
}

/// A status code as Go writes it.
pub(crate) fn code_name(code: u32) -> String {
    const NAMES: [&str; 17] = [
        "OK",
        "Canceled",
        "Unknown",
        "InvalidArgument",
        "DeadlineExceeded",
        "NotFound",
        "AlreadyExists",
        "PermissionDenied",
        "ResourceExhausted",
        "FailedPrecondition",
        "Aborted",
        "OutOfRange",
        "Unimplemented",
        "Internal",
        "Unavailable",
        "DataLoss",
        "Unauthenticated",
    ];
    let name = usize::try_from(code).ok().and_then(|code| NAMES.get(code));
    name.map_or_else(|| format!("Code({code})"), |name| (*name).to_owned())
}

/// The gRPC code for an HTTP status if there is no gRPC status.
pub(crate) fn code_of_http(status: u16) -> u32 {
    match status {
        400 => 13,
        401 => 16,
        403 => 7,
        404 => 12,
        429 | 502..=504 => 14,
        _ => 2,
    }
}

fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for place in 0..10 {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(first & 0x7f).checked_shl(7 * place)?;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_messages_match_the_protocol() {
        assert_eq!(request(""), [0, 0, 0, 0, 0]);
        assert_eq!(request("ab"), [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        let long = request(&"x".repeat(300));
        assert_eq!(&long[..8], [0, 0, 0, 1, 47, 0x0a, 0xac, 0x02]);
        assert_eq!(status_in(&[0, 0, 0, 0, 2, 8, 1]), Ok(1));
        assert_eq!(status_in(&[0, 0, 0, 0, 0]), Ok(0));
        // Unknown fields are skipped.
        assert_eq!(status_in(&[0, 0, 0, 0, 7, 0x12, 1, b'x', 8, 2, 0x18, 9]), Ok(2));
        let bad: [&[u8]; 6] = [
            &[],
            &[0, 0, 0, 0],
            &[1, 0, 0, 0, 2, 8, 1],
            &[0, 0, 0, 0, 9, 8, 1],
            &[0, 0, 0, 0, 2, 0x12, 9],
            &[0, 0, 0, 0, 1, 8],
        ];
        for bad in bad {
            assert!(status_in(bad).is_err(), "{bad:?}");
        }
        assert!(
            status_in(&[0, 0, 0, 0, 11, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255])
                .is_err()
        );
    }
}
