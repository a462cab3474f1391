"""Public start-up logs of vLLM beside the plan: what was left for the KV cache, and how many tokens that is.

Each row is of a log that states release and board. Where it does not state the context, the engine's default stands,
or that which gives the log's own figures.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import public_models as shapes
import pytest

from node_models import known_board, known_model
from tokenpeak.predict.hardware import GIB
from tokenpeak.predict.memory_plan import MemoryPlan, memory_on
from tokenpeak.predict.model import facts_from_config


@dataclass(frozen=True)
class Log:
    """What a log says of one GPU."""

    source: str
    model: str | Mapping[str, Any]
    gpu: str
    release: str
    flags: Mapping[str, Any]
    kv_gib: float | None = None
    tokens: int | None = None
    weights_gib: float | None = None
    apart: Mapping[str, str] = field(default_factory=dict)
    """Figures that are not compared, with the reason."""


@dataclass(frozen=True)
class Launches:
    """One model on groups of one board with several releases: (release, weights, KV cache, tokens) of one GPU."""

    model: str | Mapping[str, Any]
    gpu: str
    tensor_parallel: int
    logs: tuple[tuple[str, float, float, int], ...]
    flags: Mapping[str, Any] = field(default_factory=dict)
    apart: Mapping[str, str] = field(default_factory=dict)

    def each(self) -> list[Log]:
        """One log for each launch; those of 0.20 leave the context at the model's."""
        fixed = {"tensor_parallel_size": self.tensor_parallel, "gpu_memory_utilization": 0.92, **OF_ALL, **self.flags}
        return [
            Log(
                "ashishkamra/vllm-memory-estimator, validation_db.json",
                self.model,
                self.gpu,
                release,
                fixed if release == "0.20.0" else {"max_model_len": 8192, **fixed},
                kv,
                tokens,
                weights,
                self.apart,
            )
            for release, weights, kv, tokens in self.logs
        ]


OF_ALL = {"enable_prefix_caching": False}
FP8_CACHE = {"kv_cache_dtype": "fp8"}
TEXT = {"language_model_only": True}
FIRST_RANK = {"kv_gib": "of the first rank; the cache is that of the rank with least"}
PADDED = "a fifth to a third more weights than on NVIDIA: this build pads them for AMD's kernels"

QWEN_35B: Mapping[str, Any] = {
    "model_type": "qwen3_5_moe_text",
    "num_hidden_layers": 40,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "mamba_ssm_dtype": "float32",
    "max_position_embeddings": 262144,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
}

