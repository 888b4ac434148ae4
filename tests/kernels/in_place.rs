//! Ops that write in place do so without a copy when they own their tensor, and leave a shared
//! tensor alone.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use forerun_kernels::advance::advance;
use forerun_kernels::kv_write::kv_write;
use forerun_kernels::logits_process::logits_process;
use forerun_kernels::readback::PendingRead;
use forerun_kernels::sample::sample;
use forerun_kernels::step_inputs::{CarriedToken, SamplingRow};
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

/// A step of five rows that all filter, and of one carried token.
fn sampling_plan() -> StepPlan {
    let mut plan = StepPlan::tokens(5);
    plan.sampling = vec![
        SamplingRow {
            top_k: 1,
            ..SamplingRow::plain(1.0, 3, 4)
        };
        5
    ];
    plan.logit_rows = (0..5).collect();
    plan.rows_max = 5;
    plan.carried = vec![CarriedToken { token: 4, row: 3 }];
    plan.previous_rows = 5;
    plan
}

#[test]
fn steps_are_advanced_and_logits_processed_without_a_copy() {
    for kind in TestDevice::ALL {
        let Ok(device) = kind.open() else { continue };
        let plan = sampling_plan();
        let logits = Tensor::from_data(
            TensorData::new(Random::new(2).floats(5 * 50, 4.0), [5, 50]),
            &device,
        );
        let data = TensorData::new(vec![9_u32; 10], [5, 2]);
        let previous = Tensor::<2, Int>::from_data(data, (&device, DType::U32));
        let before = copies::so_far();
        let step = advance(plan.upload(1, &device), previous);
        let logits = logits_process(logits, step);
        assert_eq!(copies::so_far(), before, "copies on {}", kind.name());
        let kept = logits.into_data();
        let kept = kept.as_slice::<f32>().expect("logits are f32");
        assert_eq!(kept.iter().filter(|x| x.is_finite()).count(), 5);
    }
}

#[test]
fn verdicts_read_back_while_the_next_step_runs_are_those_of_their_step() {
    for kind in TestDevice::ALL {
        let Ok(device) = kind.open() else { continue };
        let plan = sampling_plan();
        let logits = |seed| {
            let values = Random::new(seed).floats(5 * 50, 4.0);
            Tensor::from_data(TensorData::new(values, [5, 50]), &device)
        };
        let mut pending: Vec<PendingRead> = Vec::new();
        let mut previous = sample(logits(0), plan.upload(1, &device));
        for seed in 1..4 {
            let step = advance(plan.upload(1, &device), previous.clone());
            pending.push(PendingRead::start(previous).expect("the device is ours"));
            previous = sample(logits(seed), step);
        }
        for (seed, read) in pending.into_iter().enumerate() {
            let found = read.wait().expect("the copy arrives");
            let expected = sample(logits(seed as u64), plan.upload(1, &device)).into_data();
            let expected = expected.as_slice::<u32>().expect("verdicts are u32");
            assert_eq!(found, expected, "{}", kind.name());
        }
    }
}
