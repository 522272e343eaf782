//! `haltgate conformance run`: the published vectors against the decision core.

use std::io::Read as _;
use std::path::Path;

use flate2::read::GzDecoder;

use crate::failed::{Failed, file};

/// A file of vectors larger than this is none.
const FILE_MAX: u64 = 1 << 30;

pub fn run(path: &Path) -> Result<(), Failed> {
    let bytes = std::fs::read(path).map_err(file(path))?;
    let bytes = if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut plain = Vec::new();
        GzDecoder::new(&*bytes)
            .take(FILE_MAX)
            .read_to_end(&mut plain)
            .map_err(file(path))?;
        plain
    } else {
        bytes
    };
    let outcomes = conformance::run_file(&bytes)
        .map_err(|error| Failed::usage(format!("{}: {error}", path.display())))?;
    let passed = outcomes.iter().filter(|outcome| outcome.passed()).count();
    for outcome in &outcomes {
        crate::print::outln!("{outcome}");
    }
    let failed = outcomes.len().saturating_sub(passed);
    crate::print::outln!("{passed} passed, {failed} failed");
    if failed == 0 && passed > 0 {
        Ok(())
    } else {
        Err(Failed::refused(format!(
            "{}: {failed} of {} vectors differ",
            path.display(),
            outcomes.len()
        )))
    }
}
