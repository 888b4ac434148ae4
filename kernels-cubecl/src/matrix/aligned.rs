//! Hands cache-line-aligned memory to burn: its own vectors promise 16 bytes at most, and the SIMD
//! kernels read whole lines.

use crate::packed::arena::Lines;
use crate::packed::native::Line;
use burn::tensor::Bytes;
use cubecl::bytes::{AccessError, AccessPolicy, AllocationController, AllocationProperty};
use std::mem::MaybeUninit;

/// The bytes of `lines`, without a copy.
pub(super) fn bytes(lines: Lines) -> Bytes {
    let len = size_of_val(lines.as_slice());
    // SAFETY: the controller holds `len` initialised bytes.
    unsafe { Bytes::from_controller(Box::new(Controller(lines)), len) }
}

struct Controller(Lines);

impl AllocationController for Controller {
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
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(self.0.as_mut_slice());
        let len = bytes.len();
        // SAFETY: initialised bytes may be seen as ones that need not be; the caller of this
        // method promises to write only initialised ones.
        Ok(unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), len) })
    }

    fn memory(&self, _policy: AccessPolicy) -> Result<&[MaybeUninit<u8>], AccessError> {
        let bytes: &[u8] = bytemuck::cast_slice(self.0.as_slice());
        // SAFETY: as above.
        Ok(unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) })
    }
}
