"""Launch errors of vLLM as its log words them, each with the place in its source.

A symptom is a pattern over one line of the engine's log. Its sites name the release and the file (under `vllm/`,
unless another project is named) that raise the line, and `literal` is a piece of that source line, so that the
citation can be checked against an installed engine. Order matters within a line only: the first symptom that matches
it wins. The engine chooses what its lines say: nothing in a pattern repeats without a bound.
"""

import re
from dataclasses import dataclass
from functools import cache

GIB = r"(?P<{}>[\d.]{{1,20}}) (?:GiB|GB)"


@dataclass(frozen=True, kw_only=True)
class Symptom:
    """One thing the log can say. `says` is filled from the pattern's named groups; `do` says what to change."""

    cause: str
    pattern: re.Pattern[str]
    says: str
    do: str
    sites: tuple[str, ...]
    literal: str


def _symptom(cause: str, pattern: str, *, says: str, do: str, sites: str, literal: str) -> Symptom:
    return Symptom(
        cause=cause,
        pattern=re.compile(pattern),
        says=says,
        do=do,
        sites=tuple(site.strip() for site in sites.split(";")),
        literal=literal,
    )


SYMPTOMS: tuple[Symptom, ...] = (
    # The command line
    _symptom(
        "unknown_flag",
        r"error: unrecognized arguments: (?P<flags>.{1,400})",
        says="The engine does not know {flags}.",
        do="Remove the flag or use what this release calls it; `tokenpeak plan` names it.",
        sites="CPython 3.11 argparse.py",
        literal="unrecognized arguments: %s",
    ),
    _symptom(
        "bad_flag_value",
        r"error: argument (?P<flag>\S{1,80}?)(?:/\S{1,80})?: "
        r"(?P<what>(?:invalid|expected|not allowed|ignored|Value|Invalid).{0,400})",
        says="The engine refused the value of {flag}: {what}.",
        do="Give a value that this release takes.",
        sites="CPython 3.11 argparse.py",
        literal="invalid choice: %(value)r (choose from %(choices)s)",
    ),
    # Memory
    _symptom(
        "kv_cache_too_small",
        r"No available memory for the cache blocks",
        says="The weights left no memory for the KV cache.",
        do="Raise gpu_memory_utilization or tensor_parallel_size, or take a smaller or quantized model.",
        sites="0.7.3 worker/worker.py; 0.8.5 v1/core/kv_cache_utils.py; 0.11.2 v1/core/kv_cache_utils.py; "
        "0.32.0 v1/core/kv_cache_utils.py; 0.33.0 v1/core/kv_cache_planning.py",
        literal="No available memory for the cache blocks.",
    ),
    _symptom(
        "kv_cache_too_small",
        rf"To serve at least one request with the models?'s max seq len \((?P<context>\d{{1,15}})\), "
        rf"\({GIB.format('needed')} KV cache is needed.{{0,400}}KV cache memory \({GIB.format('free')}\)",
        says="One sequence of {context} tokens needs {needed} GiB of KV cache and {free} GiB are there.",
        do="Lower max_model_len, or raise gpu_memory_utilization or tensor_parallel_size.",
        sites="0.7.3 v1/core/kv_cache_utils.py; 0.8.5 v1/core/kv_cache_utils.py; 0.11.2 v1/core/kv_cache_utils.py; "
        "0.32.0 v1/core/kv_cache_utils.py; 0.33.0 v1/core/kv_cache_planning.py",
        literal="To serve at least one request with the model",
    ),
    _symptom(
        "kv_cache_too_small",
        r"The model's max seq len \((?P<context>\d{1,15})\) is larger than the maximum number of tokens that can be "
        r"stored in KV cache \((?P<tokens>\d{1,15})\)",
        says="The KV cache holds {tokens} tokens, less than one sequence of {context}.",
        do="Lower max_model_len, or raise gpu_memory_utilization or tensor_parallel_size.",
        sites="0.7.3 worker/worker.py; 0.8.5 worker/worker.py",
        literal="is larger than the maximum number of tokens that can be ",
    ),
    _symptom(
        "vram_taken",
        rf"Free memory on device \S*\s*\({GIB.format('free').replace(' (?:GiB|GB)', '')}/{GIB.format('total')}\) "
        rf"on startup is less than",
        says="Only {free} of {total} GiB were free when the engine started.",
        do="Something else holds the GPU's memory: see the probe's list of processes; production must be stopped.",
        sites="0.11.2 v1/worker/gpu_worker.py; 0.32.0 v1/worker/utils.py; 0.33.0 v1/worker/utils.py",
        literal="is less than desired GPU memory utilization",
    ),
    _symptom(
        "vram_taken",
        rf"Available memory on node \S{{1,80}} \((?P<free>[\d.]{{1,20}})/{GIB.format('total')}\) on "
        r"(?:startup|kv cache allocation) "
        rf"is less than",
        says="Only {free} of {total} GiB of memory were free when the engine started.",
        do="Lower gpu_memory_utilization (on a CPU it is the share of the machine's memory) or free memory.",
        sites="0.32.0 v1/worker/cpu_worker.py; 0.33.0 v1/worker/cpu_worker.py",
        literal='f"Available memory on node {cpu_core.numa_node} "',
    ),
    _symptom(
        "vram_taken",
        r"Error in memory profiling\..{0,400}Initial (?P<what>.{0,400}?This happens when)",
        says="Another process changed its GPU memory while the engine measured its own.",
        do="Stop whatever else uses the GPU; production must be down before the engine starts.",
        sites="0.7.3 worker/worker.py; 0.8.5 v1/worker/gpu_worker.py; 0.33.0 v1/worker/gpu_worker.py",
        literal="Error in memory profiling. ",
    ),
    _symptom(
        "out_of_memory",
        r"CUDA out of memory occurred when warming up (?:sampler|pooler) with (?P<sequences>\d{1,15}) dummy requests",
        says="GPU memory ran out while warming up with {sequences} sequences.",
        do="Lower max_num_seqs or gpu_memory_utilization.",
        sites="0.8.5 v1/worker/gpu_model_runner.py; 0.32.0 v1/worker/gpu_model_runner.py",
        literal="CUDA out of memory occurred when warming up sampler with ",
    ),
    _symptom(
        "out_of_memory",
        r"(?:CUDA|HIP) out of memory\. Tried to allocate (?P<wanted>[\d.]{1,20} \w{1,40})\."
        r"(?:.{0,400}?of which (?P<free>[\d.]{1,20} \w{1,40}) is free)?",
        says="GPU memory ran out: {wanted} more were wanted.",
        do="Lower gpu_memory_utilization, max_num_seqs or max_num_batched_tokens, or raise tensor_parallel_size.",
        sites="torch 2.13 c10/cuda/CUDACachingAllocator.cpp",
        literal="out of memory. Tried to allocate",
    ),
    _symptom(
        "out_of_memory",
        r"(?:torch\.(?:cuda\.)?OutOfMemoryError|CUDA error: out of memory|cudaErrorMemoryAllocation"
        r"|CUBLAS_STATUS_ALLOC_FAILED)",
        says="GPU memory ran out.",
        do="Lower gpu_memory_utilization, max_num_seqs or max_num_batched_tokens, or raise tensor_parallel_size.",
        sites="torch 2.13 c10/cuda/CUDAException.cpp",
        literal="CUDA error: ",
    ),
    _symptom(
        "out_of_memory",
        r"(?:^|\s)(?:MemoryError\b|std::bad_alloc)|DefaultCPUAllocator: (?:can't|not enough) ",
        says="The machine's memory ran out.",
        do="Lower the KV cache's share of the memory, or free memory on the machine.",
        sites="torch 2.13 c10/core/impl/alloc_cpu.cpp",
        literal="DefaultCPUAllocator: ",
    ),
    # The model and what it can do
    _symptom(
        "context_too_long",
        r"User-specified max_model_len \((?P<context>\d{1,15})\) is greater than the derived max_model_len "
        r"\((?P<limit>[^)]{0,200}?)(?:\.0)? or",
        says="max_model_len {context} is beyond what the model's config.json allows ({limit}).",
        do="Lower max_model_len.",
        sites="0.7.3 config.py; 0.8.5 config.py; 0.11.2 config/model.py; 0.32.0 config/model.py; "
        "0.33.0 config/model.py",
        literal="than the derived max_model_len ({max_len_key}=",
    ),
    _symptom(
        "tensor_parallel_mismatch",
        r"Total number of attention heads \((?P<heads>\d{1,15})\) must be divisible by tensor parallel size "
        r"\((?P<parallel>\d{1,15})\)",
        says="{heads} attention heads cannot be divided over {parallel} GPUs.",
        do="Choose a tensor_parallel_size that divides them.",
        sites="0.7.3 config.py; 0.8.5 config.py; 0.11.2 config/model.py; 0.32.0 config/model.py; "
        "0.33.0 config/model.py",
        literal=" must be divisible by tensor parallel size ",
    ),
    _symptom(
        "tensor_parallel_mismatch",
        r"World size \((?P<world>\d{1,15})\) is larger than the number of available GPUs \((?P<gpus>\d{1,15})\)",
        says="The config needs {world} GPUs and {gpus} are there.",
        do="Lower tensor_parallel_size × pipeline_parallel_size.",
        sites="0.32.0 config/parallel.py; 0.33.0 config/parallel.py",
        literal="is larger than the number of ",
    ),
    _symptom(
        "tensor_parallel_mismatch",
        r"please (?:set tensor_parallel_size|ensure that world_size) \((?P<world>\d{1,15})\).{0,400}"
        r"max local gpu count \((?P<gpus>\d{1,15})\)",
        says="The config needs {world} GPUs and {gpus} are there.",
        do="Lower tensor_parallel_size × pipeline_parallel_size.",
        sites="0.7.3 executor/mp_distributed_executor.py; 0.8.5 executor/mp_distributed_executor.py",
        literal="please set tensor_parallel_size ({tensor_parallel_size}) ",
    ),
    _symptom(
        "tensor_parallel_mismatch",
        r"The number of required \S{1,200} exceeds the total number of available",
        says="The config needs more GPUs than there are.",
        do="Lower tensor_parallel_size × pipeline_parallel_size.",
        sites="0.8.5 executor/ray_utils.py; 0.32.0 v1/executor/ray_utils.py; 0.33.0 v1/executor/ray_utils.py",
        literal="s exceeds the total ",
    ),
    _symptom(
        "tensor_parallel_mismatch",
        r"AssertionError: (?P<size>\d{1,15}) is not divisible by (?P<parallel>\d{1,15})",
        says="A dimension of {size} cannot be divided over {parallel} GPUs.",
        do="Choose a tensor_parallel_size that divides the model's heads, KV heads and hidden sizes.",
        sites="0.7.3 distributed/utils.py; 0.32.0 distributed/utils.py; 0.33.0 distributed/utils.py",
        literal="is not divisible by ",
    ),
    _symptom(
        "dtype_unsupported",
        r"Bfloat16 is only supported on GPUs with compute capability of at least 8\.0\. "
        r"Your (?P<gpu>.{1,100}?) GPU (?P<has>.{1,100}?)\. You can",
        says="bfloat16 needs compute capability 8.0 and the {gpu} {has}.",
        do="Use dtype: float16.",
        sites="0.7.3 worker/worker.py; 0.8.5 worker/worker.py; 0.11.2 platforms/cuda.py; 0.32.0 platforms/cuda.py; "
        "0.33.0 platforms/cuda.py",
        literal="Bfloat16 is only supported on GPUs",
    ),
    _symptom(
        "dtype_unsupported",
        r"--kv-cache-dtype (?P<dtype>\S{1,200}) is not supported by",
        says="kv_cache_dtype {dtype} is not supported here.",
        do="Use kv_cache_dtype: auto.",
        sites="0.33.0 platforms/cpu.py",
        literal="is not supported by ",
    ),
    _symptom(
        "dtype_unsupported",
        r"No valid attention backend found for (?P<device>\S{1,200}) with (?P<config>[^)]{0,200}\))",
        says="No attention backend of {device} takes this dtype, head size and KV cache dtype.",
        do="Use kv_cache_dtype: auto and a dtype that the GPU has, or another attention_backend.",
        sites="0.11.2 platforms/cuda.py; 0.32.0 platforms/cuda.py; 0.33.0 platforms/cuda.py",
        literal="No valid attention backend found for {cls.device_name} ",
    ),
    _symptom(
        "quantization_unsupported",
        r"The quantization method (?P<method>\S{1,200}) is not supported for the current GPU\. "
        r"Minimum capability: (?P<wanted>\d{1,15})\. Current capability: (?P<has>\d{1,15})",
        says="{method} needs compute capability {wanted} and this GPU has {has}.",
        do="Use a quantization that this GPU can run.",
        sites="0.7.3 config.py; 0.8.5 config.py; 0.11.2 config/vllm.py; 0.32.0 config/vllm.py; 0.33.0 config/vllm.py",
        literal="is not supported for the current GPU. Minimum ",
    ),
    _symptom(
        "quantization_unsupported",
        r"Quantization scheme is not supported for the current GPU\. Min capability: (?P<wanted>\d{1,15})",
        says="The checkpoint's quantization needs compute capability {wanted}.",
        do="Use a quantization that this GPU can run.",
        sites="0.32.0 model_executor/layers/quantization/compressed_tensors/compressed_tensors.py",
        literal="Quantization scheme is not supported for the current GPU. ",
    ),
    _symptom(
        "quantization_unsupported",
        r"(?P<dtype>torch\.\w{1,40}) is not supported for quantization method (?P<method>\S{1,200}?)\.",
        says="{method} does not run with {dtype}.",
        do="Use dtype: float16.",
        sites="0.7.3 config.py; 0.8.5 config.py; 0.11.2 config/vllm.py; 0.32.0 config/vllm.py; 0.33.0 config/vllm.py",
        literal="is not supported for quantization ",
    ),
    _symptom(
        "quantization_unsupported",
        r"Quantization method specified in the model config \((?P<checkpoint>\S{1,200})\) does not match the "
        r"quantization method specified in the `quantization` argument \((?P<method>\S{1,200})\)",
        says="The checkpoint is quantized with {checkpoint}, not with {method}.",
        do="Leave the quantization flag out; the engine reads it from the checkpoint.",
        sites="0.7.3 config.py; 0.8.5 config.py; 0.11.2 config/model.py; 0.33.0 config/model.py",
        literal="does not match the quantization ",
    ),
    _symptom(
        "quantization_unsupported",
        r"(?P<method>\S{1,60}) quantization is currently not supported in (?P<device>\S{1,200}?)\.?$",
        says="{method} is not supported on {device}.",
        do="Use a quantization that this device can run.",
        sites="0.7.3 platforms/interface.py; 0.8.5 platforms/interface.py; 0.33.0 platforms/interface.py",
        literal="quantization is currently not supported in ",
    ),
    _symptom(
        "quantization_unsupported",
        r"Unknown quantization method: (?P<method>\S{1,200}?)\.",
        says="This release has no quantization called {method}.",
        do="Use one of the methods that the log lists.",
        sites="0.7.3 config.py; 0.8.5 config.py; 0.11.2 config/model.py; 0.32.0 config/model.py; "
        "0.33.0 config/model.py",
        literal="Unknown quantization method: {self.quantization}. Must ",
    ),
    _symptom(
        "quantization_unsupported",
        r"Cannot find (?:any of|the config file for) (?P<what>.{1,1000}?)"
        r"(?: in the model's quantization config| \[type=|$)",
        says="The checkpoint has no quantization config ({what}).",
        do="Name a checkpoint that is quantized with this method, or leave the quantization flag out.",
        sites="0.7.3 model_executor/layers/quantization/base_config.py; "
        "0.32.0 model_executor/layers/quantization/base_config.py",
        literal="Cannot find any of {keys} in the model's ",
    ),
    # Where the model is
    _symptom(
        "model_missing",
        r"Invalid repository ID or local directory specified:(?: '(?P<model>[^']{1,200})')?",
        says="There is no model at {model}.",
        do="Check the model's name or its path on the node.",
        sites="0.8.5 transformers_utils/config.py; 0.11.2 transformers_utils/config.py; "
        "0.32.0 transformers_utils/config.py; 0.33.0 transformers_utils/config.py",
        literal="Invalid repository ID or local directory specified:",
    ),
    _symptom(
        "model_missing",
        r"Repo id must be in the form 'repo_name' or 'namespace/repo_name': '(?P<model>[^']{1,200})'",
        says="There is no folder {model} on the node, and it is no name on the hub.",
        do="Check the model's path on the node.",
        sites="huggingface_hub 2.4.0 utils/_validators.py",
        literal="Repo id must be in the form 'repo_name' or 'namespace/repo_name'",
    ),
    _symptom(
        "model_missing",
        r"(?:LocalEntryNotFoundError: |Cannot find an appropriate cached snapshot"
        r"|couldn't connect to .{0,400} to load)",
        says="The model is not on the node, and the hub could not be reached.",
        do="Download the model to the node, or give its path there.",
        sites="huggingface_hub 2.4.0 _snapshot_download.py",
        literal="Cannot find an appropriate cached snapshot folder for the specified",
    ),
    _symptom(
        "model_missing",
        r"(?:RepositoryNotFoundError|GatedRepoError|RevisionNotFoundError): (?P<what>.{1,400})",
        says="The hub refused the model: {what}",
        do="Check the model's name and revision and the node's access to it.",
        sites="huggingface_hub 2.4.0 errors.py",
        literal="class RepositoryNotFoundError",
    ),
    _symptom(
        "model_missing",
        r"Cannot find any (?:safetensors )?model weights with `(?P<model>[^`]{1,200})`",
        says="{model} holds no weights.",
        do="Download the model's weights completely.",
        sites="0.7.3 model_executor/model_loader/loader.py; 0.11.2 model_executor/model_loader/default_loader.py; "
        "0.32.0 model_executor/model_loader/default_loader.py; 0.33.0 model_executor/model_loader/default_loader.py",
        literal="Cannot find any model weights with `{model_name_or_path}`",
    ),
    _symptom(
        "model_missing",
        r"SafetensorError: (?P<what>.{1,400})",
        says="The model's weights cannot be read: {what}.",
        do="Download them again; a file is cut short or damaged.",
        sites="safetensors 0.8.0 __init__.py",
        literal="SafetensorError",
    ),
    _symptom(
        "model_unsupported",
        r"Model architectures (?P<names>\[.{0,1000}?\]) (?:are not supported for now|failed to be inspected)",
        says="This release does not know the architecture {names}.",
        do="Pin an engine version that supports the model.",
        sites="0.32.0 model_executor/models/registry.py",
        literal="are not supported for now.",
    ),
    # Values that only the whole config shows to be wrong
    _symptom(
        "bad_flag_value",
        r"max_num_batched_tokens \((?P<tokens>\d{1,15})\) is smaller than max_model_len \((?P<context>\d{1,15})\)",
        says="Without chunked prefill, max_num_batched_tokens {tokens} cannot hold a prompt of {context} tokens.",
        do="Raise max_num_batched_tokens, lower max_model_len, or enable chunked prefill.",
        sites="0.7.3 config.py; 0.8.5 config.py; 0.32.0 config/scheduler.py; 0.33.0 config/scheduler.py",
        literal="smaller than max_model_len (",
    ),
    _symptom(
        "bad_flag_value",
        r"max_num_batched_tokens \((?P<tokens>\d{1,15})\) must be greater than or equal to max_num_seqs "
        r"\((?P<sequences>\d{1,15})\)",
        says="max_num_seqs {sequences} is more than max_num_batched_tokens {tokens}.",
        do="Raise max_num_batched_tokens or lower max_num_seqs.",
        sites="0.7.3 config.py; 0.8.5 config.py; 0.32.0 config/scheduler.py; 0.33.0 config/scheduler.py",
        literal="be greater than or equal to max_num_seqs",
    ),
    _symptom(
        "port_taken",
        r"OSError: \[Errno (?:98|48)\].{0,400}ddress already in use|error while attempting to bind on address",
        says="The engine's port is in use.",
        do="Find what listens there (the probe names it), or choose another port in the inventory.",
        sites="CPython 3.11 asyncio/base_events.py",
        literal="error while attempting to bind on address",
    ),
    _symptom(
        "crashed",
        r"CUDA error: no kernel image is available for execution on the device",
        says="This engine was built without kernels for this GPU.",
        do="Pin an engine version that still supports the GPU.",
        sites="torch 2.13 c10/cuda/CUDAException.cpp",
        literal="CUDA error: ",
    ),
    # What pydantic says of a config that holds together with nothing
    _symptom(
        "bad_flag_value",
        r"^\s{1,40}Value error, (?P<what>.{1,4000}?)(?: \[type=|$)",
        says="The engine refused the config: {what}",
        do="Change the value that it names.",
        sites="pydantic 2.14 _internal/_known_annotated_metadata.py",
        literal="value_error",
    ),
    _symptom(
        "bad_flag_value",
        r"^\s{1,40}(?P<what>Input should be .{1,1000}?|Unexpected keyword argument|Extra inputs are not permitted)"
        r" \[type=\w{1,40}, input_value=(?P<value>.{1,1000}?), input_type",
        says="The engine refused a value: {what}, not {value}.",
        do="Change the value that it names.",
        sites="pydantic 2.14 pydantic_core",
        literal="Input should be",
    ),
)


def is_own_sentence(text: str) -> bool:
    """Whether a text is what a symptom says, with nothing but numbers in it: none of its words are the log's."""
    return any(pattern.fullmatch(text) for pattern in _own_sentences())


_NUMBER = r"[\d.,]+(?: [KMGT]?i?B)?"


@cache
def _own_sentences() -> tuple[re.Pattern[str], ...]:
    parts = (re.split(r"\{\w+\}", symptom.says) for symptom in SYMPTOMS)
    return tuple(re.compile(_NUMBER.join(map(re.escape, each))) for each in parts)
