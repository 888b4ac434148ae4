//! Model files: GGUF and safetensors, read through memory maps.
//!
//! A [`Checkpoint`] gives tensors by the names in its files, as bytes in the format they are
//! stored in; [`crate::config`] says what the names are and what shapes to expect. Nothing is
//! unpacked or copied here but norms and biases.
//!
//! **Invariant:** no content of a file makes a loader panic, read past the file or allocate more
//! than a small multiple of the file's length (`gguf/tests.rs`, `safetensors/tests.rs`).
//!
//! Neighbours: [`crate::config`] (configuration and names), the decoder (who asks for tensors),
//! `forerun_kernels::packed` (what becomes of the bytes).

pub mod error;
pub mod gguf;
mod mapped;
pub mod safetensors;
#[cfg(test)]
pub(crate) mod test_files;
mod view;

use std::path::Path;

use forerun_kernels::packed::format::WeightFormat;

pub use self::error::LoadError;
pub use self::gguf::GgufFile;
pub use self::safetensors::SafetensorsModel;
pub use self::view::TensorView;

/// The tensors of a model, by name.
pub trait Checkpoint: Send + Sync {
    /// The file or folder, for messages.
    fn location(&self) -> &Path;

    /// A tensor, which from then on counts as read.
    ///
    /// # Errors
    /// [`LoadError::MissingTensor`], or [`LoadError::UnsupportedFormat`] if it is stored in a
    /// format that [`WeightFormat`] does not know.
    fn tensor(&self, name: &str) -> Result<TensorView<'_>, LoadError>;

    /// Whether there is such a tensor.
    fn contains(&self, name: &str) -> bool;

    /// All names, sorted.
    fn names(&self) -> Vec<&str>;

    /// Names of the tensors that nobody asked for yet, sorted.
    fn unread(&self) -> Vec<&str>;
}

/// After a model was built: an error if the files hold tensors that no layer asked for, except
/// those that `is_ignorable` knows to be needless.
pub fn check_all_read(
    checkpoint: &dyn Checkpoint,
    is_ignorable: impl Fn(&str) -> bool,
) -> Result<(), LoadError> {
    let unread = checkpoint.unread();
    let tensors = unread
        .into_iter()
        .filter(|name| !is_ignorable(name))
        .map(str::to_owned)
        .collect::<Vec<_>>();
    if tensors.is_empty() {
        return Ok(());
    }
    Err(LoadError::UnreadTensors {
        file: checkpoint.location().to_path_buf(),
        tensors,
    })
}

/// The names of formats, for an error.
fn format_names(formats: &[WeightFormat]) -> String {
    formats
        .iter()
        .map(|format| format.name())
        .collect::<Vec<_>>()
        .join(", ")
}
