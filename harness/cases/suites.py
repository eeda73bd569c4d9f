"""Named lists of shapes or cases, and the reading of `--shapes`, `--norm` and `--dtype` into cases."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar, get_args

from harness.cases import DeviceKind, Dtype, Norm, NormCase
from harness.cases.models import cases_of_models
from harness.cases.variants import PLAIN, with_features
from harness.errors import UsageError

Shape = tuple[int, int]  # rows, cols
Choice = TypeVar("Choice", bound=str)

NORMS: tuple[Norm, ...] = get_args(Norm)
DTYPES: tuple[Dtype, ...] = get_args(Dtype)


@dataclass(frozen=True)
class Suite:
    """Shapes that are measured together, under a name: as plain norms, or as these `variants`.

    With `cases` those are measured, in the dtypes and on the device asked for.
    """

    name: str
    description: str
    shapes: tuple[Shape, ...]
    variants: str = PLAIN
    cases: tuple[NormCase, ...] = ()


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """Read `8192x4096,1024x1024`; a shape given twice is kept once. Raises UsageError."""
    if not text.strip():
        raise UsageError("--shapes is empty; give ROWSxCOLS, such as --shapes 8192x4096,1024x1024")
    return tuple(dict.fromkeys(_parse_shape(part.strip()) for part in text.split(",")))


def _parse_shape(part: str) -> Shape:
    if not part:
        raise UsageError("--shapes has an empty shape between commas; remove the comma, or write ROWSxCOLS there")
    match = re.fullmatch(r"([0-9]{1,12})\s*[xX]\s*([0-9]{1,12})", part)
    if match is None:
        shown = part if len(part) <= 40 else part[:40] + "..."
        raise UsageError(f"--shapes: {shown!r} is not a shape; write ROWSxCOLS, such as 8192x4096")
    rows, cols = int(match[1]), int(match[2])
    if rows < 1 or cols < 1:
        raise UsageError(f"--shapes: {part!r} is empty; rows and cols are at least 1, such as 8192x4096")
    return rows, cols


def _grid(rows: Iterable[int], cols: Iterable[int]) -> tuple[Shape, ...]:
    return tuple(product(rows, cols))


_WIDTHS = (1024, 2048, 4096, 8192, 16384)
_FAST_LLM = tuple((total // cols, cols) for total in (1 << 25, 1 << 24, 1 << 23) for cols in _WIDTHS)

SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite("quick", "two small shapes, one odd: a smoke run, or a CPU", parse_shapes("64x1024,33x515")),
        Suite("fast-llm", "Fast-LLM's benchmark shapes: 32, 16 and 8 Mi elements, 1024 to 16384 columns", _FAST_LLM),
        Suite(
            "llm",
            "hidden sizes of models that people train now, at 4 Ki, 16 Ki and 64 Ki tokens",
            _grid(
                (4096, 16384, 65536),
                (
                    2048,  # Llama 3.2 1B, Qwen3 30B-A3B
                    2880,  # gpt-oss 20B and 120B: no power of two, no multiple of 128
                    4096,  # Llama 3.1 8B, Qwen3 8B, Mistral 7B
                    5120,  # Qwen3 14B and 32B, Llama 4 Scout
                    6144,  # Mixtral 8x22B, Qwen3-Coder 480B
                    7168,  # DeepSeek-V3, Kimi K2
                    8192,  # Llama 3.1 70B, Qwen2.5 72B
                    16384,  # Llama 3.1 405B
                ),
            ),
        ),
        Suite(
            "quack",
            "QuACK's benchmark grid, 256 to 65536 columns; the largest x is 4 GiB in bf16",
            _grid((4096, 16384, 32768, 65536), (256, 512, 1024, 2048, 4096, 8192))
            + _grid((32768,), (16384, 32768, 65536)),
        ),
        Suite(
            "inductor",
            "both sides of each gate of Inductor's mix-order reduction, one shape far above all three, and its cliff",
            (
                (576000, 384),
                (131072, 8192),  # before the cliff
                (131072, 16384),  # at it: a tenth of the roof, pytorch issue 185814
                (5120, 1024),  # rows * cols is 5 * 2^20, the least that passes
                (5104, 1024),  # below it; the other two gates pass
                (8192, 4096),  # rows is 2 * cols, the least that passes
                (8176, 4096),  # below it
                (4096, 1536),  # rows is 4096, the least that passes
                (4080, 1536),  # below it
            ),
        ),
        Suite(
            "te-rocm",
            "Transformer Engine on ROCm: narrow to wide, both sides of its 64 KiB row, one odd shape",
            parse_shapes(
                "29x17389,256x65536,1024x32768,2048x16384,4096x1024,4096x12288,8192x2048,8192x4096,8192x8192,16384x4096"
            ),
        ),
        Suite("residual", "a residual beside the norm, at Fast-LLM's shapes", _FAST_LLM, "residual"),
        Suite("parallel", "two norms of one x, at Fast-LLM's shapes", _FAST_LLM, "parallel"),
        Suite(
            "qk",
            "norms of queries and keys, 128 and 256 columns: of a tensor of their own, and of a slice of a projection",
            (
                (262144, 128),  # 8192 tokens of 32 heads
                (65536, 128),  # of 8
                (1048576, 128),  # 32768 tokens of 32 heads
                (131072, 256),
            ),
            "plain,qk",
        ),
        Suite(
            "gated",
            "gated norms, the gate before the norm and after it, as in Mamba2 and Qwen3-Next",
            (
                (8192, 4096),
                (8192, 5120),  # Mamba2 2.7B
                (8192, 8192),
                (32768, 1024),
                (262144, 128),  # Qwen3-Next: 8192 tokens of 32 heads
            ),
            "gated,gated-norm-first",
        ),
        Suite(
            "models",
            "the norms of nine models at 8192 and 32768 tokens, and what a step of each spends in their backwards",
            tuple(dict.fromkeys((case.rows, case.cols) for case in cases_of_models())),
            cases=cases_of_models(),
        ),
    )
}


def find_suite(name: str) -> Suite:
    """The suite of a name, or UsageError naming them all."""
    try:
        return SUITES[name.strip().lower()]
    except KeyError:
        raise UsageError(
            f"--suite {name.strip() or '(empty)'}: no such suite; choose among {', '.join(SUITES)}"
        ) from None


def parse_norms(text: str) -> list[Norm]:
    """Read `rms,layer` or `both`; a norm given twice is kept once. Raises UsageError."""
    if text.strip().lower() == "both":
        return list(NORMS)
    return list(dict.fromkeys(_pick(part, NORMS, "--norm") for part in text.split(",")))


def parse_dtype(text: str, option: str = "--dtype") -> Dtype:
    """Read `bf16`; `option` is named in the UsageError."""
    return _pick(text, DTYPES, option)


def cases_of(
    shapes: Iterable[Shape],
    norms: Sequence[Norm] = NORMS,
    dtype: Dtype = "bf16",
    weight_dtype: Dtype | None = None,
    *,
    variants: Sequence[tuple[str, ...]] = ((),),
    weight: bool = True,
    bias: bool = True,
    zero_centred: bool = False,
    eps: float = 1e-5,
    device: DeviceKind = "cuda",
) -> list[NormCase]:
    """Every norm at every shape in every variant, norm by norm.

    Weights are in `dtype` and a LayerNorm has a bias, unless the arguments differ; an RMSNorm never has one, nor what
    has no weight.
    """
    plain = [
        NormCase(
            norm=norm,
            rows=rows,
            cols=cols,
            dtype=dtype,
            weight_dtype=weight_dtype or dtype,
            weight=weight,
            bias=bias and weight and norm == "layer",
            zero_centred=zero_centred,
            eps=eps,
            device=device,
        )
        for norm, (rows, cols) in product(norms, tuple(shapes))
    ]
    return [with_features(case, features) for features in variants for case in plain]


def _pick(text: str, choices: tuple[Choice, ...], option: str) -> Choice:
    wanted = text.strip().lower()
    for choice in choices:
        if choice == wanted:
            return choice
    raise UsageError(f"{option} {text.strip() or '(empty)'}: not one of {', '.join(choices)}")
