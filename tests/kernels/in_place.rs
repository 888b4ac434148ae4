//! Ops that write in place do so without a copy when they own their tensor, and leave a shared
//! tensor alone.

use burn::tensor::{Device, Tensor, TensorData};
use forerun_kernels::kv_write::kv_write;
use forerun_kernels::{KvSpec, copies};
use forerun_tests::parity::TestDevice;
use forerun_tests::parity::random::Random;
use forerun_tests::parity::step::StepPlan;

const SPEC: KvSpec = KvSpec {
    group: 0,
    num_heads: 3,
    num_kv_heads: 1,
    head_dim: 5,
    block_size: 4,
};

fn write(pool: Tensor<5>, plan: &StepPlan, device: &Device) -> Tensor<5> {
    let qkv = Random::new(1).floats(plan.num_tokens() * 25, 1.0);
    let qkv = Tensor::from_data(TensorData::new(qkv, [plan.num_tokens(), 25]), device);
    kv_write(pool, qkv, plan.upload(2, device), SPEC)
}

fn sum(pool: Tensor<5>) -> f32 {
    pool.into_data()
        .as_slice::<f32>()
        .expect("pools are f32")
        .iter()
        .map(|value| value.abs())
        .sum()
}

#[test]
fn a_pool_with_one_owner_is_written_without_a_copy() {
    for kind in [
        TestDevice::Flex,
        TestDevice::CubeCpu,
        TestDevice::Wgpu,
        TestDevice::Cuda,
    ] {
        let Ok(device) = kind.open() else { continue };
        let plan = StepPlan::tokens(7);
        let mut pool = Tensor::<5>::zeros([plan.num_blocks, 2, 1, 4, 5], &device);
        let before = copies::so_far();
        for _ in 0..3 {
            pool = write(pool, &plan, &device);
        }
        assert_eq!(copies::so_far(), before, "copies on {}", kind.name());
        assert!(sum(pool) > 1.0, "{}", kind.name());
    }
}

#[test]
fn a_shared_pool_is_copied_and_left_alone() {
    for kind in [
        TestDevice::Flex,
        TestDevice::CubeCpu,
        TestDevice::Wgpu,
        TestDevice::Cuda,
    ] {
        let Ok(device) = kind.open() else { continue };
        let plan = StepPlan::tokens(7);
        let pool = Tensor::<5>::zeros([plan.num_blocks, 2, 1, 4, 5], &device);
        let before = copies::so_far();
        let written = write(pool.clone(), &plan, &device);
        assert_eq!(copies::so_far(), before + 1, "copies on {}", kind.name());
        assert!(
            sum(pool) < 1e-6,
            "the shared pool was written on {}",
            kind.name()
        );
        assert!(sum(written) > 1.0, "{}", kind.name());
    }
}
