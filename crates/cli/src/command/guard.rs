//! `haltgate guard`: the limits that sessions run under, as files that `show` prints and `put` takes.

use client::request_id;
use serde_json::Value;
use wire::proto::haltgate::admin::v1 as admin;
use wire::proto::shackle::v1::GuardConfig;

use crate::args::{Guard, Output};
use crate::failed::{Failed, file};
use crate::print;
use crate::remote::{PAGE, Remote};

const COLUMNS: [&str; 9] = [
    "scope",
    "version",
    "mode",
    "budget_usd",
    "max_repeat_calls",
    "max_total_calls",
    "timeout_seconds",
    "hitl_mode",
    "rules",
];

pub async fn run(command: Guard, output: Output) -> Result<(), Failed> {
    match command {
        Guard::Put {
            remote,
            scope,
            file: path,
            justification,
        } => {
            let text = std::fs::read_to_string(&path).map_err(file(&path))?;
            let wrong = |error: &dyn std::fmt::Display| Failed::usage(format!("{}: {error}", path.display()));
            let config: GuardConfig = toml::from_str(&text).map_err(|error| wrong(&error))?;
            // Refused here with the file's name, before anything is sent.
            wire::guard_config::guard(&config).map_err(|error| wrong(&error))?;
            let request = admin::GuardsPutRequest {
                request_id: request_id(),
                scope: scope.clone(),
                config: Some(config),
                justification,
            };
            let answer = Remote::open(&remote)?.call(request).await?;
            show(output, &scope, answer.guard)
        }
        Guard::Show { remote, scope } => {
            let request = admin::GuardsGetRequest {
                scope: scope.clone(),
                effective: true,
            };
            let answer = Remote::open(&remote)?.call(request).await?;
            show(output, &scope, answer.guard)
        }
        Guard::List { remote } => {
            let page = |page_token| admin::GuardsListRequest {
                page_size: PAGE,
                page_token,
            };
            let rows = |answer: admin::GuardsListResponse| (answer.guards, answer.next_page_token);
            let guards = Remote::open(&remote)?.pages(page, rows).await?;
            let mut rows = guards.into_iter().map(json).collect::<Result<Vec<_>, _>>()?;
            if output == Output::Table {
                rows.iter_mut().for_each(count_rules);
            }
            print::list(output, &rows, &COLUMNS);
            Ok(())
        }
    }
}

/// Prints a guard: for people the file that `put` takes back.
fn show(output: Output, scope: &str, guard: Option<admin::Guard>) -> Result<(), Failed> {
    let guard = guard.unwrap_or_default();
    match output {
        Output::Json => print::object(output, &json(guard)?),
        Output::Table => print::outln!("{}", as_file(scope, guard)?.trim_end()),
    }
    Ok(())
}

/// The guard as a file. Where another guard is in force, its version is not the one that a put would replace.
fn as_file(scope: &str, guard: admin::Guard) -> Result<String, Failed> {
    let mut config = guard.config.unwrap_or_default();
    let mut head = format!("# {}, version {}\n", guard.scope, config.version);
    if guard.scope != scope {
        head = format!("# {scope} has no guard of its own; in force is\n{head}");
        config.version = 0;
    }
    let file = toml::to_string(&config).map_err(newer)?;
    Ok(head + &file)
}

/// The same keys as in a file, and whose guard it is.
fn json(guard: admin::Guard) -> Result<Value, Failed> {
    let config = guard.config.unwrap_or_default();
    let mut value = serde_json::to_value(&config).map_err(newer)?;
    if let Some(fields) = value.as_object_mut() {
        fields.insert("scope".to_owned(), Value::from(guard.scope));
        fields.insert("version".to_owned(), Value::from(config.version));
    }
    Ok(value)
}

/// A table has room for how many there are.
fn count_rules(row: &mut Value) {
    if let Some(fields) = row.as_object_mut() {
        let rules = fields.get("rules").and_then(Value::as_array).map_or(0, Vec::len);
        fields.insert("rules".to_owned(), Value::from(rules));
    }
}

fn newer(error: impl std::fmt::Display) -> Failed {
    Failed::refused(format!("the guard cannot be shown: {error}"))
}

#[cfg(test)]
mod tests {
    use super::as_file;
    use wire::proto::haltgate::admin::v1 as admin;
    use wire::proto::shackle::v1::GuardConfig;

    #[test]
    fn what_show_prints_is_what_put_takes() {
        let config = GuardConfig {
            version: 3,
            ..wire::guard_config::shipped()
        };
        let guard = admin::Guard {
            scope: "default".to_owned(),
            config: Some(config.clone()),
            ..admin::Guard::default()
        };
        let own: GuardConfig = toml::from_str(&as_file("default", guard.clone()).unwrap()).unwrap();
        assert_eq!(own, config);
        let inherited: GuardConfig = toml::from_str(&as_file("org/acme", guard).unwrap()).unwrap();
        assert_eq!(inherited, GuardConfig { version: 0, ..config });
    }
}
