//! Running other programs, with messages that name the command when one fails.

use std::env;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// A command being put together.
pub(crate) struct Shell {
    command: Command,
}

impl Shell {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        // What `cargo run` tells this program about itself is wrong for the programs it starts.
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        Self { command }
    }

    /// Cargo in the repository, the same one that runs this.
    pub(crate) fn cargo(root: &Path) -> Self {
        Self::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into())).dir(root)
    }

    pub(crate) fn dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    pub(crate) fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(args);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Sets a variable unless the caller's environment has it.
    pub(crate) fn env_default(self, name: &str, value: impl AsRef<OsStr>) -> Self {
        if env::var_os(name).is_some_and(|set| !set.is_empty()) {
            self
        } else {
            self.env(name, value)
        }
    }

    fn named(&self) -> String {
        let program = Path::new(self.command.get_program())
            .file_name()
            .unwrap_or_default();
        let words = std::iter::once(program).chain(self.command.get_args());
        words
            .map(|word| word.to_string_lossy().into_owned())
            .collect::<Vec<_>>()
            .join(" ")
    }

    pub(crate) fn status(mut self) -> Result<ExitStatus> {
        let name = self.named();
        self.command
            .status()
            .with_context(|| format!("starting `{name}`"))
    }

    /// Runs with this program's own output; an exit status other than 0 is an error.
    pub(crate) fn run(self) -> Result<()> {
        let name = self.named();
        let status = self.status()?;
        if status.success() {
            Ok(())
        } else {
            bail!("`{name}` failed: {status}")
        }
    }

    /// Runs and returns stdout; stderr is shown.
    pub(crate) fn read(mut self) -> Result<String> {
        let name = self.named();
        let output = self.command.stderr(Stdio::inherit()).output();
        let output = output.with_context(|| format!("starting `{name}`"))?;
        if !output.status.success() {
            bail!("`{name}` failed: {}", output.status);
        }
        String::from_utf8(output.stdout).with_context(|| format!("`{name}` printed no UTF-8"))
    }

    /// Whether it can be started and succeeds; says nothing.
    pub(crate) fn succeeds(mut self) -> bool {
        let quiet = self
            .command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        quiet.status().is_ok_and(|status| status.success())
    }

    /// Runs, hands each line of stdout to `line` as it comes, and returns the exit status.
    pub(crate) fn lines(mut self, mut line: impl FnMut(&str)) -> Result<ExitStatus> {
        let name = self.named();
        let child = self.command.stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("starting `{name}`"))?;
        let stdout = child.stdout.take().context("stdout is a pipe")?;
        let mut reader = BufReader::new(stdout);
        let mut buffer = Vec::new();
        while reader.read_until(b'\n', &mut buffer)? > 0 {
            line(String::from_utf8_lossy(&buffer).trim_end_matches(['\n', '\r']));
            buffer.clear();
        }
        Ok(child.wait()?)
    }
}

/// Runs one named step and prints how long it took.
pub(crate) fn timed<T>(name: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
    println!("== {name}");
    let start = Instant::now();
    let done = step().with_context(|| format!("{name} failed"))?;
    println!("== {name}: {:.1} s", start.elapsed().as_secs_f64());
    Ok(done)
}

/// Whether something at `host` answers on the HTTPS port within seconds.
pub(crate) fn answers(host: &str) -> bool {
    let Ok(addresses) = (host, 443).to_socket_addrs() else {
        return false;
    };
    addresses
        .take(2)
        .any(|a| TcpStream::connect_timeout(&a, Duration::from_secs(3)).is_ok())
}
