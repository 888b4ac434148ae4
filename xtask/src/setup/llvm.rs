//! LLVM 23's static libraries, which CubeCL's CUDA and CPU compilers are linked with.
//!
//! Their build script (crate tracel-llvm-bundler) downloads a bundle from its release page, unless
//! the folder below holds a finished one. Where that page is out of reach, the same libraries come
//! from PyPI. The folder's name and mark are the bundler's: a new CubeCL may want new ones.

use std::fs::{self, File};

use anyhow::{Context, Result};

use super::{install, make_executable, stage_beside, wheels};
use crate::paths::Paths;
use crate::shell::answers;

const BUNDLE: &str = "tracel-llvm-23.1.0-4";
const INSTALLED_MARK: &str = ".tracel-llvm-installed";
const RELEASE_HOST: &str = "github.com";
const WHEELS: [&str; 2] = [
    "mlc-llvm-static==23.1.1.post0",
    "mlc-llvm-static-extra-targets==23.1.1.post0",
];

pub(super) fn ensure(paths: &Paths) -> Result<()> {
    let target = paths.data_local.join("tracel").join(BUNDLE);
    if target.join(INSTALLED_MARK).is_file() {
        println!("found in {}", target.display());
        return Ok(());
    }
    if answers(RELEASE_HOST) {
        println!("not here yet; the build downloads them from their release page");
        return Ok(());
    }
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        println!(
            "not here, and {RELEASE_HOST} does not answer: the build will fail without a network"
        );
        return Ok(());
    }
    println!("{RELEASE_HOST} does not answer: taking them from PyPI");
    let stage = stage_beside(&target)?;
    wheels::unpack(&WHEELS, &stage)?;
    let bundle = stage.join("mlc_llvm_static").join("static");
    let programs = fs::read_dir(bundle.join("bin"));
    for program in programs.context("the wheel has no mlc_llvm_static/static/bin")? {
        make_executable(&program?.path())?;
    }
    File::create(bundle.join(INSTALLED_MARK))?;
    install(&bundle, &target)?;
    fs::remove_dir_all(&stage)?;
    println!("installed in {}", target.display());
    Ok(())
}
