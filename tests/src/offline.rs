//! Compiling kernels for devices that are not here: PTX for CUDA, WGSL for wgpu, and what Metal and
//! DX12 make of that.
//!
//! Neighbours: `forerun_kernels::compile` lists the kernels; `tests/kernels` asks for all of them.

use cubecl::cuda::{CudaCompilationOptions, CudaCompiler, CudaRepresentation, CudaRuntime};
use cubecl::ir::nvidia::SmArch;
use cubecl::prelude::*;
use cubecl::wgpu::{WgpuRuntime, WgslCompiler};
use cubecl::{Compiler, ExecutionMode, WgpuCompilationOptions};
use cubecl_llvm::nvptx::ptx_version::PtxVersion;
use cubecl_server::runtime::Runtime;
use forerun_kernels::compile::{CompileTarget, OpKernel};
use naga::back::{hlsl, msl};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// The CUDA version whose driver must load our PTX.
const CUDA_VERSION: i32 = 12_080;

/// What to compile for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// CUDA.
    Cuda,
    /// wgpu.
    Wgpu,
}

/// A GPU as kernels see it: the limits every real one has.
///
/// Any live client will do for the rest of its properties.
pub fn target(family: Family) -> CompileTarget {
    let client = cubecl::Device::cpu()
        .expect("the cpu runtime is linked")
        .client();
    let mut properties = client.properties().clone();
    let hardware = &mut properties.hardware;
    hardware.plane_size_min = 32;
    hardware.plane_size_max = 32;
    hardware.max_units_per_cube = 256;
    hardware.max_cube_dim = (256, 256, 64);
    hardware.max_shared_memory_size = 16 << 10;
    hardware.max_vector_size = 4;
    hardware.num_cpu_cores = None;
    CompileTarget {
        properties: Arc::new(properties),
        target: Arc::new(match family {
            Family::Cuda => CudaRuntime::target_properties(),
            Family::Wgpu => WgpuRuntime::<WgslCompiler>::target_properties(),
        }),
        handle: client.empty(4),
    }
}

/// The definition a launch compiles: without bounds checks, unlike that of a dummy kernel.
fn define(kernel: &OpKernel) -> KernelDefinition {
    let mut definition = kernel.kernel.define();
    definition.settings.execution_mode = ExecutionMode::Unchecked;
    definition
}

/// PTX of a kernel.
#[derive(Clone, Debug)]
pub struct Ptx {
    /// The assembly.
    pub text: String,
    /// The entry point.
    pub name: String,
    /// Bytes of shared memory per cube, which a launch asks for.
    pub shared_bytes: usize,
}

/// Compiles a kernel for compute capability `sm` (80 is 8.0).
pub fn ptx(kernel: &OpKernel, sm: u32) -> Result<Ptx, String> {
    let options = CudaCompilationOptions {
        arch: Some(SmArch::new(sm, true)),
        ptx_version: PtxVersion::for_driver(CUDA_VERSION),
        ..Default::default()
    };
    let compiled = CudaCompiler::default().compile(define(kernel), &options);
    match compiled.map_err(|error| error.to_string())? {
        CudaRepresentation::Llvm(module) => {
            let bytes: Vec<u8> = module
                .ptx
                .iter()
                .map(|&c| c as u8)
                .take_while(|&c| c != 0)
                .collect();
            let text = String::from_utf8(bytes).map_err(|error| error.to_string())?;
            Ok(Ptx {
                text,
                name: module.entrypoint,
                shared_bytes: module.shared_memory_size,
            })
        }
        CudaRepresentation::Cpp(_) => Err("compiled to C++, not through LLVM".into()),
    }
}

/// Compiles a kernel to WGSL.
pub fn wgsl(kernel: &OpKernel) -> Result<String, String> {
    let compiled = WgslCompiler.compile(define(kernel), &WgpuCompilationOptions::default());
    Ok(compiled.map_err(|error| error.to_string())?.to_string())
}

/// What `ptxas` says a kernel needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Registers per unit.
    pub registers: u32,
    /// Bytes of spills per unit, stores and loads.
    pub spill_bytes: u32,
}

/// The assembler of a CUDA toolkit: `FORERUN_PTXAS`, or the one on the `PATH`.
pub fn find_ptxas() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("FORERUN_PTXAS") {
        return Some(path.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join("ptxas"))
        .find(|path| path.is_file())
}

/// Assembles PTX for compute capability `sm`.
pub fn assemble(ptxas: &Path, ptx: &Ptx, sm: u32) -> Result<Usage, String> {
    let folder = std::env::temp_dir().join(format!("forerun-ptx-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let source = folder.join(format!("{}-{sm}.ptx", ptx.name));
    std::fs::write(&source, &ptx.text).map_err(|error| error.to_string())?;
    let suffix = if sm >= 90 { "a" } else { "" };
    let output = Command::new(ptxas)
        .arg(format!("-arch=sm_{sm}{suffix}"))
        .args(["-v", "-o"])
        .arg(source.with_extension("cubin"))
        .arg(&source)
        .output()
        .map_err(|error| format!("{}: {error}", ptxas.display()))?;
    let _ = std::fs::remove_file(source.with_extension("cubin"));
    let _ = std::fs::remove_file(&source);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(text);
    }
    Ok(Usage {
        registers: number_before(&text, " registers").unwrap_or(0),
        spill_bytes: number_before(&text, " bytes spill stores").unwrap_or(0)
            + number_before(&text, " bytes spill loads").unwrap_or(0),
    })
}

/// The number that stands right before `unit`.
fn number_before(text: &str, unit: &str) -> Option<u32> {
    let before = &text[..text.find(unit)?];
    let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// What a shader asks of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShaderUsage {
    /// Storage buffers.
    pub storage_buffers: usize,
    /// Bytes of workgroup memory.
    pub shared_bytes: usize,
}

/// Validates WGSL as a browser without optional features would, and translates it to MSL and HLSL.
pub fn check_wgsl(text: &str) -> Result<ShaderUsage, String> {
    let module = naga::front::wgsl::parse_str(text).map_err(|error| error.emit_to_string(text))?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::empty())
        .validate(&module)
        .map_err(|error| error.emit_to_string(text))?;

    let options = msl::Options {
        lang_version: (2, 4),
        ..Default::default()
    };
    msl::write_string(&module, &info, &options, &msl::PipelineOptions::default())
        .map_err(|error| format!("MSL: {error}"))?;

    let mut text = String::new();
    let options = hlsl::Options {
        shader_model: hlsl::ShaderModel::V6_0,
        ..Default::default()
    };
    hlsl::Writer::new(&mut text, &options, &hlsl::PipelineOptions::default())
        .write(&module, &info, None)
        .map_err(|error| format!("HLSL: {error}"))?;

    let mut usage = ShaderUsage::default();
    for (_, variable) in module.global_variables.iter() {
        match variable.space {
            naga::AddressSpace::Storage { .. } => usage.storage_buffers += 1,
            naga::AddressSpace::WorkGroup => {
                usage.shared_bytes +=
                    module.types[variable.ty].inner.size(module.to_ctx()) as usize;
            }
            _ => {}
        }
    }
    Ok(usage)
}
