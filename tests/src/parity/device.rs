//! The devices a case can run on.

use burn::tensor::{Device, DeviceKind, DeviceType};

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TestDevice {
    /// Native code on the CPU: what users run there.
    Flex,
    /// CubeCL through LLVM on the CPU: the compiler CUDA uses, as near as a machine without a GPU
    /// comes to it.
    CubeCpu,
    /// CubeCL through WGSL: a GPU, or software Vulkan.
    Wgpu,
    /// CUDA.
    Cuda,
}

impl TestDevice {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Flex, Self::CubeCpu, Self::Wgpu, Self::Cuda];

    /// The name it has on command lines and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flex => "flex",
            Self::CubeCpu => "cpu",
            Self::Wgpu => "wgpu",
            Self::Cuda => "cuda",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|device| device.name() == name)
    }

    /// A device of this kind, or why there is none.
    ///
    /// A CUDA device without a driver panics in a thread of its own, so the machine is asked before
    /// a device is opened.
    pub fn open(self) -> Result<Device, String> {
        match self {
            Self::Flex => Ok(Device::flex()),
            Self::CubeCpu => Ok(Device::cpu()),
            Self::Wgpu => open_wgpu(),
            Self::Cuda => Device::enumerate(DeviceType::Cuda)
                .into_vec()
                .into_iter()
                .next()
                .ok_or_else(|| "no CUDA device: is the NVIDIA driver installed?".into()),
        }
    }
}

/// A GPU before a software device.
fn open_wgpu() -> Result<Device, String> {
    let devices = Device::enumerate(DeviceType::Wgpu).into_vec();
    let software = Device::wgpu(DeviceKind::Cpu);
    let gpu = devices.iter().find(|&device| *device != software);
    gpu.or(devices.first()).cloned().ok_or_else(|| {
        "no wgpu device: install a GPU driver, or a software one (Debian: mesa-vulkan-drivers)"
            .into()
    })
}
