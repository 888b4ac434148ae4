//! `forerun devices`: what this machine has and what `--device auto` would take.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use forerun_models::devices::{self, DeviceChoice, DeviceHardware};

/// Prints one line per device.
pub(crate) fn run(out: &mut impl Write) -> Result<()> {
    let automatic = devices::open(DeviceChoice::Auto)?.id;
    for entry in devices::list() {
        let hardware = match entry.hardware {
            DeviceHardware::Processor => "native code",
            DeviceHardware::Gpu => "GPU",
            DeviceHardware::SoftwareGpu => "software GPU: correct, slow, for tests",
        };
        let mark = if entry.id == automatic { "*" } else { " " };
        writeln!(out, "{mark} {:<10} {} ({hardware})", entry.id, entry.name)?;
        if entry.id.starts_with("cuda") && !has_libdevice() {
            writeln!(
                out,
                "             warning: nvvm/libdevice/libdevice.10.bc is missing: set CUDA_PATH to a \
                 folder that has it (`cargo xtask setup` installs one), or some kernels cannot be \
                 compiled"
            )?;
        }
    }
    writeln!(out, "* is what `--device auto` takes.")?;
    Ok(())
}

/// Whether CubeCL will find CUDA's device maths library: it looks under `CUDA_PATH` if that is
/// set, else in the usual toolkit folders.
fn has_libdevice() -> bool {
    let roots = match std::env::var_os("CUDA_PATH") {
        Some(root) => vec![PathBuf::from(root)],
        None => ["/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda", "/usr"]
            .map(PathBuf::from)
            .to_vec(),
    };
    roots
        .iter()
        .any(|root| root.join("nvvm/libdevice/libdevice.10.bc").is_file())
}