LAUNCHES = (
    Launches(
        "deepseek-ai/DeepSeek-R1-0528",
        "H200",
        8,
        (
            # With FlashInfer's sampler, which the release's container has and its wheel has not.
            ("0.11.0", 79.58, 46.23, 706_368),
            ("0.11.2", 79.74, 41.60, 635_648),
            ("0.13.0", 79.74, 43.11, 658_752),
            ("0.14.1", 79.74, 41.43, 633_088),
            ("0.16.0", 79.74, 43.08, 658_176),
            ("0.18.0", 79.74, 42.79, 653_808),
            ("0.19.0", 79.74, 42.79, 653_808),
        ),
    ),
    Launches(
        "deepseek-ai/DeepSeek-R1-0528",
        "H200",
        8,
        (("0.20.0", 79.74, 41.24, 616_096),),
        apart=FIRST_RANK,
    ),
    Launches("deepseek-ai/DeepSeek-R1-0528", "B200", 8, (("0.18.0", 79.88, 79.81, 1_219_424),)),
    Launches(
        shapes.DEEPSEEK_V3_2,
        "H200",
        8,
        (
            ("0.16.0", 80.62, 42.19, 578_368),
            ("0.18.0", 80.76, 41.76, 572_480),
            ("0.19.0", 80.76, 41.76, 572_480),
        ),
    ),
    Launches(shapes.DEEPSEEK_V3_2, "B200", 8, (("0.18.0", 80.77, 78.87, 1_081_216),)),
    Launches(
        shapes.DEEPSEEK_V3_2_NVFP4, "B200", 8, (("0.18.0", 48.62, 110.95, 2_758_336),), {"kv_cache_dtype": "fp8_e4m3"}
    ),
    Launches(shapes.KIMI_K2_5, "H200", 8, (("0.18.0", 72.02, 51.63, 788_928),)),
    Launches(shapes.MINIMAX_M2_5, "H200", 8, (("0.18.0", 27.01, 96.57, 3_266_480),), {"enable_expert_parallel": True}),
    Launches("Qwen/Qwen3-235B-A22B-Instruct-2507", "H200", 4, (("0.11.2", 109.61, 12.73, 284_080),)),
    Launches(
        shapes.QWEN3_235B_FP8,
        "H200",
        4,
        (("0.11.0", 55.20, 69.62, 1_553_136), ("0.11.2", 55.20, 66.13, 1_475_472)),
        {"enable_expert_parallel": True},
    ),
    Launches(
        shapes.QWEN3_VL_30B,
        "H200",
        1,
        (
            ("0.13.0", 58.23, 64.23, 701_600),
            ("0.14.1", 58.23, 63.73, 696_144),
            ("0.16.0", 58.23, 63.73, 696_144),
            ("0.18.0", 58.23, 67.03, 732_176),
            ("0.19.0", 58.23, 67.03, 732_176),
            ("0.20.0", 58.23, 66.76, 729_136),
        ),
    ),
    Launches(shapes.QWEN3_VL_235B_FP8, "H200", 4, (("0.20.2", 55.87, 65.48, 1_460_864),)),
    Launches(shapes.QWEN3_CODER_NEXT_FP8, "H200", 1, (("0.18.0", 76.27, 49.29, 538_016),)),
    Launches(shapes.QWEN3_5_35B, "H200", 1, (("0.18.0", 34.43, 89.92, 1_178_496),), TEXT),
    Launches(shapes.QWEN3_5_122B, "H200", 2, (("0.18.0", 59.44, 62.77, 1_370_784),), TEXT),
    Launches(shapes.QWEN3_5_397B, "H200", 4, (("0.18.0", 94.87, 26.76, 466_752),), TEXT),
    Launches(
        shapes.NEMOTRON_3_NANO_FP8,
        "H200",
        1,
        (
            ("0.13.0", 30.52, 93.13, 6_506_208),
            ("0.14.1", 30.52, 92.64, 6_472_800),
            ("0.16.0", 30.52, 93.09, 6_506_208),
            ("0.18.0", 31.40, 95.04, 6_644_016),
            ("0.19.0", 31.40, 95.04, 6_644_016),
            ("0.20.0", 31.40, 94.45, 6_602_256),
        ),
        FP8_CACHE,
    ),
    Launches(
        shapes.NEMOTRON_3_SUPER_FP8,
        "H200",
        2,
        (
            ("0.17.1", 59.91, 64.72, 5_562_368),
            ("0.18.0", 59.91, 64.70, 5_562_368),
            ("0.19.0", 59.91, 64.70, 5_562_368),
            ("0.20.0", 59.91, 64.07, 5_591_040),
        ),
        FP8_CACHE,
    ),
    Launches(shapes.GEMMA_4_31B, "H200", 1, (("0.19.1", 58.90, 65.56, 71_600),)),
    Launches(shapes.GEMMA_4_31B, "H200", 1, (("0.18.2", 58.90, 69.75, 76_176),), {"gpu_memory_utilization": 0.95}),
    Launches(shapes.MAVERICK, "H200", 8, (("0.11.2", 93.79, 26.13, 1_141_712),)),
    Launches(shapes.MAVERICK_FP8, "H200", 8, (("0.11.2", 48.87, 70.89, 6_194_752),), FP8_CACHE),
    Launches(
        shapes.MINISTRAL_14B_FP8,
        "H200",
        1,
        (
            ("0.13.0", 14.71, 108.80, 713_040),
            ("0.14.1", 14.71, 108.80, 713_040),
            ("0.16.0", 14.71, 108.81, 713_056),
            ("0.18.0", 14.71, 111.64, 731_632),
            ("0.19.0", 14.71, 111.64, 731_632),
            ("0.20.0", 14.71, 111.09, 728_048),
        ),
    ),
    *(
        Launches(shapes.MINISTRAL_14B, "H200", gpus, (launch,), apart={"weights_gib": "the tower is whole on each GPU"})
        for gpus, launch in ((4, ("0.13.0", 7.21, 115.78, 3_035_088)), (8, ("0.13.0", 4.03, 118.71, 6_223_648)))
    ),
    Launches(
        shapes.LLAMA_70B,
        "H200",
        4,
        (
            ("0.11.2", 32.89, 90.23, 1_182_608),
            ("0.13.0", 32.89, 90.23, 1_182_640),
            ("0.14.1", 32.89, 90.30, 1_183_520),
            ("0.16.0", 32.89, 90.30, 1_183_568),
            ("0.18.0", 32.89, 91.57, 1_200_192),
            ("0.19.0", 32.89, 91.57, 1_200_192),
            ("0.20.0", 32.89, 90.66, 1_188_336),
        ),
    ),
    Launches(shapes.LLAMA_70B, "B200", 4, (("0.18.0", 32.89, 127.02, 1_664_848),)),
    Launches(
        shapes.LLAMA_70B_FP8, "H200", 4, (("0.11.0", 16.96, 109.09, 1_429_856), ("0.11.2", 16.96, 106.15, 1_391_344))
    ),
    Launches(
        shapes.LLAMA_70B_FP8,
        "H200",
        4,
        (
            ("0.13.0", 16.96, 106.15, 2_782_688),
            ("0.14.1", 16.96, 106.22, 2_784_528),
            ("0.16.0", 16.96, 106.23, 2_784_688),
            ("0.18.0", 16.96, 107.52, 2_818_496),
            ("0.19.0", 16.96, 107.52, 2_818_496),
            ("0.20.0", 16.96, 106.62, 2_794_992),
        ),
        FP8_CACHE,
    ),
    Launches(shapes.LLAMA_70B_FP8, "B200", 4, (("0.18.0", 16.96, 142.94, 3_747_120),), FP8_CACHE),
    # The vendor's own builds of these releases.
    Launches(shapes.QWEN3_VL_30B, "B200", 1, (("0.18.0", 58.23, 102.51, 1_119_696),)),
    Launches(
        "deepseek-ai/DeepSeek-R1-0528",
        "MI300X",
        8,
        (
            ("0.11.2", 81.31, 87.09, 1_324_304),
            ("0.13.0", 81.31, 87.09, 1_324_304),
            ("0.14.1", 81.31, 85.34, 1_297_552),
            ("0.16.0", 81.31, 85.23, 1_295_920),
            ("0.18.0", 81.31, 88.00, 1_338_112),
        ),
        apart=FIRST_RANK,
    ),
    Launches("Qwen/Qwen3-235B-A22B-Instruct-2507", "MI300X", 4, (("0.11.2", 112.61, 56.83, 1_267_456),)),
    Launches(
        shapes.QWEN3_235B_FP8,
        "MI300X",
        4,
        (("0.11.2", 55.92, 113.35, 2_528_512),),
        {"enable_expert_parallel": True},
    ),
    Launches(shapes.MAVERICK_FP8, "MI300X", 8, (("0.11.2", 50.27, 115.18, 10_027_504),), FP8_CACHE, apart=FIRST_RANK),
    Launches(
        shapes.MINISTRAL_14B_FP8,
        "MI300X",
        1,
        (("0.16.0", 17.60, 152.81, 1_001_440), ("0.18.0", 17.57, 155.88, 1_021_552)),
        apart={"weights_gib": PADDED},
    ),
    Launches(
        shapes.QWEN3_VL_30B,
        "MI300X",
        1,
        (("0.16.0", 79.29, 89.47, 977_280), ("0.18.0", 79.29, 93.01, 1_015_872)),
        apart=dict.fromkeys(("weights_gib", "kv_gib", "tokens"), PADDED),
    ),
    Launches(
        shapes.MAVERICK,
        "MI300X",
        8,
        (("0.11.2", 126.72, 38.74, 1_673_952),),
        apart=dict.fromkeys(("weights_gib", "kv_gib", "tokens"), PADDED),
    ),
    Launches(
        shapes.LLAMA_70B,
        "MI300X",
        1,
        (
            ("0.11.2", 131.62, 39.07, 128_032),
            ("0.13.0", 131.62, 39.07, 128_032),
            ("0.16.0", 131.62, 39.07, 128_032),
            ("0.18.0", 131.62, 41.88, 137_232),
        ),
    ),
    Launches(shapes.LLAMA_70B, "MI300X", 4, (("0.13.0", 32.96, 137.30, 1_799_360),)),
)
"""A vendor's regression runs of vLLM's releases: of 281 logs one for each model, group and release. Left out are
DeepSeek-V4, whose layers are not known here, and sarvam-105b, whose config.json is not."""

