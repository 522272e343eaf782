//! Compiles `proto/` without protoc, and keeps the descriptors for gRPC reflection.

use std::path::{Path, PathBuf};

const FILES: [&str; 5] = [
    "shackle/v1/shackle.proto",
    "haltgate/admin/v1/admin.proto",
    "haltgate/audit/v1/audit.proto",
    "haltgate/error/v1/error.proto",
    "haltgate/peer/v1/peer.proto",
];

/// Messages of a guard, and what stands for keys that a file leaves out: what the protocol has, or what is shipped.
const GUARD: [(&str, Absent); 10] = [
    ("GuardConfig", Absent::Is("crate::guard_config::shipped")),
    ("Breakers", Absent::Is("crate::guard_config::shipped_breakers")),
    ("ToolPrice", Absent::Wrong),
    ("ModelPrice", Absent::Wrong),
    ("TokenPrice", Absent::Wrong),
    ("ToolOverride", Absent::Empty),
    ("Rule", Absent::Empty),
    ("TagTest", Absent::Empty),
    ("Predicate", Absent::Empty),
    // A list, and no table that holds one.
    ("ToolList", Absent::Whole),
];

enum Absent {
    Is(&'static str),
    Wrong,
    Empty,
    Whole,
}

/// Fields that hold an enum's number, and are written as its word.
const WORDS: [(&str, &str); 9] = [
    ("GuardConfig.budget_scope", "budget_scope"),
    ("GuardConfig.hitl_mode", "hitl_mode"),
    ("GuardConfig.unsettled_policy", "unsettled_policy"),
    ("GuardConfig.trip_policy", "trip_policy"),
    ("GuardConfig.pause_scope", "pause_scope"),
    ("GuardConfig.mode", "guard_mode"),
    ("GuardConfig.latch_scope", "latch_scope"),
    ("Rule.effect", "rule_effect"),
    ("Predicate.op", "predicate_op"),
];

/// Fields that are only written where they say something: what stands for them when they are absent says nothing.
const QUIET: [&str; 23] = [
    "GuardConfig.parent_guard_id",
    "GuardConfig.version",
    "GuardConfig.allowed_tools",
    "GuardConfig.tool_prices",
    "GuardConfig.model_prices",
    "GuardConfig.tool_overrides",
    "GuardConfig.on_deny_rules",
    "GuardConfig.max_overdraft_usd",
    "GuardConfig.rules",
    "GuardConfig.agents",
    "Breakers.polling_tools",
    "ToolOverride.max_repeat_calls",
    "ToolOverride.window_duration_s",
    "ToolOverride.window_max_calls",
    "ToolOverride.ask",
    "Rule.tools",
    "Rule.tags",
    "Rule.when",
    "Rule.trips",
    "Rule.cost_usd",
    "TagTest.or_absent",
    "Predicate.values",
    "Predicate.path",
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
    let mut builder = tonic_prost_build::configure().bytes(".haltgate.peer");
    for (message, absent) in GUARD {
        let shape = match absent {
            Absent::Is(function) => format!("default = \"{function}\", deny_unknown_fields"),
            Absent::Wrong => "deny_unknown_fields".to_owned(),
            Absent::Empty => "default, deny_unknown_fields".to_owned(),
            Absent::Whole => "transparent".to_owned(),
        };
        let derived = format!("#[derive(serde::Serialize, serde::Deserialize)]\n#[serde({shape})]");
        builder = builder.type_attribute(format!(".shackle.v1.{message}"), derived);
    }
    for (field, words) in WORDS {
        let attribute = format!("#[serde(with = \"crate::guard_config::words::{words}\")]");
        builder = builder.field_attribute(format!(".shackle.v1.{field}"), attribute);
    }
    for field in QUIET {
        let attribute = "#[serde(skip_serializing_if = \"crate::guard_config::words::is_empty\")]";
        builder = builder.field_attribute(format!(".shackle.v1.{field}"), attribute);
    }
    builder.compile_fds(descriptors)?;
    Ok(())
}
