//! Lists come in pages; a token names the last item of the page before.

use crate::invalid::Invalid;

pub use machine::query::Page;

/// Items of a page where the request does not say.
const PAGE_DEFAULT: u32 = 100;
/// Most items of a page: it is built in memory.
pub const PAGE_MAX: u32 = 1_000;

/// Reads which part of a list is wanted.
pub(crate) fn parse<T>(
    size: u32,
    token: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<Page<T>, Invalid> {
    let limit = match size {
        0 => PAGE_DEFAULT,
        1..=PAGE_MAX => size,
        _ => return Err(Invalid::new("page_size", format!("must be at most {PAGE_MAX}"))),
    };
    let after = match token {
        "" => None,
        token => Some(
            read(token)
                .ok_or_else(|| Invalid::new("page_token", "must be the next_page_token of a page before"))?,
        ),
    };
    Ok(Page {
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
        after,
    })
}
