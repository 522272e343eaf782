//! Stores a list of equally long byte arrays as one byte string: no header for each of them.

use minicbor::bytes::ByteSlice;
use minicbor::decode::Error as DecodeError;
use minicbor::encode::{Error as EncodeError, Write};
use minicbor::{Decoder, Encoder};

pub(crate) fn encode<C, W: Write, const N: usize>(
    items: &[[u8; N]],
    encoder: &mut Encoder<W>,
    _: &mut C,
) -> Result<(), EncodeError<W::Error>> {
    encoder.bytes(items.as_flattened())?.ok()
}

pub(crate) fn decode<C, const N: usize>(
    decoder: &mut Decoder<'_>,
    _: &mut C,
) -> Result<Vec<[u8; N]>, DecodeError> {
    let bytes: &ByteSlice = decoder.decode()?;
    let (items, rest) = bytes.as_chunks::<N>();
    if rest.is_empty() {
        Ok(items.to_vec())
    } else {
        Err(DecodeError::message("length is not a multiple"))
    }
}
