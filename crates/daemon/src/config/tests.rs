use std::path::Path;

use decision::NanoUsd;

use super::{Config, ConfigError};

const SMALLEST: &str = r#"
[node]
id = 1
data_dir = "data"
[tls]
ca = "ca.pem"
cert = "/etc/node.pem"
key = "node.key"
"#;

fn read(text: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let variables: Vec<_> = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    Config::parse(
        text,
        Path::new("/etc/haltgate/node.toml"),
        Path::new("/etc/haltgate"),
        variables.into_iter(),
    )
}

#[test]
fn the_smallest_file_has_every_default() {
    let config = read(SMALLEST, &[]).unwrap();
    assert_eq!(config.node.data_dir, Path::new("/etc/haltgate/data"));
    assert_eq!(config.tls.cert, Path::new("/etc/node.pem"));
    assert_eq!(config.signing_key(), Path::new("/etc/haltgate/data/audit.key"));
    assert_eq!(config.limits.calls_per_second_per_session, 1_000);
    assert_eq!(config.limits.registers_per_second_per_address, 10);
    assert_eq!(config.default_guard().unwrap(), machine::Guard::default());
    assert_eq!(config.member().client, "0.0.0.0:9000");
    assert_eq!(config.members().len(), 1);
    assert!(!config.founds());
}

#[test]
fn what_is_unknown_missing_or_senseless_is_an_error_that_names_it() {
    let members = "\n[cluster]\nmembers = [{ id = 1, peer = \"a:1\", grpc = \"a:2\" }, { id = 2, peer = \"b:1\", grpc = \"b:2\" }]";
    let rows = [
        (String::new(), "node"),
        (SMALLEST.replace("id = 1", ""), "id"),
        (SMALLEST.replace("id = 1", "id = 0"), "node.id"),
        (SMALLEST.replace("id = 1", "id = -1"), "id"),
        (SMALLEST.replace("id = 1", "id = \"one\""), "id"),
        (SMALLEST.replace("id = 1", "id = 1\nidd = 1"), "idd"),
        (format!("{SMALLEST}\n[nodes]\nid = 1"), "nodes"),
        (
            format!("{SMALLEST}\n[limits]\ncalls_per_second = 5"),
            "calls_per_second",
        ),
        (format!("{SMALLEST}\n[limits]\nin_flight = 0"), "limits"),
        (
            format!("{SMALLEST}\n[limits]\nmessage_bytes = 10"),
            "limits.message_bytes",
        ),
        (
            format!("{SMALLEST}\n[limits]\npre_exec_bytes = 2000000"),
            "limits.pre_exec_bytes",
        ),
        (
            format!("{SMALLEST}\n[limits]\ndeadline_ms = 0"),
            "limits.deadline_ms",
        ),
        (format!("{SMALLEST}\n[listen]\ngrpc = \"localhost:9000\""), "grpc"),
        (format!("{SMALLEST}\n[listen]\nhttps = \"127.0.0.1:1\""), "https"),
        (format!("{SMALLEST}\n[tls]\nca = \"x\""), "tls"),
        (
            SMALLEST.replace("[tls]", "[tls]\ntrust_domain = \"a/b\""),
            "tls.trust_domain",
        ),
        (
            format!("{SMALLEST}\n[cluster]\nbootstrap = true"),
            "cluster.bootstrap",
        ),
        (
            format!("{SMALLEST}{members}").replace("id = 2", "id = 1"),
            "cluster.members",
        ),
        (
            format!("{SMALLEST}{members}").replace("{ id = 1,", "{ id = 3,"),
            "cluster.members",
        ),
        (
            format!("{SMALLEST}{members}").replace("grpc = \"a:2\"", "grpc = \"a:2\", role = \"x\""),
            "role",
        ),
        (
            format!("{SMALLEST}\n[timing]\nheartbeat_ms = 0"),
            "timing.heartbeat_ms",
        ),
        (
            format!("{SMALLEST}\n[timing]\nheartbeat_ms = 600"),
            "timing.heartbeat_ms",
        ),
        (
            format!("{SMALLEST}\n[timing]\nelection_max_ms = 1000"),
            "timing.election_max_ms",
        ),
        (format!("{SMALLEST}\n[log]\nformat = \"xml\""), "format"),
        (format!("{SMALLEST}\n[guard]\nbudget = 5.0"), "budget"),
        (format!("{SMALLEST}\n[guard]\nbudget_usd = -1.0"), "budget_usd"),
        (format!("{SMALLEST}\n[guard]\nbudget_usd = nan"), "budget_usd"),
        (format!("{SMALLEST}\n[guard]\nbudget_usd = 1e-10"), "budget_usd"),
        (
            format!("{SMALLEST}\n[guard]\nhitl_mode = \"sometimes\""),
            "hitl_mode",
        ),
        (
            format!("{SMALLEST}\n[guard]\nwindow_max_calls = 5"),
            "window_duration_s",
        ),
        (
            format!("{SMALLEST}\n[guard.breakers]\nstorm_window = 65"),
            "breakers.storm_window",
        ),
        (
            format!("{SMALLEST}\n[[guard.rules]]\nid = \"error\""),
            "rules[0].id",
        ),
        (format!("{SMALLEST}\n[guard]\nversion = 1"), "version"),
        (
            format!("{SMALLEST}\n[guard]\nparent_guard_id = \"root\""),
            "parent_guard_id",
        ),
        (format!("{SMALLEST}\nnot toml"), "node.toml"),
    ];
    for (text, word) in rows {
        let error = read(&text, &[]).map(drop).unwrap_err().to_string();
        assert!(error.contains(word), "{word}: {error}\n{text}");
    }
}

