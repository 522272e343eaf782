//! This node's secret key for the audit chain: a file that only its owner can read.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use audit::Signer;
use decision::Digest;

/// Why the key cannot be used. Without one that outlives the process, what it signs cannot be verified later.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("{}: {source}", .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{}: others may read it (mode {mode:o}): chmod 600", .path.display())]
    Open { path: PathBuf, mode: u32 },
    #[error("{}: must be 64 hexadecimal digits in lower case", .path.display())]
    Malformed { path: PathBuf },
}

/// Reads the key, or makes one where there is no file.
///
/// # Errors
/// The file is malformed, or open to others, or cannot be made.
pub fn load_or_make(path: &Path) -> Result<[u8; 32], KeyError> {
    let failed = |source| KeyError::File {
        path: path.to_owned(),
        source,
    };
    match fs::metadata(path) {
        Ok(about) => {
            // A mounted secret is often readable by the service's group; never by everyone.
            let mode = about.permissions().mode() & 0o777;
            if mode & 0o037 != 0 {
                return Err(KeyError::Open {
                    path: path.to_owned(),
                    mode,
                });
            }
            let text = fs::read_to_string(path).map_err(failed)?;
            let digits = Digest::from_hex(text.trim());
            digits
                .map(|digest| *digest.as_bytes())
                .ok_or_else(|| KeyError::Malformed {
                    path: path.to_owned(),
                })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(path).map_err(failed),
        Err(error) => Err(failed(error)),
    }
}

/// Gives the signer of a seed; a node and its checkpoints sign with one key.
pub fn signer(seed: &[u8; 32]) -> Signer {
    Signer::from_seed(seed)
}

fn make(path: &Path) -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| io::Error::other(error.to_string()))?;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    writeln!(file, "{}", Digest::new(seed))?;
    file.sync_all()?;
    Ok(seed)
}

#[cfg(test)]
mod tests {
    use super::{KeyError, load_or_make};
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_key_is_made_once_and_read_only_where_it_is_kept_secret() {
        let folder = std::env::temp_dir().join(format!("haltgate-key-{}", std::process::id()));
        let path = folder.join("deep/audit.key");
        let made = load_or_make(&path).unwrap();
        assert_eq!(load_or_make(&path).unwrap(), made);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for (mode, passes) in [
            (0o400, true),
            (0o640, true),
            (0o644, false),
            (0o660, false),
            (0o606, false),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let read = load_or_make(&path);
            assert_eq!(read.is_ok(), passes, "{mode:o} {read:?}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        for text in ["", "00", &"g".repeat(64), &"A".repeat(64), &"0".repeat(65)] {
            fs::write(&path, text).unwrap();
            assert!(
                matches!(load_or_make(&path), Err(KeyError::Malformed { .. })),
                "{text}"
            );
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
