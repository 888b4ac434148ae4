//! The ops on the CPU: tensors become slices, the native twins do the work.
//!
//! Neighbours: [`super`] is the trait; the twins are in `<op>/flex.rs`.

use super::{KernelBackend, MatrixTensors};
use crate::linear::flex::Weights;
use crate::spec::{Activation, AttentionSpec, KvSpec, MatrixSpec, RmsNormSpec, RopeSpec};
use crate::step_inputs::StepView;
use crate::{copies, threads};
use burn::tensor::{Bytes, DType, Shape};
use burn_flex::{Flex, FlexTensor, Layout};

impl KernelBackend for Flex {
    fn embed(
        table: MatrixTensors<Self>,
        step: FlexTensor,
        matrix: &MatrixSpec,
        num_tokens: usize,
        scale: f32,
    ) -> FlexTensor {
        let step = view(&step);
        let mut out = vec![0.0; num_tokens * matrix.d_input];
        let live = step.num_tokens().min(num_tokens);
        crate::embed::flex::embed(
            &Weights {
                spec: matrix,
                parts: &bytes(&table.parts),
            },
            &step.token_ids()[..live],
            scale,
            &mut out[..live * matrix.d_input],
        );
        tensor(out, [num_tokens, matrix.d_input])
    }

    fn rms_norm(x: FlexTensor, gamma: FlexTensor, spec: RmsNormSpec) -> FlexTensor {
        let shape = x.layout().shape().clone();
        let mut out = vec![0.0; shape.num_elements()];
        crate::rms_norm::flex::rms_norm(
            threads::process(),
            &floats(&x),
            &floats(&gamma),
            &spec,
            &mut out,
        );
        tensor(out, shape)
    }

    fn add_rms_norm(
        residual: FlexTensor,
        x: FlexTensor,
        gamma: FlexTensor,
        spec: RmsNormSpec,
    ) -> (FlexTensor, FlexTensor) {
        let shape = x.layout().shape().clone();
        let mut out = vec![0.0; shape.num_elements()];
        let mut residual = writable(residual);
        crate::rms_norm::flex::add_rms_norm(
            threads::process(),
            residual.storage_mut(),
            &floats(&x),
            &floats(&gamma),
            &spec,
            &mut out,
        );
        (residual, tensor(out, shape))
    }

    fn linear(x: FlexTensor, weights: MatrixTensors<Self>, matrix: &MatrixSpec) -> FlexTensor {
        let num_tokens = x.layout().shape()[0];
        let mut out = vec![0.0; num_tokens * matrix.d_output];
        let bias = weights.bias.as_ref().map(floats);
        crate::linear::flex::linear(
            threads::process(),
            &floats(&x),
            &Weights {
                spec: matrix,
                parts: &bytes(&weights.parts),
            },
            bias.as_deref(),
            &mut out,
        );
        tensor(out, [num_tokens, matrix.d_output])
    }

    fn rope(x: FlexTensor, inv_freq: FlexTensor, step: FlexTensor, spec: RopeSpec) -> FlexTensor {
        let mut x = writable(x);
        let step = view(&step);
        let live = step.num_tokens().min(x.layout().shape()[0]);
        let row_len = spec.num_heads * spec.head_dim;
        crate::rope::flex::rope(
            threads::process(),
            &mut x.storage_mut()[..live * row_len],
            &floats(&inv_freq),
            &step.positions()[..live],
            &spec,
        );
        x
    }

