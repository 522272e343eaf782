//! How values rest on disk.

use minicbor::Encode;

/// Encodes a value as it rests on disk.
pub fn bytes<T: Encode<()>>(value: &T) -> Vec<u8> {
    #[expect(
        clippy::expect_used,
        reason = "derived encoders fail only where the writer does, a Vec never does"
    )]
    minicbor::to_vec(value).expect("encoding into memory")
}
