//! The table of RPCs has what the `.proto` files have.

use std::collections::BTreeSet;

use prost::Message as _;
use prost_types::FileDescriptorSet;
use wire::proto::DESCRIPTORS;
use wire::rpc::Rpc;

/// What only nodes call of each other.
const OF_NODES: &str = "haltgate.peer.v1";

#[test]
fn every_rpc_of_the_proto_files_is_in_the_table_under_its_path() {
    let files = FileDescriptorSet::decode(DESCRIPTORS).unwrap().file;
    let mut described = BTreeSet::new();
    for file in files.iter().filter(|file| file.package() != OF_NODES) {
        for service in &file.service {
            for method in &service.method {
                described.insert(format!(
                    "/{}.{}/{}",
                    file.package(),
                    service.name(),
                    method.name()
                ));
            }
        }
    }
    let listed: BTreeSet<String> = Rpc::ALL.iter().map(|rpc| rpc.route().to_owned()).collect();
    assert_eq!(listed, described);
    assert_eq!(listed.len(), Rpc::ALL.len(), "one route an RPC");
    for rpc in Rpc::ALL {
        assert_eq!(Rpc::at(rpc.route()), Some(*rpc));
        assert_eq!(format!("/{}", rpc.path()), rpc.route());
    }
    assert_eq!(Rpc::at("/haltgate.admin.v1.Halts/Forget"), None);
}
