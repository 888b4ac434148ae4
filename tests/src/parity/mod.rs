//! The same op with the same inputs on every device: native code on the CPU, CubeCL through LLVM,
//! CubeCL through WGSL, and CUDA where there is one.
//!
//! A [`Case`] runs on a device and says what it should have given: the native twin's answer, or a
//! reference in f64 where the native twin rounds differently on purpose. A [`Report`] says for each
//! device and op what ran, what could not, and what failed.
//!
//! Neighbours: `tests/kernels` runs it as tests; `src/bin/device_check.rs` is the same as a program
//! that needs no test harness, to be taken to whatever machine has a GPU.

pub mod cases;
pub mod device;
pub mod random;
pub mod report;
pub mod step;

pub use device::TestDevice;
pub use report::Report;

use burn::tensor::{Device, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a case gives on a device.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Numbers, compared within the case's tolerance.
    Floats(Vec<f32>),
    /// Integers or bits, compared exactly.
    Words(Vec<u32>),
}

impl Output {
    /// The values of a tensor.
    pub fn floats<const D: usize>(tensor: Tensor<D>) -> Self {
        let data = tensor.into_data();
        Self::Floats(data.as_slice::<f32>().expect("ops give f32").to_vec())
    }

    /// The bits of the values of a tensor, for ops that only move them.
    pub fn bits<const D: usize>(tensor: Tensor<D>) -> Self {
        let data = tensor.into_data();
        let values = data.as_slice::<f32>().expect("ops give f32");
        Self::Words(values.iter().map(|value| value.to_bits()).collect())
    }

    /// The values of two outputs of an op, one after the other.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Floats(mut values), Self::Floats(more)) => {
                values.extend(more);
                Self::Floats(values)
            }
            (Self::Words(mut words), Self::Words(more)) => {
                words.extend(more);
                Self::Words(words)
            }
            _ => panic!("outputs of different kinds"),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Floats(values) => values.len(),
            Self::Words(words) => words.len(),
        }
    }
}

/// One op, one set of inputs.
pub struct Case {
    /// The op.
    pub op: &'static str,
    /// What is special about the inputs.
    pub name: String,
    /// Largest error, relative to the largest value of the expected output (at least 1e-6).
    pub tolerance: f32,
    /// Largest error on the CPU, where packed weights meet activations of 8 bits.
    pub native_tolerance: f32,
    /// The expected output.
    pub expected: Box<dyn Fn() -> Output + Send + Sync>,
    /// The op on a device.
    pub run: Box<dyn Fn(&Device) -> Output + Send + Sync>,
}

impl Case {
    /// A case whose expected output is what the native twin gives.
    pub fn against_native(
        op: &'static str,
        name: impl Into<String>,
        tolerance: f32,
        run: impl Fn(&Device) -> Output + Clone + Send + Sync + 'static,
    ) -> Self {
        let native = run.clone();
        Self {
            op,
            name: name.into(),
            tolerance,
            native_tolerance: tolerance,
            expected: Box::new(move || native(&Device::flex())),
            run: Box::new(run),
        }
    }

    /// Runs on `device` and compares: the relative error, or what went wrong.
    pub fn check(&self, device: TestDevice, opened: &Device) -> Result<f32, String> {
        let outcome = catch_unwind(AssertUnwindSafe(|| ((self.expected)(), (self.run)(opened))));
        let (expected, found) = outcome.map_err(|payload| panic_message(&*payload))?;
        let tolerance = match device {
            TestDevice::Flex => self.native_tolerance,
            _ => self.tolerance,
        };
        compare(&expected, &found, tolerance)
    }
}

fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    format!("panicked: {}", text.unwrap_or("without a message"))
}

fn compare(expected: &Output, found: &Output, tolerance: f32) -> Result<f32, String> {
    if expected.len() != found.len() {
        return Err(format!(
            "{} values, expected {}",
            found.len(),
            expected.len()
        ));
    }
    match (expected, found) {
        (Output::Floats(expected), Output::Floats(found)) => {
            let largest = expected
                .iter()
                .fold(1e-6f32, |max, value| max.max(value.abs()));
            let mut worst = 0.0f32;
            for (i, (expected, found)) in expected.iter().zip(found).enumerate() {
                let error = (expected - found).abs() / largest;
                if error.is_nan() || error > tolerance {
                    return Err(format!(
                        "value {i} is {found}, expected {expected}: error {error:.2e} of the \
                         largest value, at most {tolerance:.0e}"
                    ));
                }
                worst = worst.max(error);
            }
            Ok(worst)
        }
        (Output::Words(expected), Output::Words(found)) => {
            match expected
                .iter()
                .zip(found)
                .position(|(expected, found)| expected != found)
            {
                None => Ok(0.0),
                Some(i) => Err(format!(
                    "word {i} is {}, expected {}",
                    found[i], expected[i]
                )),
            }
        }
        _ => Err("floats where words were expected, or the other way round".into()),
    }
}

/// Runs every case on `device`.
pub fn run(device: TestDevice) -> Report {
    let mut report = Report::default();
    match device.open() {
        Err(reason) => report.unsupported(device, reason),
        Ok(opened) => {
            for case in cases::all() {
                report.add(device, &case, case.check(device, &opened));
            }
        }
    }
    report
}
