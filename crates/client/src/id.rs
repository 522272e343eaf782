//! Request ids: UUIDv7, made once a request and sent again with every retry of it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Makes a new request id.
pub fn request_id() -> String {
    let millis = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis();
    let [.., a, b, c, d, e, f] = millis.to_be_bytes();
    let mut bytes = random();
    let [ba, bb, bc, bd, be, bf, version, _, variant, ..] = &mut bytes;
    (*ba, *bb, *bc, *bd, *be, *bf) = (a, b, c, d, e, f);
    *version = (*version & 0x0f) | 0x70;
    *variant = (*variant & 0x3f) | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [
        hex.get(..8),
        hex.get(8..12),
        hex.get(12..16),
        hex.get(16..20),
        hex.get(20..),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("-")
}

/// Draws a nonce: never 0, which means "missing" on the wire.
pub fn nonce() -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = random();
    u64::from_be_bytes([a, b, c, d, e, f, g, h]).max(1)
}

fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    #[expect(
        clippy::expect_used,
        reason = "without randomness a nonce could repeat: nothing may run"
    )]
    getrandom::fill(&mut bytes).expect("the operating system's random source");
    bytes
}

#[cfg(test)]
mod tests {
    use super::request_id;

    #[test]
    fn a_request_id_is_a_uuid_of_version_7_and_never_the_same() {
        let (one, two) = (request_id(), request_id());
        assert_ne!(one, two);
        let parts: Vec<&str> = one.split('-').collect();
        assert_eq!(
            parts.iter().map(|part| part.len()).collect::<Vec<_>>(),
            [8, 4, 4, 4, 12]
        );
        assert!(parts[2].starts_with('7'), "{one}");
    }
}