#[test]
fn variables_go_before_the_file() {
    let config = read(
        SMALLEST,
        &[
            ("HALTGATE_NODE_ID", "7"),
            ("HALTGATE_NODE_NAME", "7"),
            ("HALTGATE_TLS_TRUST_DOMAIN", "example.org"),
            ("HALTGATE_LIMITS_IN_FLIGHT", "9"),
            ("HALTGATE_LISTEN_GRPC", "127.0.0.1:1"),
            ("HALTGATE_LISTEN_ADVERTISE_GRPC", "node-7.example.org:9000"),
            ("HALTGATE_CLUSTER_UNFUNDED_ORGANIZATIONS", "true"),
            ("HALTGATE_GUARD_BUDGET_USD", "2.5"),
            ("HALTGATE_GUARD_MODE", "observe"),
            ("HALTGATE_GUARD_ALLOWED_TOOLS", "[\"search\"]"),
            ("HALTGATE_GUARD_BREAKERS", "{ name_streak = 20 }"),
            ("HALTGATE_ENDPOINTS", "the client's, not ours"),
            ("HALTGATE_CA", "the client's, not ours"),
            ("PATH", "/bin"),
        ],
    )
    .unwrap();
    assert_eq!(
        (config.node.id, config.node.name.as_str(), config.limits.in_flight),
        (7, "7", 9)
    );
    assert_eq!(config.member().client, "node-7.example.org:9000");
    assert!(config.cluster.unfunded_organizations);
    let guard = config.default_guard().unwrap();
    assert_eq!(guard.budget, Some(NanoUsd::new(2_500_000_000)));
    assert_eq!(guard.mode, decision::facts::Mode::Observe);
    assert_eq!(guard.allowed_tools.map(|tools| tools.len()), Some(1));
    let shipped = machine::Guard::default().breakers;
    assert_eq!(
        (guard.breakers.name_streak, guard.breakers.storm),
        (Some(20), shipped.storm)
    );
    let rows = [
        ("HALTGATE_NODE_IDD", "7", "HALTGATE_NODE_IDD"),
        ("HALTGATE_LIMITS_IN_FLIGHT", "many", "in_flight"),
        ("HALTGATE_NODE_ID", "0", "node.id"),
    ];
    for (variable, value, word) in rows {
        let error = read(SMALLEST, &[(variable, value)])
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn the_listed_node_with_the_lowest_id_founds() {
    let text = |id: u32| {
        format!(
            "{}\n[cluster]\nbootstrap = true\nmembers = [{{ id = 2, peer = \"b:1\", grpc = \"b:2\", http = \"b:3\" }}, {{ id = 3, peer = \"c:1\", grpc = \"c:2\" }}]",
            SMALLEST.replace("id = 1", &format!("id = {id}"))
        )
    };
    let second = read(&text(2), &[]).unwrap();
    assert!(second.founds());
    assert_eq!(second.member().client, "b:2");
    let third = read(&text(3), &[]).unwrap();
    assert!(!third.founds());
    let members: Vec<_> = third
        .members()
        .into_iter()
        .map(|member| (member.name, member.peer))
        .collect();
    assert_eq!(
        members,
        [
            ("3".to_owned(), "c:1".to_owned()),
            ("2".to_owned(), "b:1".to_owned())
        ]
    );
    assert_eq!(third.member().http, "0.0.0.0:9091");
}
