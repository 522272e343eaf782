//! `haltgate panic`: the emergency stop of one node of this machine.

use daemon::Config;
use daemon::emergency::{Order, order};
use serde_json::json;

use crate::args::{Output, Panic};
use crate::failed::{Failed, file};
use crate::print;

pub fn run(args: &Panic, output: Output) -> Result<(), Failed> {
    let config = Config::load(&args.config).map_err(|error| Failed::usage(error.to_string()))?;
    let given = match (args.lift, args.show) {
        (true, _) => Order::Lift,
        (false, true) => Order::Tell,
        (false, false) => Order::Stop,
    };
    let data_dir = &config.node.data_dir;
    let (engaged, running) = order(data_dir, given).map_err(file(data_dir))?;
    match output {
        Output::Json => print::outln!(
            "{}",
            json!({"node": config.node.id, "stopped": engaged, "confirmed_by_node": running})
        ),
        Output::Table => {
            let state = if engaged {
                "stopped: it allows nothing"
            } else {
                "not stopped"
            };
            let by = if running {
                ""
            } else {
                " (it does not run; its next start finds it so)"
            };
            print::outln!("node {}: {state}{by}", config.node.id);
        }
    }
    Ok(())
}