LOGS = (
    *(log for launches in LAUNCHES for log in launches.each()),
    *(
        Log(
            "a public sweep's server log",
            "openai/gpt-oss-120b",
            "H200",
            "0.22.1",
            {"tensor_parallel_size": gpus, "max_model_len": 2068},
            kv,
            tokens,
            weights,
        )
        for gpus, kv, tokens, weights in (
            (2, 88.77, 2_560_976, 34.38),
            (4, 106.27, 6_131_009, 17.22),
            (8, 114.85, 13_253_265, 8.66),
        )
    ),
    Log(
        "vllm#27508 and #33155",
        "openai/gpt-oss-120b",
        "H100",
        "0.11.0",
        {"gpu_memory_utilization": 0.95, "max_num_batched_tokens": 1024},
        kv_gib=1.71,
        weights_gib=64.38,
        apart={"kv_gib": "what 65 of 75 GiB leave: 0.2 GiB beside"},
    ),
    Log(
        "a public start-up log (board inferred)",
        "google/gemma-3-27b-it",
        "MI300X",
        "0.11.0",
        {"max_model_len": 4096},
        109.86,
        205_696,
        51.79,
    ),
    Log(
        "a public log (board inferred)",
        "Qwen/Qwen2.5-7B-Instruct",
        "V100-SXM2-32GB",
        "0.18.0",
        {"dtype": "float16", "enforce_eager": True, "max_num_batched_tokens": 8192},
        13.10,
        245_360,
        14.25,
    ),
    Log(
        "llm-d evaluation notes (board inferred)",
        "Qwen/Qwen2.5-14B-Instruct",
        "H100",
        "0.21.0",
        {"max_model_len": 4096},
        41.43,
        226_240,
    ),
    Log(
        "a public log (board inferred)", "Qwen/Qwen3-8B", "A100 40GB", "0.9.0", {"max_model_len": 40960}, 18.69, 136_080
    ),
    Log(
        "vllm#13061",
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B",
        "RTX 4090",
        "0.7.2",
        {"tensor_parallel_size": 2, "gpu_memory_utilization": 0.98},
        8.69,
        81_536,
        13.95,
        apart={"kv_gib": "of the rank with more left; its blocks are those of the other"},
    ),
    Log("vllm#10517", "meta-llama/Llama-3.1-8B", "RTX 3090", "0.6.0", {"max_model_len": 20000}, 3.81, 31_232, 14.99),
    Log(
        "vllm#21348",
        {**shapes.QWEN3_235B_FP8, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}},
        "H100",
        "0.9.2",
        {"tensor_parallel_size": 4},
        8.11,
        178_880,
        apart=FIRST_RANK,
    ),
    Log(
        "a public server log (Qwen3-Next, 0.10.2)",
        shapes.QWEN3_NEXT,
        "H200",
        "0.10.2",
        {"tensor_parallel_size": 2},
        44.59,
        973_760,
        74.28,
    ),
    Log(
        "a public server log (Qwen3-Next, 0.13)",
        shapes.QWEN3_NEXT_INT4,
        "L40S",
        "0.13.0",
        {
            "tensor_parallel_size": 2,
            "disable_custom_all_reduce": True,
            "gpu_memory_utilization": 0.92,
            "kv_cache_dtype": "fp8",
            "max_num_batched_tokens": 8192,
            "max_num_seqs": 8,
            "max_model_len": 32768,
            "enable_prefix_caching": False,
        },
        17.58,
        767_552,
        22.53,
    ),
    Log(
        "a public server log (Qwen3-VL, 0.13)",
        shapes.QWEN3_VL_30B,
        "H100 NVL",
        "0.13.0",
        {"max_model_len": 8192},
        19.40,
        211_936,
        58.23,
    ),
    Log(
        "a public server log (Qwen3-VL, 0.11, board inferred)",
        shapes.QWEN3_VL_30B,
        "RTX 3090",
        "0.11.0",
        {"tensor_parallel_size": 4, "max_model_len": 65536},
        2.31,
        100_752,
        14.77,
    ),
    Log(
        "a public bisection of vLLM (GLM-5.1)",
        shapes.GLM_5_1,
        "H200",
        "0.19.1",
        {"tensor_parallel_size": 8, "enforce_eager": True},
        32.06,
        343_744,
        89.39,
    ),
    Log(
        "vllm-project/recipes, Kimi-K2-Think",
        shapes.KIMI_K2_THINKING,
        "H200",
        "0.11.1",
        {"tensor_parallel_size": 8},
        46.80,
        715_072,
    ),
    Log(
        "a public notebook (Qwen3.5-9B)",
        shapes.QWEN3_5_9B,
        "L40S",
        "0.19.0",
        {"max_num_batched_tokens": 8192, "enable_prefix_caching": False},
        20.27,
        165_792,
        17.66,
    ),
    Log(
        "a public server log (Nemotron-Cascade-2)",
        shapes.NEMOTRON_CASCADE_NVFP4,
        "H100 NVL",
        "0.19.1",
        {
            "gpu_memory_utilization": 0.95,
            "max_num_seqs": 40,
            "max_num_batched_tokens": 8192,
            "kv_cache_dtype": "fp8",
            "enable_prefix_caching": False,
        },
        68.97,
        4_819_104,
        18.03,
    ),
    Log(
        "a public comparison of engines (gemma-3-1b-it, board inferred)",
        shapes.GEMMA_3_1B,
        "RTX 5090",
        "0.13.0",
        {"max_model_len": 2048, "gpu_memory_utilization": 0.95, "max_num_batched_tokens": 8192},
        25.39,
        950_864,
        1.91,
    ),
    Log(
        "ArmDeveloperEcosystem/arm-learning-paths, DGX Spark",
        "TheBloke/Mistral-7B-Instruct-v0.2-GPTQ",
        "GB10",
        "0.11.0",
        {"dtype": "float16"},
        102.56,
        840_160,
        3.88,
    ),
    Log(
        "a public server log (Nemotron-3-Nano-4B-FP8)",
        shapes.NEMOTRON_3_NANO_4B_FP8,
        "GB10",
        "0.13.0",
        {
            "max_model_len": 8192,
            "gpu_memory_utilization": 0.15,
            "kv_cache_dtype": "fp8",
            "enable_prefix_caching": False,
        },
        11.15,
        208_320,
        4.91,
    ),
    Log(
        "a public server log (Qwen3-30B-A3B-FP8)",
        {
            **shapes.QWEN3_30B,
            "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
        },
        "GB10",
        "0.13.0",
        {"max_model_len": 32768, "gpu_memory_utilization": 0.3, "kv_cache_dtype": "fp8"},
        4.04,
        88_176,
        29.04,
        apart=dict.fromkeys(("kv_gib", "tokens"), "1.1 GiB more than is explained: the host shares the memory"),
    ),
    Log(
        "a public server log (Qwen3.5-35B-A3B-FP8)",
        {**shapes.QWEN3_5_35B, "quantization_config": shapes.QWEN3_5_BLOCKS},
        "GB10",
        "0.18.1",
        {"gpu_memory_utilization": 0.8},
        55.72,
        729_696,
        34.22,
    ),
    Log(
        "a public server log (Nemotron-Cascade-2, board inferred)",
        shapes.NEMOTRON_CASCADE_NVFP4,
        "RTX 5090",
        "0.21.0",
        {
            "max_model_len": 256000,
            "gpu_memory_utilization": 0.85,
            "max_num_seqs": 128,
            "max_num_batched_tokens": 32768,
            "kv_cache_dtype": "fp8",
            "enable_prefix_caching": False,
        },
        3.72,
        1_206_303,
        18.54,
        apart={
            "kv_gib": "a nightly build; 1.3 GiB more in FlashInfer's FP4 kernels with a batch of 32,768 tokens",
            "tokens": "the same",
        },
    ),
    Log(
        "a public benchmark log (two nodes of four)",
        shapes.QWEN3_30B,
        "GH200",
        "0.10.1",
        {"tensor_parallel_size": 4, "pipeline_parallel_size": 2, "max_num_batched_tokens": 16384},
        76.15,
        6_654_432,
        7.33,
    ),
    *(
        Log(
            "llm-d/llm-d-benchmark, empirical-vllm-memory-results.md",
            model,
            "H100",
            "0.11.0",
            {"max_model_len": 16000},
            kv,
            weights_gib=weights,
        )
        for model, kv, weights in (
            ("openai/gpt-oss-20b", 50.28, 13.47),
            ("meta-llama/Llama-3.1-8B-Instruct", 51.38, 14.99),
            ("Qwen/Qwen3-0.6B", 64.45, 1.12),
            ("Qwen/Qwen3-32B", 4.45, 61.03),
        )
    ),
    Log("vllm#6746", "meta-llama/Llama-3.1-405B-FP8", "H100", "0.6.0", {"tensor_parallel_size": 8}, weights_gib=57.75),
)


