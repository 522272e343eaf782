//! `haltgate server`: one node in the foreground.

use daemon::Config;

use crate::args::Server;
use crate::failed::Failed;

pub async fn run(args: Server) -> Result<(), Failed> {
    let config = Config::load(&args.config).map_err(|error| Failed::usage(error.to_string()))?;
    if args.check {
        daemon::check(&config).map_err(|error| Failed::usage(error.to_string()))?;
        crate::print::outln!("{}: valid", args.config.display());
        return Ok(());
    }
    daemon::run(config)
        .await
        .map_err(|error| Failed::refused(error.to_string()))
}
