//! Unquantised weights in another float format.

use std::borrow::Cow;

use forerun_kernels::packed::format::WeightFormat;
use half::{bf16, f16};

/// The values of a dense tensor in `target` format, rounded to nearest. Quantised tensors, and
/// those that have the format already, stay as they are.
pub(crate) fn convert(
    format: WeightFormat,
    bytes: &[u8],
    target: Option<WeightFormat>,
) -> (WeightFormat, Cow<'_, [u8]>) {
    match target {
        Some(target) if target != format && !format.is_quantized() && !target.is_quantized() => {
            let values = values(format, bytes);
            let converted = match target {
                WeightFormat::F16 => values
                    .flat_map(|value| f16::from_f32(value).to_le_bytes())
                    .collect(),
                WeightFormat::Bf16 => values
                    .flat_map(|value| bf16::from_f32(value).to_le_bytes())
                    .collect(),
                _ => values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>(),
            };
            (target, Cow::Owned(converted))
        }
        _ => (format, Cow::Borrowed(bytes)),
    }
}

fn values(format: WeightFormat, bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    bytes
        .chunks_exact(format.block_bytes())
        .map(move |value| match (format, value) {
            (WeightFormat::F16, &[a, b]) => f16::from_le_bytes([a, b]).to_f32(),
            (WeightFormat::Bf16, &[a, b]) => bf16::from_le_bytes([a, b]).to_f32(),
            (_, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
            _ => f32::NAN,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dense_values_are_rounded_to_the_target_format() {
        let bytes: Vec<u8> = [1.0f32, -2.5, 1e-3]
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect();
        let (format, half) = convert(WeightFormat::F32, &bytes, Some(WeightFormat::F16));
        assert_eq!(format, WeightFormat::F16);
        assert_eq!(half.len(), 6);
        let (format, back) = convert(WeightFormat::F16, &half, Some(WeightFormat::F32));
        assert_eq!(format, WeightFormat::F32);
        let last = f32::from_le_bytes([back[8], back[9], back[10], back[11]]);
        assert!((last - 1e-3).abs() < 1e-6);
        let (_, brain) = convert(WeightFormat::F32, &bytes, Some(WeightFormat::Bf16));
        let (_, back) = convert(WeightFormat::Bf16, &brain, Some(WeightFormat::F32));
        assert_eq!(back[..8], bytes[..8]);
    }

    #[test]
    fn quantised_bytes_and_equal_formats_are_not_copied() {
        let bytes = [7u8; 34];
        for (format, target) in [
            (WeightFormat::Q8_0, Some(WeightFormat::F16)),
            (WeightFormat::F16, Some(WeightFormat::F16)),
            (WeightFormat::F16, None),
        ] {
            let (kept, same) = convert(format, &bytes, target);
            assert!(kept == format && matches!(same, Cow::Borrowed(_)));
        }
    }
}