    fn kv_write(pool: FlexTensor, qkv: FlexTensor, step: FlexTensor, spec: KvSpec) -> FlexTensor {
        let mut pool = writable(pool);
        let step = view(&step);
        let live = step.num_tokens().min(qkv.layout().shape()[0]);
        let row_len = (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim;
        crate::kv_write::flex::kv_write(
            threads::process(),
            pool.storage_mut(),
            &floats(&qkv)[..live * row_len],
            &step.slot_mapping(spec.group)[..live],
            &spec,
        );
        pool
    }

    fn kv_copy(pool: FlexTensor, step: FlexTensor, spec: KvSpec) -> FlexTensor {
        let mut pool = writable(pool);
        crate::kv_copy::flex::kv_copy(
            pool.storage_mut(),
            view(&step).block_copies(spec.group),
            &spec,
        );
        pool
    }

    fn kv_compact(
        pool: FlexTensor,
        step: FlexTensor,
        verdicts: FlexTensor,
        spec: KvSpec,
    ) -> FlexTensor {
        let mut pool = writable(pool);
        let verdicts = words(&verdicts);
        crate::kv_compact::flex::kv_compact(pool.storage_mut(), view(&step), &verdicts, &spec);
        pool
    }

    fn paged_attention(
        qkv: FlexTensor,
        pool: FlexTensor,
        step: FlexTensor,
        spec: AttentionSpec,
    ) -> FlexTensor {
        let num_tokens = qkv.layout().shape()[0];
        let columns = spec.kv.num_heads * spec.kv.head_dim;
        let mut out = vec![0.0; num_tokens * columns];
        crate::paged_attention::flex::paged_attention(
            threads::process(),
            &floats(&qkv),
            &floats(&pool),
            view(&step),
            &spec,
            &mut out,
        );
        tensor(out, [num_tokens, columns])
    }

    fn glu(x: FlexTensor, activation: Activation) -> FlexTensor {
        let [num_tokens, columns] = [x.layout().shape()[0], x.layout().shape()[1]];
        let mut out = vec![0.0; num_tokens * columns / 2];
        crate::glu::flex::glu(
            threads::process(),
            &floats(&x),
            columns / 2,
            activation,
            &mut out,
        );
        tensor(out, [num_tokens, columns / 2])
    }

    fn gather_rows(x: FlexTensor, step: FlexTensor, num_rows: usize) -> FlexTensor {
        let columns = x.layout().shape()[1];
        let step = view(&step);
        let live = step.num_logit_rows().min(num_rows);
        let mut out = vec![0.0; num_rows * columns];
        crate::gather_rows::flex::gather_rows(
            &floats(&x),
            columns,
            &step.logit_rows()[..live],
            &mut out[..live * columns],
        );
        tensor(out, [num_rows, columns])
    }

    fn advance(step: FlexTensor, previous: FlexTensor) -> FlexTensor {
        let row_words = previous.layout().shape()[1];
        let previous = words(&previous);
        let mut step = writable_words(step);
        crate::advance::flex::advance(step.storage_mut(), &previous, row_words);
        step
    }

    fn logits_process(logits: FlexTensor, step: FlexTensor) -> FlexTensor {
        let [num_rows, vocab_size] = [logits.layout().shape()[0], logits.layout().shape()[1]];
        let step = view(&step);
        let live = step.num_logit_rows().min(num_rows);
        let mut logits = writable(logits);
        crate::logits_process::flex::logits_process(
            threads::process(),
            &mut logits.storage_mut()[..live * vocab_size],
            vocab_size,
            step,
        );
        logits
    }

    fn logprobs(
        raw: FlexTensor,
        processed: FlexTensor,
        verdicts: FlexTensor,
        step: FlexTensor,
        num_top: usize,
    ) -> FlexTensor {
        let [num_rows, vocab_size] = [raw.layout().shape()[0], raw.layout().shape()[1]];
        let row_words = crate::logprobs::ROW_WORDS + 2 * num_top;
        let step = view(&step);
        let live = step.num_logit_rows().min(num_rows);
        let mut out = vec![0u32; num_rows * row_words];
        crate::logprobs::flex::logprobs(
            threads::process(),
            &crate::logprobs::flex::Inputs {
                raw: &floats(&raw),
                processed: &floats(&processed),
                verdicts: &words(&verdicts),
                vocab_size,
                step,
            },
            row_words,
            &mut out[..live * row_words],
        );
        let layout = Layout::contiguous(Shape::from([num_rows, row_words]));
        FlexTensor::new(Bytes::from_elems(out), layout, DType::U32)
    }

    fn verify(
        logits: FlexTensor,
        verdicts: FlexTensor,
        draft_logits: FlexTensor,
        step: FlexTensor,
    ) -> FlexTensor {
        let [num_rows, vocab_size] = [logits.layout().shape()[0], logits.layout().shape()[1]];
        let step = view(&step);
        let live = step.num_logit_rows().min(num_rows);
        let mut verified = words(&verdicts).into_owned();
        let inputs = crate::verify::flex::Inputs {
            logits: &floats(&logits),
            draft_logits: &floats(&draft_logits),
            vocab_size,
            step,
        };
        crate::verify::flex::verify(threads::process(), inputs, &mut verified[..live * 2]);
        let layout = Layout::contiguous(Shape::from([num_rows, 2]));
        FlexTensor::new(Bytes::from_elems(verified), layout, DType::U32)
    }

    fn sample(logits: FlexTensor, step: FlexTensor) -> FlexTensor {
        let [num_rows, vocab_size] = [logits.layout().shape()[0], logits.layout().shape()[1]];
        let step = view(&step);
        let live = step.num_logit_rows().min(num_rows);
        let mut verdicts = vec![0u32; num_rows * 2];
        crate::sample::flex::sample(
            threads::process(),
            &floats(&logits)[..live * vocab_size],
            vocab_size,
            step,
            &mut verdicts[..live * 2],
        );
        let layout = Layout::contiguous(Shape::from([num_rows, 2]));
        FlexTensor::new(Bytes::from_elems(verdicts), layout, DType::U32)
    }
}

/// The values of a tensor in row-major order; copied only if they lie otherwise.
fn floats(tensor: &FlexTensor) -> std::borrow::Cow<'_, [f32]> {
    match tensor.as_slice::<f32>() {
        Some(values) => values.into(),
        None => tensor.to_contiguous().storage::<f32>().to_vec().into(),
    }
}

