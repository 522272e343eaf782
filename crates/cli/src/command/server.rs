//! `haltgate server`: one node in the foreground.

use daemon::Config;

use crate::args::Server;
use crate::failed::Failed;

pub async fn run(args: Server) -> Result<(), Failed> {
    let mut config = Config::load(&args.config).map_err(|error| Failed::usage(error.to_string()))?;
    if args.bench_fixture {
        config = config
            .with_bench_fixture()
            .map_err(|error| Failed::usage(error.to_string()))?;
    }
    if args.check {
        daemon::check(&config).map_err(|error| Failed::usage(error.to_string()))?;
        crate::print::outln!("{}: valid", args.config.display());
        return Ok(());
    }
    daemon::run(config)
        .await
        .map_err(|error| Failed::refused(error.to_string()))
}
