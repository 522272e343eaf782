//! The published SP/1.0 files and the reference's 10,000 answers, where they are at hand.
//!
//! They live outside the project: `HALTGATE_CONFORMANCE` names their folder. The project's own table of
//! the same 29 vectors is in `vectors.rs` and always runs.

use std::io::Read as _;
use std::path::PathBuf;

use decision::conformance::{self, Check};

#[test]
fn published_vectors_hold_with_their_digests() {
    let Some(folder) = folder() else { return };
    let mut vectors = 0;
    for name in ["conformance.json", "conformance-1.0.1.json"] {
        let text = std::fs::read(folder.join(name)).expect("a published file");
        for outcome in conformance::run_file(&text).expect("JSON") {
            assert!(outcome.passed(), "{outcome:#?}");
            assert_eq!(outcome.canonical_hash, Check::Equal, "{}", outcome.name);
            assert_eq!(outcome.vector_hash, Check::Equal, "{}", outcome.name);
            vectors += 1;
        }
    }
    assert_eq!(vectors, 29);
}

#[test]
fn core_agrees_with_the_reference_on_ten_thousand_random_cases() {
    let Some(folder) = folder() else { return };
    let packed = std::fs::File::open(folder.join("decide_vectors.jsonl.gz")).expect("the random cases");
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed)
        .read_to_string(&mut text)
        .expect("gzip");
    let mut cases = 0;
    for line in text.lines() {
        for outcome in conformance::run_file(line.as_bytes()).expect("JSON") {
            assert!(outcome.passed(), "{line}\n{outcome:#?}");
            assert_eq!(outcome.reason, Check::Equal);
            cases += 1;
        }
    }
    assert_eq!(cases, 10_000);
}

fn folder() -> Option<PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/conformance");
    #[expect(
        clippy::disallowed_methods,
        reason = "the test looks for files outside the project"
    )]
    let folder = std::env::var("HALTGATE_CONFORMANCE").unwrap_or_else(|_| beside.to_owned());
    Some(PathBuf::from(folder)).filter(|folder| folder.join("decide_vectors.jsonl.gz").exists())
}
