//! What a device can do, for planning before anything is loaded.
//!
//! Neighbours: [`crate::matrix`] splits weights by it; the runner plans its KV pools by it.

use burn::backend::DispatchDevice;
use burn::tensor::Device;
use cubecl::Device as CubeDevice;

/// Which kind of runtime a device belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuntimeKind {
    /// Native code on the CPU.
    Native,
    /// CUDA.
    Cuda,
    /// wgpu: Vulkan, Metal or DX12.
    Wgpu,
    /// CubeCL's LLVM runtime on the CPU, a test device.
    CubeCpu,
    /// Any other CubeCL runtime.
    Other,
}

/// Limits of a device. Asking opens the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLimits {
    /// The runtime.
    pub runtime: RuntimeKind,
    /// Whether the native twins run there.
    pub is_native: bool,
    /// Bytes of the largest buffer a kernel can bind.
    pub binding_bytes_max: u64,
    /// Bytes of shared memory of a cube.
    pub shared_bytes_max: usize,
    /// Units in a cube.
    pub units_max: u32,
    /// Smallest and largest plane.
    pub plane_sizes: (u32, u32),
    /// Bytes of memory, where the driver says.
    pub memory_bytes: Option<u64>,
}

impl DeviceLimits {
    /// Limits of `device`.
    pub fn of(device: &Device) -> Self {
        match cube_device(device) {
            Some(device) => Self::of_cube(&device),
            None => Self::native(),
        }
    }

    /// Limits of the CPU: none that matter here.
    pub const fn native() -> Self {
        Self {
            runtime: RuntimeKind::Native,
            is_native: true,
            binding_bytes_max: u64::MAX,
            shared_bytes_max: usize::MAX,
            units_max: 1,
            plane_sizes: (1, 1),
            memory_bytes: None,
        }
    }

    fn of_cube(device: &CubeDevice) -> Self {
        let client = device.client();
        let properties = client.properties();
        let hardware = &properties.hardware;
        Self {
            runtime: match device {
                CubeDevice::Cuda(_) => RuntimeKind::Cuda,
                CubeDevice::Wgpu(_) => RuntimeKind::Wgpu,
                CubeDevice::Cpu(_) => RuntimeKind::CubeCpu,
                _ => RuntimeKind::Other,
            },
            is_native: false,
            // Kernels index with 32 bits, in units of 4 bytes.
            binding_bytes_max: properties.memory.max_page_size.min(4 * u64::from(u32::MAX)),
            shared_bytes_max: hardware.max_shared_memory_size,
            units_max: hardware.max_units_per_cube,
            plane_sizes: (hardware.plane_size_min, hardware.plane_size_max),
            memory_bytes: properties.memory.max_memory(),
        }
    }
}

/// The CubeCL device behind a burn device, if it is one.
pub fn cube_device(device: &Device) -> Option<CubeDevice> {
    match device.as_dispatch() {
        DispatchDevice::Cube(device) => Some(device.clone()),
        _ => None,
    }
}
