//! How much memory the machine has to spare, where it tells.
//!
//! Neighbours: [`crate::model`] asks before it plans the KV cache of a model on the processor. GPUs are
//! not asked: wgpu does not tell, and CUDA's driver is not reachable through CubeCL's client.

use std::fs;

/// Memory that programs can take without swapping, in bytes: `MemAvailable` of Linux. `None` where it
/// is not known.
pub(crate) fn available_bytes() -> Option<u64> {
    parse(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_found_among_others_and_nonsense_is_no_number() {
        let text = "MemTotal:  100 kB\nMemAvailable:   24576 kB\nSwapFree: 1 kB\n";
        assert_eq!(parse(text), Some(24 << 20));
        assert_eq!(parse("MemTotal: 100 kB\n"), None);
        assert_eq!(parse("MemAvailable: many kB\n"), None);
    }
}
