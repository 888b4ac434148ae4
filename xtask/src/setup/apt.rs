//! Packages of Debian and its relatives, where we may install any.

use anyhow::{Result, bail};

use crate::shell::Shell;

/// How `apt-get` can be run without asking anybody.
pub(super) enum Apt {
    AsRoot,
    WithSudo,
}

impl Apt {
    /// `None` where there is no apt, or no right to use it.
    pub(super) fn find() -> Option<Self> {
        if !Shell::new("apt-get").arg("--version").succeeds() {
            return None;
        }
        if Shell::new("sh")
            .args(["-c", "test \"$(id -u)\" = 0"])
            .succeeds()
        {
            return Some(Self::AsRoot);
        }
        Shell::new("sudo")
            .args(["-n", "true"])
            .succeeds()
            .then_some(Self::WithSudo)
    }

    pub(super) fn install(&self, packages: &[&str]) -> Result<()> {
        println!("installing {} with apt-get", packages.join(", "));
        self.apt_get(&["update", "-qq"])?;
        let options = ["install", "-y", "-qq", "--no-install-recommends"];
        self.apt_get(&[&options[..], packages].concat())
    }

    fn apt_get(&self, args: &[&str]) -> Result<()> {
        let shell = match self {
            Self::AsRoot => Shell::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive"),
            Self::WithSudo => {
                Shell::new("sudo").args(["-n", "DEBIAN_FRONTEND=noninteractive", "apt-get"])
            }
        };
        shell.args(args).run()
    }
}

/// A program that has to be there, and the package that brings it.
pub(super) fn ensure_program(check: Shell, name: &str, package: &str) -> Result<()> {
    if check.succeeds() {
        return Ok(());
    }
    match Apt::find() {
        Some(apt) => apt.install(&[package]),
        None => bail!("{name} is missing: install it (on Debian: package {package})"),
    }
}

/// LLVM's shim is C++; the linker comes with the compiler.
pub(super) fn ensure_compiler() -> Result<()> {
    if cfg!(target_os = "windows") {
        println!("MSVC's build tools are expected (rustup asks for them)");
        return Ok(());
    }
    ensure_program(
        Shell::new("c++").arg("--version"),
        "a C++ compiler (`c++`)",
        "g++",
    )?;
    println!("c++ is there");
    Ok(())
}
