//! What the process logs, on standard error. Nothing secret, no parameters, no text of an agent's error.

use tracing_subscriber::EnvFilter;

use crate::config::{LogFormat, LogSection};

/// Begins to log; does nothing where the process does so already.
///
/// # Errors
/// The level is none.
pub fn init(section: &LogSection) -> Result<(), String> {
    let filter = EnvFilter::try_new(&section.level).map_err(|error| format!("log.level: {error}"))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    // Whoever began to log first stays: several nodes may share a process.
    let _first = match section.format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    Ok(())
}
