//! How values rest on disk, and how they are hashed.

use decision::Digest;
use minicbor::Encode;

/// Encodes a value as it rests on disk.
pub fn bytes<T: Encode<()>>(value: &T) -> Vec<u8> {
    #[expect(
        clippy::expect_used,
        reason = "derived encoders fail only where the writer does, a Vec never does"
    )]
    minicbor::to_vec(value).expect("encoding into memory")
}

/// Bytes that are hashed and nothing else: a label, then of each field that is set its tag (1 byte), the length of its
/// value (4 bytes, big-endian) and the value. A field that is not set leaves no byte, so that one more kind of field
/// changes no digest that was made before; one that is never unset is put from a version of the rules on.
pub(crate) struct Canonical(Vec<u8>);

impl Canonical {
    pub fn of(label: &str) -> Self {
        Self(format!("{label}\n").into_bytes())
    }

    pub fn put<T: Encode<()>>(mut self, tag: u8, value: &T) -> Self {
        if !value.is_nil() {
            let value = bytes(value);
            let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
            self.0.push(tag);
            self.0.extend(length.to_be_bytes());
            self.0.extend(value);
        }
        self
    }

    pub fn digest(&self) -> Digest {
        Digest::of(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Canonical;

    #[test]
    fn what_is_not_set_leaves_no_byte() {
        let put = |later: Option<u32>| {
            Canonical::of("label")
                .put(0, &7_u32)
                .put(1, &later)
                .put(2, &"x")
                .0
        };
        assert_eq!(
            put(None),
            b"label\n\x00\x00\x00\x00\x01\x07\x02\x00\x00\x00\x02\x61x"
        );
        assert_eq!(
            put(Some(1)),
            b"label\n\x00\x00\x00\x00\x01\x07\x01\x00\x00\x00\x01\x01\x02\x00\x00\x00\x02\x61x"
        );
    }
}
