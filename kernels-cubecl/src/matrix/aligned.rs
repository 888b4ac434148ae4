//! Hands cache-line-aligned memory to burn: its own vectors promise 16 bytes at most, and the SIMD
//! kernels read whole lines.

use crate::packed::native::Line;
use burn::tensor::Bytes;
use cubecl::bytes::{AccessError, AccessPolicy, AllocationController, AllocationProperty};
use std::mem::MaybeUninit;

/// The bytes of `lines`, without a copy.
pub(super) fn bytes(lines: Vec<Line>) -> Bytes {
    let len = size_of_val(lines.as_slice());
    // SAFETY: the controller holds `len` initialised bytes.
    unsafe { Bytes::from_controller(Box::new(Lines(lines)), len) }
}

struct Lines(Vec<Line>);

impl AllocationController for Lines {
    fn alloc_align(&self) -> usize {
        align_of::<Line>()
    }

    fn property(&self) -> AllocationProperty {
        AllocationProperty::Native
    }

    unsafe fn memory_mut(
        &mut self,
        _policy: AccessPolicy,
    ) -> Result<&mut [MaybeUninit<u8>], AccessError> {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.0);
        let len = bytes.len();
        // SAFETY: initialised bytes may be seen as ones that need not be; the caller of this
        // method promises to write only initialised ones.
        Ok(unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), len) })
    }

    fn memory(&self, _policy: AccessPolicy) -> Result<&[MaybeUninit<u8>], AccessError> {
        let bytes: &[u8] = bytemuck::cast_slice(&self.0);
        // SAFETY: as above.
        Ok(unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) })
    }
}
