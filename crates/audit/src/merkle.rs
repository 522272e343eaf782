use minicbor::{Decode, Encode};
use sha2::{Digest as _, Sha256};

/// The right edge of an RFC 6962 Merkle tree over entry hashes: enough to append and to give the root.
///
/// The data of a leaf is the entry's canonical hash (32 bytes), so a leaf is SHA-256(0x00 ‖ hash) and a proof
/// never needs an entry's bytes. It rests in replicated state: at most 64 nodes of 32 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Frontier {
    /// Number of leaves.
    #[n(0)]
    size: u64,
    /// Roots of the complete subtrees from left to right: one for each bit set in `size`, the largest first.
    #[cbor(n(1), with = "crate::flat")]
    subtrees: Vec<[u8; 32]>,
}

impl Frontier {
    /// Number of entries in the tree.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Appends the canonical hash of the next entry.
    pub fn push(&mut self, entry_hash: &[u8; 32]) {
        self.push_data(entry_hash);
    }

    /// Gives the Merkle tree hash of RFC 6962 §2.1; SHA-256 of nothing for the empty tree.
    pub fn root(&self) -> [u8; 32] {
        let joined = self
            .subtrees
            .iter()
            .rev()
            .copied()
            .reduce(|right, left| node_hash(&left, &right));
        joined.unwrap_or_else(|| Sha256::digest([]).into())
    }

    fn push_data(&mut self, data: &[u8]) {
        let mut node = leaf_hash(data);
        // Each low bit set in the size is a subtree as large as the node: they join, as in a carry.
        for _ in 0..self.size.trailing_ones() {
            if let Some(left) = self.subtrees.pop() {
                node = node_hash(&left, &node);
            }
        }
        self.subtrees.push(node);
        self.size = self.size.saturating_add(1);
    }
}

/// Gives the hash of a leaf, SHA-256(0x00 ‖ data).
pub fn leaf_hash(data: &[u8]) -> [u8; 32] {
    Sha256::new()
        .chain_update([0])
        .chain_update(data)
        .finalize()
        .into()
}

/// Gives the hash of an inner node, SHA-256(0x01 ‖ left ‖ right).
pub fn node_hash(left: &[u8; 32], right: &[u8; 32]) -> [u8; 32] {
    Sha256::new()
        .chain_update([1])
        .chain_update(left)
        .chain_update(right)
        .finalize()
        .into()
}

#[cfg(test)]
mod tests {
    use super::{Frontier, leaf_hash, node_hash};

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn roots_are_those_published_for_certificate_transparency() {
        let leaves: [&[u8]; 8] = [
            &[],
            &[0x00],
            &[0x10],
            &[0x20, 0x21],
            &[0x30, 0x31],
            &[0x40, 0x41, 0x42, 0x43],
            &[0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57],
            &[
                0x60, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x6c, 0x6d, 0x6e,
                0x6f,
            ],
        ];
        let roots = [
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
            "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
            "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
            "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
            "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
        ];
        let mut frontier = Frontier::default();
        assert_eq!(hex(&frontier.root()), roots[0]);
        for (leaf, root) in leaves.iter().zip(&roots[1..]) {
            frontier.push_data(leaf);
            assert_eq!(hex(&frontier.root()), *root, "size {}", frontier.size());
        }
    }

    #[test]
    fn the_frontier_gives_the_root_of_the_whole_tree_at_every_size() {
        fn tree(leaves: &[[u8; 32]]) -> [u8; 32] {
            if leaves.len() == 1 {
                return leaf_hash(&leaves[0]);
            }
            let split = leaves.len().next_power_of_two() / 2;
            node_hash(&tree(&leaves[..split]), &tree(&leaves[split..]))
        }
        let leaves: Vec<[u8; 32]> = (0..130_u8).map(|byte| [byte; 32]).collect();
        let mut frontier = Frontier::default();
        for (index, leaf) in leaves.iter().enumerate() {
            frontier.push(leaf);
            assert_eq!(frontier.root(), tree(&leaves[..=index]), "size {}", index + 1);
            let stored = minicbor::to_vec(&frontier).unwrap();
            assert_eq!(minicbor::decode::<Frontier>(&stored).unwrap(), frontier);
        }
    }
}
