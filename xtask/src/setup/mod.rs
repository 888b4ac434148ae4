//! Brings a machine to where forerun builds, runs and passes its tests. Every step looks first and
//! says what it found, so that a second run changes nothing and takes a second.
//!
//! Each step is a file: `llvm.rs`, `cuda.rs`, `vulkan.rs`, `tools.rs`; `wheels.rs` and `apt.rs` are
//! how they install.

mod apt;
mod cuda;
mod llvm;
pub(crate) mod tools;
mod vulkan;
mod wheels;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::paths::Paths;
use crate::shell::{Shell, timed};

const DEFAULT_MODEL: &str = "smollm2";
/// The second model that the golden tests use.
const TEST_MODEL: &str = "gemma3-270m";

const DEMONSTRATION: [&str; 5] = [
    "generate",
    "--chat",
    "Explain in two sentences why the sky is blue.",
    "--max-tokens",
    "64",
];

/// What a finished set-up means for the programs that are started afterwards.
pub(crate) struct Ready {
    vulkan: vulkan::Vulkan,
    runtime_dir: PathBuf,
}

/// Everything that developers need: what users need, and the programs that `check` uses.
pub(crate) fn for_developers(paths: &Paths) -> Result<()> {
    everything(paths)?;
    timed("check tools", || {
        tools::ensure_all(paths);
        Ok(())
    })
}

/// Everything that users need: libraries, driver, forerun's binary, the default model.
pub(crate) fn everything(paths: &Paths) -> Result<Ready> {
    let ready = machine(paths)?;
    timed("build forerun", || build(paths, &["--bin", "forerun"]))?;
    timed("model", || ready.pull(paths, DEFAULT_MODEL))?;
    Ok(ready)
}

/// What compiling needs, and no more.
pub(crate) fn to_compile(paths: &Paths) -> Result<()> {
    timed("compiler", apt::ensure_compiler)?;
    timed("LLVM libraries", || llvm::ensure(paths))
}

pub(crate) fn machine(paths: &Paths) -> Result<Ready> {
    to_compile(paths)?;
    timed("CUDA libdevice and ptxas", || cuda::ensure(paths))?;
    let vulkan = timed("Vulkan driver", || Ok(vulkan::ensure()))?;
    Ok(Ready {
        vulkan,
        runtime_dir: runtime_dir(paths)?,
    })
}

/// `cargo build` over the whole workspace: one set of features for every task, where `-p` would
/// compile burn once more for each package that asks less of it.
pub(crate) fn build(paths: &Paths, what: &[&str]) -> Result<()> {
    Shell::cargo(&paths.root)
        .args(["build", "--release", "--workspace"])
        .args(what)
        .run()
}

impl Ready {
    /// A program that may open devices, with the variables that devices want.
    pub(crate) fn program(&self, paths: &Paths, program: &Path) -> Shell {
        let ptxas = paths.cuda().join("bin").join("ptxas");
        let shell = Shell::new(program).env_default("XDG_RUNTIME_DIR", &self.runtime_dir);
        let cuda = paths.cuda();
        let shell = if cuda.is_dir() {
            shell.env_default("CUDA_PATH", cuda)
        } else {
            shell
        };
        if ptxas.is_file() {
            shell.env_default("FORERUN_PTXAS", ptxas)
        } else {
            shell
        }
    }

    /// Devices that must take part in the tests here, as `FORERUN_EXPECT_DEVICES` lists them.
    pub(crate) fn expected_devices(&self) -> &'static str {
        match self.vulkan {
            vulkan::Vulkan::Usable => "flex,cpu,wgpu",
            vulkan::Vulkan::Missing => "flex,cpu",
        }
    }

    pub(crate) fn expects(&self, device: &str) -> bool {
        self.expected_devices()
            .split(',')
            .any(|expected| expected == device)
    }

    pub(crate) fn pull_test_models(&self, paths: &Paths) -> Result<()> {
        timed("test model", || self.pull(paths, TEST_MODEL))
    }

    fn pull(&self, paths: &Paths, model: &str) -> Result<()> {
        self.program(paths, &paths.built("forerun"))
            .args(["pull", model])
            .run()
    }

    /// Runs forerun in the caller's folder and leaves with its exit status.
    pub(crate) fn run_forerun(&self, paths: &Paths, args: &[String]) -> Result<()> {
        let shell = self.program(paths, &paths.built("forerun"));
        let shell = if args.is_empty() {
            println!("$ forerun {}", DEMONSTRATION.map(quoted).join(" "));
            shell.args(DEMONSTRATION)
        } else {
            shell.args(args)
        };
        let status = shell.status()?;
        match status.code() {
            Some(0) => Ok(()),
            Some(code) => std::process::exit(code),
            None => bail!("forerun was ended by a signal: {status}"),
        }
    }
}

fn quoted(word: &str) -> String {
    if word.contains(' ') {
        format!("\"{word}\"")
    } else {
        word.to_owned()
    }
}

/// wgpu probes window systems, and complains where this folder is not set.
fn runtime_dir(paths: &Paths) -> Result<PathBuf> {
    let dir = paths.own_data().join("runtime");
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))?;
    }
    Ok(dir)
}

/// Puts a finished `stage` folder in the place of `target`: it is there whole or not at all.
fn install(stage: &Path, target: &Path) -> Result<()> {
    let parent = target.parent().context("an install folder has a parent")?;
    fs::create_dir_all(parent)?;
    if target.exists() {
        fs::remove_dir_all(target).with_context(|| format!("removing old {}", target.display()))?;
    }
    fs::rename(stage, target).with_context(|| format!("installing {}", target.display()))
}

/// An empty folder beside `target`, on the same disk, so that the last step can be a rename.
fn stage_beside(target: &Path) -> Result<PathBuf> {
    let mut name = target.as_os_str().to_owned();
    name.push(".incomplete");
    let stage = PathBuf::from(name);
    if stage.exists() {
        fs::remove_dir_all(&stage)?;
    }
    fs::create_dir_all(&stage).with_context(|| format!("creating {}", stage.display()))?;
    Ok(stage)
}

#[cfg(unix)]
pub(crate) fn make_executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let permissions = fs::Permissions::from_mode(0o755);
    fs::set_permissions(path, permissions).with_context(|| format!("chmod {}", path.display()))
}

#[cfg(not(unix))]
pub(crate) fn make_executable(_path: &Path) -> Result<()> {
    Ok(())
}
