//! Generated from `proto/`; the module tree follows the packages.

#![expect(
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::as_conversions,
    clippy::large_enum_variant,
    reason = "generated code"
)]

pub mod shackle {
    pub mod v1 {
        tonic::include_proto!("shackle.v1");
        /// `google.protobuf.Empty`, as the generated code has it.
        pub type Empty = ();
    }
}

pub mod haltgate {
    pub mod admin {
        pub mod v1 {
            tonic::include_proto!("haltgate.admin.v1");
        }
    }
    pub mod audit {
        pub mod v1 {
            tonic::include_proto!("haltgate.audit.v1");
        }
    }
    pub mod error {
        pub mod v1 {
            tonic::include_proto!("haltgate.error.v1");
        }
    }
    pub mod peer {
        pub mod v1 {
            tonic::include_proto!("haltgate.peer.v1");
        }
    }
}

/// Every file's descriptor, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.binpb"));