/// The words of a tensor in row-major order; copied only if they lie otherwise.
fn words(tensor: &FlexTensor) -> std::borrow::Cow<'_, [u32]> {
    match tensor.as_slice::<u32>() {
        Some(values) => values.into(),
        None => tensor.to_contiguous().storage::<u32>().to_vec().into(),
    }
}

/// The step buffer of an op.
fn view(step: &FlexTensor) -> StepView<'_> {
    StepView::new(
        step.as_slice::<u32>()
            .expect("a step buffer is uploaded as u32, in one piece"),
    )
}

/// The bytes of each part of a matrix.
fn bytes(parts: &[FlexTensor]) -> Vec<&[u8]> {
    parts.iter().map(FlexTensor::bytes).collect()
}

fn tensor(values: Vec<f32>, shape: impl Into<Shape>) -> FlexTensor {
    FlexTensor::new(
        Bytes::from_elems(values),
        Layout::contiguous(shape.into()),
        DType::F32,
    )
}

/// The tensor in row-major order, and ours alone to write to: copied, and counted, if it is shared.
fn writable(tensor: FlexTensor) -> FlexTensor {
    if is_ours(&tensor) {
        return tensor;
    }
    copies::count();
    let values = floats(&tensor).into_owned();
    self::tensor(values, tensor.layout().shape().clone())
}

/// As [`writable`], for words.
fn writable_words(tensor: FlexTensor) -> FlexTensor {
    if is_ours(&tensor) {
        return tensor;
    }
    copies::count();
    let layout = Layout::contiguous(tensor.layout().shape().clone());
    FlexTensor::new(
        Bytes::from_elems(words(&tensor).into_owned()),
        layout,
        DType::U32,
    )
}

/// Whether a tensor of 32-bit values is whole, in row-major order, and has one owner.
fn is_ours(tensor: &FlexTensor) -> bool {
    let layout = tensor.layout();
    let whole = layout.is_contiguous()
        && layout.start_offset() == 0
        && tensor.bytes().len() == layout.num_elements() * DType::F32.size();
    whole && tensor.is_unique()
}

/// Where the bytes of a native tensor begin.
#[cfg(test)]
pub(crate) fn address(tensor: burn::backend::DispatchTensor) -> usize {
    use burn::backend::DispatchTensorKind;
    let DispatchTensorKind::Flex(tensor) = tensor.kind else {
        panic!("not a native tensor")
    };
    tensor.int().bytes().as_ptr() as usize
}
