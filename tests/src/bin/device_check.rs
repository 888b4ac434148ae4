//! Runs every kernel's parity cases on one device, without a test harness, a network or files: a
//! program to take along to a machine with a GPU.

use forerun_tests::parity::{self, TestDevice};
use std::process::ExitCode;

const HELP: &str = "\
Runs every kernel on a device and compares it with the CPU.

Usage: device-check [--device flex|cpu|wgpu|cuda]

Prints a table of what ran. Ends with 0 if everything ran and agreed, 1 if not, 2 on wrong usage.
CUDA needs an NVIDIA driver; kernels of ours need no toolkit and no library files.
";

#[expect(clippy::print_stdout, reason = "the table is what this program is for")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let device = match arguments
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        [] => TestDevice::Cuda,
        ["--device", name] => {
            let Some(device) = TestDevice::from_name(name) else {
                eprintln!("unknown device {name}\n\n{HELP}");
                return ExitCode::from(2);
            };
            device
        }
        ["--help" | "-h"] => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    };
    let report = parity::run(device);
    print!("{report}");
    let shortcomings = report.shortcomings(&[device]);
    if shortcomings.is_empty() {
        println!("every kernel agrees on {}", device.name());
        return ExitCode::SUCCESS;
    }
    println!(
        "{} of the checks failed on {}",
        shortcomings.len(),
        device.name()
    );
    ExitCode::FAILURE
}
