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
    let member = config.member();
    println!("one node in {}:", args.dir.display());
    println!("  agents and operators   {}", member.client);
    println!("  metrics and probes     http://{}/metrics", member.http);
    println!("  who you are, to try    . {}", args.dir.join("env").display());
    println!("  then                   haltgate budget set org/acme 5.00");
    println!(
        "  an agent's certificate {}",
        args.dir.join("clients/agent.crt").display()
    );
    daemon::run(config)
        .await
        .map_err(|error| Failed::refused(error.to_string()))
}
