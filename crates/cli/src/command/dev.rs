//! `haltgate dev`: one node with everything it needs in a directory, formed by itself.

use daemon::Config;

use crate::args::Dev;
use crate::command::local_cluster::{self, Ports};
use crate::failed::Failed;

pub async fn run(args: Dev) -> Result<(), Failed> {
    let config = args.dir.join("node-1.toml");
    if !config.exists() {
        let [Some(peer), Some(http)] = [1, 2].map(|step| args.base_port.checked_add(step)) else {
            return Err(Failed::usage("--base-port is too high"));
        };
        local_cluster::write(
            &args.dir,
            &[Ports {
                grpc: args.base_port,
                peer,
                http,
            }],
            "\n[cluster]\nbootstrap = true\n",
        )?;
    }
    let config = Config::load(&config).map_err(|error| Failed::usage(error.to_string()))?;
    let made_for = config.listen.grpc.port();
    if made_for != args.base_port {
        return Err(Failed::usage(format!(
            "{} was made for --base-port {made_for}: use that, or another directory",
            args.dir.display()
        )));
    }
    let member = config.member();
    crate::print::outln!("one node in {}:", args.dir.display());
    crate::print::outln!("  agents and operators   {}", member.client);
    crate::print::outln!("  metrics and probes     http://{}/metrics", member.http);
    crate::print::outln!("  who you are, to try    . {}", args.dir.join("env").display());
    crate::print::outln!("  then                   haltgate budget set org/acme 5.00");
    crate::print::outln!(
        "  an agent's certificate {}",
        args.dir.join("clients/agent.crt").display()
    );
    daemon::run(config)
        .await
        .map_err(|error| Failed::refused(error.to_string()))
}
