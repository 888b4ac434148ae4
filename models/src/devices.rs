//! Which devices this machine has, and opening one of them by name.
//!
//! A device is only opened after it was listed: opening a CUDA device without a driver fails in a
//! thread of its own, where nobody can catch it.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

use burn::tensor::Device;
use cubecl::Device as CubeDevice;
use cubecl::device::{WgpuDevice, WgpuDeviceKind};
use thiserror::Error;

/// A device as users name it: `auto`, `cpu`, `wgpu`, `wgpu:1`, `cuda`, `cuda:0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// CUDA, else a real wgpu GPU, else the CPU.
    Auto,
    /// Native code on the processor.
    Cpu,
    /// The wgpu adapter of this index, or the first GPU (a software one if there is no other).
    Wgpu(Option<usize>),
    /// The CUDA device of this index, or the first.
    Cuda(Option<usize>),
    /// CubeCL's own CPU runtime. Slow: it exists to test kernels.
    CubeCpu,
}

/// What a device runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceHardware {
    /// The processor, through native code.
    Processor,
    /// A graphics or compute card.
    Gpu,
    /// A processor that imitates a GPU. Correct, slow, never chosen by `auto`.
    SoftwareGpu,
}

/// A device that is present.
#[derive(Clone, Debug)]
pub struct DeviceEntry {
    /// The name that selects it, e.g. `wgpu:0`.
    pub id: String,
    /// The name it gives itself.
    pub name: String,
    /// What it runs on.
    pub hardware: DeviceHardware,
    device: Device,
}

impl DeviceEntry {
    /// The device, for placing tensors on it.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

/// Why a device cannot be had.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// Not a device name.
    #[error("unknown device {found:?}: use auto, cpu, wgpu, wgpu:N, cuda or cuda:N")]
    UnknownName {
        /// What was given.
        found: String,
    },
    /// The machine has no such device.
    #[error(
        "no device {wanted}: this machine has {available}. {advice} \
         `forerun devices` lists what is there; `--device cpu` always works"
    )]
    Absent {
        /// What was asked for.
        wanted: String,
        /// What there is.
        available: String,
        /// What to do about it.
        advice: &'static str,
    },
}

impl FromStr for DeviceChoice {
    type Err = DeviceError;

    fn from_str(name: &str) -> Result<Self, DeviceError> {
        let unknown = || DeviceError::UnknownName {
            found: name.to_owned(),
        };
        let (kind, index) = match name.split_once(':') {
            Some((kind, index)) => (kind, Some(index.parse().map_err(|_| unknown())?)),
            None => (name, None),
        };
        match (kind, index) {
            ("auto", None) => Ok(Self::Auto),
            ("cpu", None) => Ok(Self::Cpu),
            ("cubecl-cpu", None) => Ok(Self::CubeCpu),
            ("wgpu", index) => Ok(Self::Wgpu(index)),
            ("cuda", index) => Ok(Self::Cuda(index)),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::CubeCpu => f.write_str("cubecl-cpu"),
            Self::Wgpu(None) => f.write_str("wgpu"),
            Self::Wgpu(Some(index)) => write!(f, "wgpu:{index}"),
            Self::Cuda(None) => f.write_str("cuda"),
            Self::Cuda(Some(index)) => write!(f, "cuda:{index}"),
        }
    }
}

/// Every device of this machine: the processor, CUDA devices, wgpu adapters (GPUs first).
pub fn list() -> Vec<DeviceEntry> {
    let mut entries = vec![cpu_entry()];
    let mut wgpu = Vec::new();
    let mut num_cuda = 0;
    for device in CubeDevice::enumerate_all() {
        match &device {
            CubeDevice::Cuda(_) => {
                entries.push(cube_entry(
                    format!("cuda:{num_cuda}"),
                    DeviceHardware::Gpu,
                    device,
                ));
                num_cuda += 1;
            }
            CubeDevice::Wgpu(adapter) => wgpu.push((wgpu_hardware(adapter), device)),
            _ => {}
        }
    }
    wgpu.sort_by_key(|(hardware, _)| *hardware == DeviceHardware::SoftwareGpu);
    for (index, (hardware, device)) in wgpu.into_iter().enumerate() {
        entries.push(cube_entry(format!("wgpu:{index}"), hardware, device));
    }
    entries
}

