//! Writes GGUF files, also wrong ones. Neighbours: the tests beside it and those of [`crate::config`].

/// Writes GGUF files, also wrong ones.
pub(crate) struct Writer {
    values: Vec<Vec<u8>>,
    tensors: Vec<(String, Vec<u64>, u32, Vec<u8>)>,
    alignment: usize,
}

pub(super) fn text(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

impl Writer {
    pub(crate) fn new() -> Self {
        Self::of("llama")
    }

    pub(crate) fn of(architecture: &str) -> Self {
        Self {
            values: vec![],
            tensors: vec![],
            alignment: 32,
        }
        .string("general.architecture", architecture)
    }

    pub(crate) fn value(mut self, key: &str, kind: u32, bytes: &[u8]) -> Self {
        let mut value = text(key);
        value.extend(kind.to_le_bytes());
        value.extend(bytes);
        self.values.push(value);
        self
    }

    pub(crate) fn u32(self, key: &str, number: u32) -> Self {
        self.value(key, 4, &number.to_le_bytes())
    }

    pub(crate) fn f32(self, key: &str, number: f32) -> Self {
        self.value(key, 6, &number.to_le_bytes())
    }

    pub(crate) fn string(self, key: &str, value: &str) -> Self {
        self.value(key, 8, &text(value))
    }

    pub(crate) fn tensor(mut self, name: &str, dims: &[u64], kind: u32, bytes: &[u8]) -> Self {
        self.tensors
            .push((name.to_owned(), dims.to_vec(), kind, bytes.to_vec()));
        self
    }

    pub(super) fn aligned(mut self, alignment: usize) -> Self {
        self.alignment = alignment;
        self.u32("general.alignment", alignment as u32)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.bytes_with(|_, offset| offset)
    }

    /// With the offset of each tensor passed through `place`.
    pub(super) fn bytes_with(&self, place: impl Fn(usize, u64) -> u64) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(3_u32.to_le_bytes());
        file.extend((self.tensors.len() as u64).to_le_bytes());
        file.extend((self.values.len() as u64).to_le_bytes());
        file.extend(self.values.concat());
        let mut data = Vec::new();
        for (index, (name, dims, kind, bytes)) in self.tensors.iter().enumerate() {
            file.extend(text(name));
            file.extend((dims.len() as u32).to_le_bytes());
            for dim in dims {
                file.extend(dim.to_le_bytes());
            }
            file.extend(kind.to_le_bytes());
            data.resize(data.len().next_multiple_of(self.alignment), 0);
            file.extend(place(index, data.len() as u64).to_le_bytes());
            data.extend(bytes);
        }
        file.resize(file.len().next_multiple_of(self.alignment), 0);
        file.extend(data);
        file
    }
}
