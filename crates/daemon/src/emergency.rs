//! The emergency stop of one node: whatever the cluster says, nothing leaves this node allowed. It needs no leader, no
//! network and no certificate, and a file keeps it over a restart.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use wire::{Code, Failure};

/// Present while the stop is engaged.
const FILE: &str = "EMERGENCY_STOP";
/// What stands against readiness then.
pub const ENGAGED: &str = "the emergency stop of this node is engaged: `haltgate panic --lift`";
/// Where a node takes orders from this machine; of the service's user only.
const SOCKET: &str = "control.sock";
/// How long one order may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a running node is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Stop,
    Lift,
    Tell,
}

impl Order {
    const fn word(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Lift => "lift",
            Self::Tell => "tell",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::Stop, Self::Lift, Self::Tell]
            .into_iter()
            .find(|order| order.word() == word)
    }
}

/// The stop of a running node.
#[derive(Debug)]
pub struct Emergency {
    file: PathBuf,
    engaged: AtomicBool,
}

impl Emergency {
    /// As the last run left it.
    pub fn open(data_dir: &Path) -> Self {
        let file = data_dir.join(FILE);
        Self {
            engaged: AtomicBool::new(file.exists()),
            file,
        }
    }

    pub fn is_engaged(&self) -> bool {
        self.engaged.load(Ordering::SeqCst)
    }

    /// Refuses what would run.
    ///
    /// # Errors
    /// The stop is engaged.
    pub fn check(&self) -> Result<(), Failure> {
        if self.is_engaged() {
            return Err(Failure::new(
                Code::DaemonUnavailable,
                "the emergency stop of this node is engaged: nothing may run",
            ));
        }
        Ok(())
    }

    /// Carries an order out; says whether the stop is engaged now.
    ///
    /// # Errors
    /// The file was not written: the stop holds, but would not survive a restart. Or it was not removed: it holds.
    pub fn obey(&self, order: Order) -> io::Result<bool> {
        match order {
            Order::Stop => {
                // First what counts, then what keeps it.
                self.engaged.store(true, Ordering::SeqCst);
                tracing::error!("the emergency stop is engaged: this node allows nothing");
                write_mark(&self.file)?;
            }
            Order::Lift => {
                if self.file.exists() {
                    fs::remove_file(&self.file)?;
                    sync_directory(&self.file)?;
                }
                self.engaged.store(false, Ordering::SeqCst);
                tracing::warn!("the emergency stop is lifted");
            }
            Order::Tell => {}
        }
        Ok(self.is_engaged())
    }

    /// Listens for SIGUSR1, which stops, and for orders on the socket in the data directory.
    pub async fn listen(self: Arc<Self>) {
        let socket = self.file.with_file_name(SOCKET);
        tokio::join!(self.hear_signals(), self.hear_orders(&socket));
    }

    async fn hear_signals(&self) {
        let mut signals = match signal(SignalKind::user_defined1()) {
            Ok(signals) => signals,
            Err(error) => return tracing::warn!(%error, "SIGUSR1 does not stop this node"),
        };
        while signals.recv().await.is_some() {
            if let Err(error) = self.obey(Order::Stop) {
                tracing::error!(%error, "the emergency stop holds, but would not survive a restart");
            }
        }
    }

    async fn hear_orders(&self, socket: &Path) {
        let listener = match bind(socket) {
            Ok(listener) => listener,
            Err(error) => {
                return tracing::warn!(%error, socket = %socket.display(), "`haltgate panic` does not reach this node");
            }
        };
        loop {
            if let Ok((stream, _)) = listener.accept().await {
                let heard = tokio::time::timeout(PATIENCE, self.answer(stream)).await;
                if let Ok(Err(error)) = heard {
                    tracing::warn!(%error, "an order was not carried out");
                }
            }
        }
    }

    async fn answer(&self, stream: UnixStream) -> io::Result<()> {
        let (from, mut to) = stream.into_split();
        let mut line = String::new();
        tokio::io::BufReader::new(tokio::io::AsyncReadExt::take(from, 64))
            .read_line(&mut line)
            .await?;
        let said = match Order::parse(line.trim_end()) {
            Some(order) => match self.obey(order) {
                Ok(engaged) => told(engaged).to_owned(),
                Err(error) => format!("error {error}\n"),
            },
            None => "error no such order\n".to_owned(),
        };
        to.write_all(said.as_bytes()).await
    }
}

const fn told(engaged: bool) -> &'static str {
    if engaged { "stopped\n" } else { "free\n" }
}

/// A socket of an earlier run is in the way; the data directory's lock says that it is not one of a running node.
fn bind(socket: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(socket)?;
    fs::set_permissions(socket, Permissions::from_mode(0o600))?;
    Ok(listener)
}

fn write_mark(file: &Path) -> io::Result<()> {
    let mut mark = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(file)?;
    mark.write_all(b"haltgate panic --lift removes this\n")?;
    mark.sync_all()?;
    sync_directory(file)
}

fn sync_directory(file: &Path) -> io::Result<()> {
    match file.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

/// Gives an order to the node of a data directory. Where none runs, the file alone is changed: the next start finds it.
///
/// Says whether the stop is engaged, and whether a running node said so.
///
/// # Errors
/// The node did not carry it out, or the file could not be changed.
pub fn order(data_dir: &Path, order: Order) -> io::Result<(bool, bool)> {
    let socket = data_dir.join(SOCKET);
    match std::os::unix::net::UnixStream::connect(&socket) {
        Ok(mut stream) => {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(format!("{}\n", order.word()).as_bytes())?;
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line)?;
            match line.as_str() {
                "stopped\n" => Ok((true, true)),
                "free\n" => Ok((false, true)),
                other => Err(io::Error::other(other.trim_end().to_owned())),
            }
        }
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            let engaged = Emergency::open(data_dir).obey(order)?;
            Ok((engaged, false))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Emergency, Order, order};

    #[tokio::test(flavor = "multi_thread")]
    async fn it_is_obeyed_at_once_and_kept() {
        let dir = std::env::temp_dir().join(format!("haltgate-emergency-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        // No node runs: the file alone.
        assert_eq!(order(&dir, Order::Tell).unwrap(), (false, false));
        assert_eq!(order(&dir, Order::Stop).unwrap(), (true, false));
        let emergency = Arc::new(Emergency::open(&dir));
        assert!(emergency.is_engaged() && emergency.check().is_err());

        let listening = tokio::spawn(Arc::clone(&emergency).listen());
        let orders = [
            (Order::Tell, true),
            (Order::Lift, false),
            (Order::Tell, false),
            (Order::Stop, true),
        ];
        for (given, engaged) in orders {
            let at = dir.clone();
            let told = tokio::task::spawn_blocking(move || {
                // Until the socket is there, the file would be changed behind the node's back.
                while !at.join(super::SOCKET).exists() {
                    std::thread::yield_now();
                }
                order(&at, given)
            });
            assert_eq!(told.await.unwrap().unwrap(), (engaged, true), "{given:?}");
            assert_eq!(emergency.is_engaged(), engaged);
            assert_eq!(Emergency::open(&dir).is_engaged(), engaged, "kept");
        }
        listening.abort();
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