/// The device `choice` names.
///
/// # Errors
/// [`DeviceError::Absent`] with what the machine has instead.
pub fn open(choice: DeviceChoice) -> Result<DeviceEntry, DeviceError> {
    // The processor needs no search, and searching loads GPU drivers.
    match choice {
        DeviceChoice::Cpu => return Ok(cpu_entry()),
        DeviceChoice::CubeCpu => return open_cube_cpu(),
        _ => {}
    }
    let mut entries = list();
    let wanted = |entry: &DeviceEntry| match choice {
        DeviceChoice::Auto => entry.hardware == DeviceHardware::Gpu,
        DeviceChoice::Wgpu(index) => entry.id == format!("wgpu:{}", index.unwrap_or(0)),
        DeviceChoice::Cuda(index) => entry.id == format!("cuda:{}", index.unwrap_or(0)),
        DeviceChoice::Cpu | DeviceChoice::CubeCpu => false,
    };
    match (entries.iter().position(wanted), choice) {
        (Some(index), _) => Ok(entries.swap_remove(index)),
        (None, DeviceChoice::Auto) => Ok(cpu_entry()),
        (None, _) => Err(absent(choice, &entries)),
    }
}

fn cpu_entry() -> DeviceEntry {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    DeviceEntry {
        id: "cpu".to_owned(),
        name: format!("processor, {} ({threads} threads)", std::env::consts::ARCH),
        hardware: DeviceHardware::Processor,
        device: Device::flex(),
    }
}

fn open_cube_cpu() -> Result<DeviceEntry, DeviceError> {
    match CubeDevice::cpu() {
        Ok(device) => Ok(cube_entry(
            "cubecl-cpu".to_owned(),
            DeviceHardware::SoftwareGpu,
            device,
        )),
        Err(_) => Err(absent(DeviceChoice::CubeCpu, &list())),
    }
}

fn cube_entry(id: String, hardware: DeviceHardware, device: CubeDevice) -> DeviceEntry {
    let device = Device::from(device);
    let name = device
        .identity()
        .map_or_else(|| id.clone(), |identity| identity.name);
    DeviceEntry {
        id,
        name,
        hardware,
        device,
    }
}

fn wgpu_hardware(adapter: &WgpuDevice) -> DeviceHardware {
    match adapter.kind {
        WgpuDeviceKind::Cpu => DeviceHardware::SoftwareGpu,
        _ => DeviceHardware::Gpu,
    }
}

fn absent(choice: DeviceChoice, entries: &[DeviceEntry]) -> DeviceError {
    let advice = match choice {
        DeviceChoice::Cuda(_) => {
            "CUDA needs an NVIDIA GPU and its driver; check that `nvidia-smi` works."
        }
        DeviceChoice::Wgpu(_) => {
            "wgpu needs a Vulkan, Metal or DirectX 12 driver (on Debian: mesa-vulkan-drivers)."
        }
        DeviceChoice::Auto | DeviceChoice::Cpu | DeviceChoice::CubeCpu => "",
    };
    let ids: Vec<&str> = entries.iter().map(|entry| entry.id.as_str()).collect();
    DeviceError::Absent {
        wanted: choice.to_string(),
        available: ids.join(", "),
        advice,
    }
}

/// The CPU device already runs with another number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the CPU device already runs with {running} threads: set the number before loading a model"
)]
pub struct ThreadsFixed {
    /// Threads it runs with.
    pub running: usize,
}

/// How many threads the CPU device uses. The worker pool is made once, so this comes before the
/// first model is loaded.
///
/// # Errors
/// [`ThreadsFixed`] if the pool exists with another number.
pub fn set_cpu_threads(threads: NonZeroUsize) -> Result<(), ThreadsFixed> {
    forerun_kernels::threads::configure(threads).map_err(|running| ThreadsFixed { running })
}
