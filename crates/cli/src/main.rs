//! One binary for everything a person does with Haltgate.

mod args;
mod command {
    pub mod approvals;
    pub mod audit;
    pub mod bench;
    pub mod budget;
    pub mod call;
    pub mod cluster;
    pub mod conformance;
    pub mod demo;
    pub mod dev;
    pub mod guard;
    pub mod kill;
    pub mod local_cluster;
    pub mod panic;
    pub mod pki;
    pub mod policy;
    pub mod running;
    pub mod server;
    pub mod session;
}
mod export;
mod failed;
mod print;
mod remote;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use crate::args::{Cli, Command, Conformance};
use crate::failed::Failed;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return end(Err(Failed::refused(format!("no threads: {error}")))),
    };
    end(runtime.block_on(run(cli)))
}

async fn run(cli: Cli) -> Result<(), Failed> {
    let output = cli.output;
    match cli.command {
        Command::Demo => command::demo::run().await,
        Command::Dev(args) => command::dev::run(args).await,
        Command::Server(args) => command::server::run(args).await,
        Command::LocalCluster(args) => command::local_cluster::run(&args, output),
        Command::Init(args) => command::cluster::init(args, output).await,
        Command::Join(args) => command::cluster::join(args, output).await,
        Command::Members(args) => command::cluster::members(args, output).await,
        Command::Status(args) => command::cluster::status(args, output).await,
        Command::Drain(args) => command::cluster::drain(args, output).await,
        Command::ActivateVersion(args) => command::cluster::activate_version(args, output).await,
        Command::Pki(command) => command::pki::run(command, output),
        Command::Call(args) => command::call::run(args, output).await,
        Command::Session(command) => command::session::run(command, output).await,
        Command::Budget(command) => command::budget::run(command, output).await,
        Command::Guard(command) => command::guard::run(command, output).await,
        Command::Policy(command) => command::policy::run(command, output).await,
        Command::Kill(command) => command::kill::run(command, output).await,
        Command::Panic(args) => command::panic::run(&args, output),
        Command::Approvals(command) => command::approvals::run(command, output).await,
        Command::Audit(command) => command::audit::run(command, output).await,
        Command::Conformance(Conformance::Run { file }) => command::conformance::run(&file),
        Command::Bench(args) => command::bench::run(args, output).await,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "haltgate", &mut script);
            print::outln!("{}", String::from_utf8_lossy(&script).trim_end());
            Ok(())
        }
    }
}

fn end(result: Result<(), Failed>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            eprintln!("haltgate: {failed}");
            failed.exit_code()
        }
    }
}
