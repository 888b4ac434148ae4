//! A Vulkan driver for wgpu: the machine's own, else Mesa's software driver, so that the wgpu path is
//! tested where no GPU is.

use std::fs;
use std::path::Path;

use super::apt::Apt;
use crate::shell::Shell;

const PACKAGES: [&str; 2] = ["mesa-vulkan-drivers", "libvulkan1"];

/// Whether the tests may count on a wgpu device.
#[derive(Clone, Copy)]
pub(crate) enum Vulkan {
    Usable,
    Missing,
}

/// Never an error: forerun runs without wgpu, and the tests then say that they did not cover it.
pub(super) fn ensure() -> Vulkan {
    if !cfg!(target_os = "linux") {
        println!("not needed on this system: wgpu uses its native API");
        return Vulkan::Usable;
    }
    if has_loader() && has_driver() {
        println!("loader and driver found");
        return Vulkan::Usable;
    }
    if has_gpu() {
        println!("there is a GPU without a Vulkan driver: install its vendor's driver to use wgpu");
        return Vulkan::Missing;
    }
    let Some(apt) = Apt::find() else {
        println!(
            "SKIPPED: no GPU, and no right to install a software driver (on Debian: {})",
            PACKAGES.join(", ")
        );
        return Vulkan::Missing;
    };
    match apt.install(&PACKAGES) {
        Ok(()) => Vulkan::Usable,
        Err(error) => {
            println!("SKIPPED: the software driver could not be installed: {error:#}");
            Vulkan::Missing
        }
    }
}

fn has_loader() -> bool {
    Shell::new("sh")
        .args([
            "-c",
            "PATH=$PATH:/sbin ldconfig -p | grep -q libvulkan.so.1",
        ])
        .succeeds()
}

fn has_driver() -> bool {
    let folders = [
        "/usr/share/vulkan/icd.d",
        "/etc/vulkan/icd.d",
        "/usr/local/share/vulkan/icd.d",
    ];
    let filled = |folder: &str| fs::read_dir(folder).is_ok_and(|mut files| files.next().is_some());
    std::env::var_os("VK_DRIVER_FILES").is_some() || folders.into_iter().any(filled)
}

fn has_gpu() -> bool {
    let render_nodes = fs::read_dir("/dev/dri").is_ok_and(|nodes| {
        nodes
            .flatten()
            .any(|node| node.file_name().to_string_lossy().starts_with("renderD"))
    });
    render_nodes || Path::new("/dev/nvidia0").exists()
}
