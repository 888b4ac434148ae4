//! CubeCL kernel of [`super`].

use burn_cubecl::tensor::CubeTensor;

pub(crate) fn logprobs(
    _distributions: &[CubeTensor; 2],
    verdicts: &CubeTensor,
    _step: &CubeTensor,
    _num_top: usize,
) -> CubeTensor {
    verdicts.clone()
}
