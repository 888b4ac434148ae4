//! What tests of kernels share: the software devices, tensors on them, and reproducible inputs.

use crate::packed::format::WeightFormat;
use burn_backend::{DType, Shape};
use burn_cubecl::tensor::CubeTensor;
use cubecl::Device;
use cubecl::device::WgpuDeviceKind;
use half::{bf16, f16};

/// CubeCL's CPU runtime, and wgpu where there is a driver.
pub(crate) fn devices() -> Vec<(&'static str, Device)> {
    let cpu = Device::cpu().expect("CubeCL's cpu runtime is linked into this crate");
    let mut devices = vec![("cpu", cpu)];
    if let Ok(wgpu) = Device::wgpu(WgpuDeviceKind::default()) {
        devices.push(("wgpu", wgpu));
    }
    devices
}

pub(crate) fn tensor<const D: usize>(
    device: &Device,
    values: &[f32],
    shape: [usize; D],
) -> CubeTensor {
    upload(device, bytemuck::cast_slice(values), shape, DType::F32)
}

pub(crate) fn words(device: &Device, values: &[u32]) -> CubeTensor {
    upload(
        device,
        bytemuck::cast_slice(values),
        [values.len()],
        DType::U32,
    )
}

fn upload<const D: usize>(
    device: &Device,
    bytes: &[u8],
    shape: [usize; D],
    dtype: DType,
) -> CubeTensor {
    let client = device.client();
    let handle = client.create_from_slice(bytes);
    CubeTensor::new_contiguous(client, device.clone(), Shape::from(shape), handle, dtype)
}

pub(crate) fn read(tensor: &CubeTensor) -> Vec<f32> {
    let bytes = tensor.client.read_one(tensor.handle.clone()).unwrap();
    bytemuck::pod_collect_to_vec(&bytes)
}

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [-1, 1).
    pub(crate) fn float(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub(crate) fn floats(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.float()).collect()
    }

    /// Rows as a file stores them: random codes, scales of a plausible size, subnormal f16 ones
    /// among them.
    pub(crate) fn rows(&mut self, format: WeightFormat, d_input: usize, num: usize) -> Vec<u8> {
        let mut bytes = vec![0; num * format.row_bytes(d_input).unwrap()];
        for block in bytes.chunks_exact_mut(format.block_bytes()) {
            for byte in block.iter_mut() {
                *byte = self.bits() as u8;
            }
            let scale = f16::from_f32(self.float() * [1.0e-5, 1.0e-2][self.bits() as usize % 2]);
            let min = f16::from_f32(self.float() * 1.0e-2).to_le_bytes();
            match format {
                WeightFormat::F32 => block.copy_from_slice(&self.float().to_le_bytes()),
                WeightFormat::F16 => block.copy_from_slice(&scale.to_le_bytes()),
                WeightFormat::Bf16 => {
                    block.copy_from_slice(&bf16::from_f32(self.float()).to_le_bytes());
                }
                WeightFormat::Q6K => block[208..210].copy_from_slice(&scale.to_le_bytes()),
                _ => block[..2].copy_from_slice(&scale.to_le_bytes()),
            }
            if matches!(
                format,
                WeightFormat::Q4_1 | WeightFormat::Q5_1 | WeightFormat::Q4K
            ) {
                block[2..4].copy_from_slice(&min);
            }
        }
        bytes
    }
}

/// Panics if a value is further from the expected one than `tolerance` times the largest.
#[track_caller]
pub(crate) fn assert_close(what: &str, found: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected
        .iter()
        .fold(1.0e-6, |largest: f64, value| largest.max(value.abs()));
    for (i, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(found) - expected).abs();
        assert!(
            error <= tolerance * largest,
            "{what}[{i}]: {found}, expected {expected}"
        );
    }
}
