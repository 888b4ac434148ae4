//! The two pieces of CUDA's toolkit that forerun uses: `libdevice` (bitcode of math functions, linked
//! into kernels) and `ptxas` (assembles PTX in tests, without a GPU). The driver is not ours to
//! install.

use std::fs;

use anyhow::{Context, Result};

use super::{install, make_executable, stage_beside, wheels};
use crate::paths::Paths;

const WHEELS: [&str; 2] = ["nvidia-nvvm==13.5.37", "nvidia-cuda-nvcc==13.5.37"];
/// Files of the toolkit, with the same paths inside the wheels' `nvidia/cu13` and below `CUDA_PATH`.
const FILES: [&str; 2] = ["nvvm/libdevice/libdevice.10.bc", "bin/ptxas"];
/// Names the wheels a folder was made from; another version is installed anew.
const VERSION_FILE: &str = "forerun-wheels.txt";

pub(super) fn ensure(paths: &Paths) -> Result<()> {
    let target = paths.cuda();
    let version = WHEELS.join("\n");
    if fs::read_to_string(target.join(VERSION_FILE)).is_ok_and(|found| found == version) {
        println!("found in {}", target.display());
        return Ok(());
    }
    if !cfg!(target_os = "linux") {
        println!(
            "not installed on this system; for CUDA set CUDA_PATH to a toolkit with {}",
            FILES[0]
        );
        return Ok(());
    }
    let stage = stage_beside(&target)?;
    let unpacked = stage.join("unpacked");
    fs::create_dir_all(&unpacked)?;
    wheels::unpack(&WHEELS, &unpacked)?;
    for file in FILES {
        let to = stage.join(file);
        fs::create_dir_all(to.parent().context("a toolkit file lies in a folder")?)?;
        let from = unpacked.join("nvidia").join("cu13").join(file);
        fs::rename(&from, &to).with_context(|| format!("the wheels have no {file}"))?;
    }
    make_executable(&stage.join("bin").join("ptxas"))?;
    fs::remove_dir_all(&unpacked)?;
    fs::write(stage.join(VERSION_FILE), version)?;
    install(&stage, &target)?;
    println!("installed in {}", target.display());
    Ok(())
}