def planned(log: Log, **further: Any) -> MemoryPlan:
    """The plan of a log's engine."""
    model = known_model(log.model) if isinstance(log.model, str) else facts_from_config(dict(log.model), "asked")
    plan = memory_on(known_board(log.gpu), model, {**log.flags, **further}, {}, log.release, config="asked")
    assert plan is not None, "nothing of it is unknown"
    return plan


def off(log: Log) -> dict[str, float]:
    """Predicted ÷ the log's own, less one."""
    plan = planned(log)
    pairs = {
        "weights_gib": (plan.deployment.weight_bytes_per_gpu / GIB, log.weights_gib),
        "kv_gib": (plan.kv_cache_bytes / GIB, log.kv_gib),
        "tokens": (float(plan.kv_cache_tokens), log.tokens),
    }
    return {name: ours / theirs - 1 for name, (ours, theirs) in pairs.items() if theirs and name not in log.apart}


def named(log: Log) -> str:
    """A log's name in the report of the tests."""
    return f"{log.source}, {log.gpu}, {log.release}, {log.flags}"


@pytest.mark.parametrize("log", LOGS, ids=named)
def test_no_log_is_far_off(log: Log) -> None:
    """None above a tenth, and none that ran is dropped."""
    found = off(log)

    assert {} == {name: error for name, error in found.items() if abs(error) > 0.1}
    assert planned(log).kv_cache_bytes > 0


def test_half_of_them_are_within_three_in_a_hundred() -> None:
    """The median error of the tokens."""
    errors = [abs(found["tokens"]) for log in LOGS if "tokens" in (found := off(log))]

    assert len(errors) >= 8
    assert median(errors) <= 0.03


@pytest.mark.parametrize(
    "log",
    [
        *(log for log in LOGS if log.kv_gib and log.tokens and "kv_gib" not in log.apart),
        Log(
            "club-3090#612",
            QWEN_35B,
            "RTX 5090",
            "0.24.0",
            {"max_model_len": 131072, "kv_cache_dtype": "fp8"},
            5.98,
            567_978,
        ),
    ],
    ids=named,
)
def test_a_cache_of_so_many_bytes_holds_so_many_tokens(log: Log) -> None:
    """The log's own bytes give its own tokens: layers, groups, blocks and what is left over, to two in a thousand."""
    assert log.kv_gib is not None
    plan = planned(log, kv_cache_memory_bytes=int(log.kv_gib * GIB))

    assert log.tokens == pytest.approx(plan.kv_cache_tokens, rel=0.002)
