//! Every op gives on every device what the native code gives.

use forerun_tests::parity::{self, Report, TestDevice};

/// Devices whose absence is a failure: a list of names in `FORERUN_EXPECT_DEVICES`, or the two that
/// are on every machine.
fn expected() -> Vec<TestDevice> {
    let names = std::env::var("FORERUN_EXPECT_DEVICES").unwrap_or_else(|_| "flex,cpu".into());
    names
        .split(',')
        .map(|name| TestDevice::from_name(name.trim()).unwrap_or_else(|| panic!("device {name}?")))
        .collect()
}

#[test]
#[expect(clippy::print_stdout, reason = "a table of what ran and what did not")]
fn every_op_agrees_on_every_device() {
    let mut report = Report::default();
    for device in TestDevice::ALL {
        report.merge(parity::run(device));
    }
    println!("{report}");
    let shortcomings = report.shortcomings(&expected());
    assert!(shortcomings.is_empty(), "{}", shortcomings.join("\n"));
}
