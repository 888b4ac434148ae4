//! Reading a tensor back while the device goes on.
//!
//! burn's own `into_data_async` is lazy: it copies when the data is first looked at, after whatever was
//! launched in the meantime. [`PendingRead::start`] enqueues the copy at once, behind the kernels launched
//! so far and before those launched later:
//!
//! - CUDA: the copy into pinned memory and a fence are enqueued on the stream; `wait` waits for the fence;
//! - wgpu: the copy into a staging buffer is recorded, everything recorded so far is submitted, and the
//!   staging buffer is asked to be mapped; `wait` waits for that mapping. (Read in the sources of
//!   cubecl-wgpu 0.11.3, `compute/stream.rs`, `read_resources`. So a read costs a submission.)
//! - CubeCL on the CPU: starting waits until the kernels have run, and hands out the tensor's own memory;
//! - native: the tensor is computed already; it is held.
//!
//! On the CPU backends the memory is the tensor's own, so keep no clone of it that an op could write in
//! place before `wait`; ops that only read it may have one.
//!
//! Neighbours: used by the model runner, which is the only one that moves data between host and device.

use burn::backend::DispatchTensorKind;
use burn::tensor::{Bytes, Int, Tensor};
use burn_cubecl::tensor::CubeTensor;
use burn_flex::FlexTensor;
use cubecl::server::ServerError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use thiserror::Error;

use crate::launch::contiguous;

/// A copy from the device that did not arrive.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The device failed.
    #[error("the device failed while verdicts were read: {message}")]
    Device {
        /// In the device's words.
        message: String,
    },
    /// The device returned another number of bytes than it was asked for.
    #[error("expected {expected} bytes from the device, found {found}: please report this")]
    Length {
        /// Bytes expected.
        expected: usize,
        /// Bytes found.
        found: usize,
    },
    /// The tensor is on a backend that this build of the kernels has no ops for.
    #[error("tensors of this backend cannot be read back: use a CubeCL device or the CPU")]
    Backend,
}

type DeviceCopy = Pin<Box<dyn Future<Output = Result<Vec<Bytes>, ServerError>> + Send>>;

/// A copy from device to host that is under way.
pub struct PendingRead {
    source: Source,
    num_words: usize,
}

enum Source {
    Device(DeviceCopy),
    Native(FlexTensor),
}

impl PendingRead {
    /// Enqueues the copy of `tensor`, which must be of 32-bit words, and returns at once where the
    /// device allows it.
    ///
    /// # Errors
    /// [`ReadError::Backend`].
    pub fn start(tensor: Tensor<2, Int>) -> Result<Self, ReadError> {
        let num_words = tensor.shape().num_elements();
        let source = match tensor.into_dispatch().kind {
            DispatchTensorKind::Cube(tensor) => {
                let tensor = contiguous(tensor.int());
                Source::Device(enqueue(tensor))
            }
            DispatchTensorKind::Flex(tensor) => Source::Native(tensor.int().to_contiguous()),
            DispatchTensorKind::Autodiff(_) => return Err(ReadError::Backend),
        };
        Ok(Self { source, num_words })
    }

    /// Waits for the copy and gives its words, row by row.
    ///
    /// # Errors
    /// [`ReadError`]: a kernel or the copy failed.
    pub fn wait(self) -> Result<Vec<u32>, ReadError> {
        match self.source {
            Source::Native(tensor) => words(tensor.bytes(), self.num_words),
            Source::Device(copy) => {
                let buffers =
                    cubecl::future::block_on(copy).map_err(|error| ReadError::Device {
                        message: error.to_string(),
                    })?;
                let bytes = buffers.first().map_or(&[][..], |bytes| bytes);
                words(bytes, self.num_words)
            }
        }
    }
}

/// Calls the client's `read_async`, which enqueues the copy, and stops before its future is polled, which
/// on CUDA would wait for the copy.
///
/// That future borrows the client, so it is made inside one that owns the client; the first poll, here,
/// runs as far as the pause.
fn enqueue(tensor: CubeTensor) -> DeviceCopy {
    let mut copy: DeviceCopy = Box::pin(async move {
        let copy = tensor.client.read_async(vec![tensor.handle.clone()]);
        pause().await;
        copy.await
    });
    let first = copy.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(first.is_pending(), "the first poll ends at the pause");
    copy
}

/// Pending once, then ready.
fn pause() -> impl Future<Output = ()> {
    let mut paused = false;
    std::future::poll_fn(move |_| {
        if paused {
            Poll::Ready(())
        } else {
            paused = true;
            Poll::Pending
        }
    })
}

impl fmt::Debug for PendingRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingRead")
            .field("num_words", &self.num_words)
            .finish_non_exhaustive()
    }
}

fn words(bytes: &[u8], num_words: usize) -> Result<Vec<u32>, ReadError> {
    let expected = num_words * size_of::<u32>();
    let live = bytes.get(..expected).ok_or(ReadError::Length {
        expected,
        found: bytes.len(),
    })?;
    Ok(bytemuck::pod_collect_to_vec(live))
}
