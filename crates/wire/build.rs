//! Compiles `proto/` without protoc, and keeps the descriptors for gRPC reflection.

use std::path::{Path, PathBuf};

const FILES: [&str; 5] = [
    "shackle/v1/shackle.proto",
    "haltgate/admin/v1/admin.proto",
    "haltgate/audit/v1/audit.proto",
    "haltgate/error/v1/error.proto",
    "haltgate/peer/v1/peer.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Relative to the package, where cargo runs this: a target folder may serve more than one checkout.
    let root = Path::new("../../proto");
    println!("cargo::rerun-if-changed={}", root.display());
    let descriptors = protox::compile(FILES, [root])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(
        out.join("descriptors.binpb"),
        protox::prost::Message::encode_to_vec(&descriptors),
    )?;
    tonic_prost_build::configure()
        .bytes(".haltgate.peer")
        .compile_fds(descriptors)?;
    Ok(())
}
