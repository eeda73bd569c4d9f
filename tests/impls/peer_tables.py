"""What each implementation of another library takes, by hand, and the cases that tests run with it."""

from __future__ import annotations

import dataclasses

from harness.cases import NormCase
from harness.cases.variants import parse_variants, with_features
from tests.cases.test_unfused import COMBINED
from tests.impls.peer_cases import FAST, LAYER, RMS

WIDE_RMS = dataclasses.replace(RMS, cols=64)  # the least that quack's tuner takes
CHANGES = {  # of a plain case
    "plain": {},
    "no weight": {"weight": False, "bias": False},
    "zero-centred": {"zero_centred": True},
    "bf16 x": {"dtype": "bf16"},
    "all bf16": {"dtype": "bf16", "weight_dtype": "bf16"},
    "no bias": {"bias": False},
}
SUPPORTED = {  # + where LayerNorm, and RMSNorm, takes the plain case with each of these changes
    "torch-eager": ("++--++", "++--+"),
    "liger": ("+--+++", "+++++"),
    "liger-gemma": ("------", "+++++"),
    "liger-triton": ("+--+++", "+++++"),
    "liger-cutedsl": ("+--+++", "+++++"),
    "quack": ("+--+++", "+++++"),
    "quack-compiled": ("+--+++", "+++++"),
    "quack-tuned": ("+--+++", "+++++"),
    "quack-per-head": ("------", "-----"),  # of heads alone
    "quack-fused-sum": ("------", "+--++"),
    "apex-fused": ("++--+-", "++--+"),
    "apex-fused-mem": ("++--+-", "++--+"),
    "apex-fast": ("+---+-", "-----"),
    "apex-fast-mem": ("+---+-", "-----"),
    "cudnn": ("++-+++", "+---+"),
    "fast-llm": ("+-+++-", "+++++"),
    "fla": ("++-+++", "++-++"),
    "flag-gems": ("++-+++", "+---+"),
    "flash-attn-cuda": ("+--+++", "+--++"),
    "flash-attn-triton": ("+-++++", "+-+++"),
    "helion": ("+--+++", "+--++"),
    "helion-tuned": ("+--+++", "+--++"),
    "mamba": ("+--+++", "+--++"),
    "oink": ("+--+++", "++-++"),
    "tilegym": ("+--+++", "+++++"),
    "transformer-engine": ("+-+-+-", "+-+-+"),
    "transformer-engine-rocm": ("+-+-+-", "+-+-+"),
}
BOTH, RMS_ALONE = ("rms", "layer"), ("rms",)
PARALLEL = "residual parallel parallel-tied parallel+residual"
GATED = "gated gated-norm-first"
VARIANTS = {  # that each has itself: of which norms, and without a weight
    "fla": (BOTH, f"residual {GATED} gated-norm-first+residual", "residual gated-norm-first gated-norm-first+residual"),
    "flash-attn-cuda": (BOTH, f"{PARALLEL} dropout dropout+parallel dropout+parallel-tied", ""),
    "flash-attn-triton": (BOTH, PARALLEL, ""),
    "mamba": (BOTH, f"{PARALLEL} {GATED}", ""),
    "oink": (RMS_ALONE, "residual", "residual"),
    **dict.fromkeys(("quack", "quack-compiled", "quack-tuned"), (RMS_ALONE, "residual", "residual")),
    "quack-per-head": (RMS_ALONE, "qk qk+residual", "qk qk+residual"),
    **dict.fromkeys(("liger", "liger-gemma", "liger-triton", "liger-cutedsl"), (RMS_ALONE, "residual", "")),
    "tilegym": (RMS_ALONE, "residual", ""),
    "transformer-engine": (RMS_ALONE, "residual", ""),
}
TEXTS = [*COMBINED, "qk+residual", "gated+residual", "gated-norm-first+residual"]
OF_HEADS = {  # two tokens of 20 heads
    "rms": dataclasses.replace(WIDE_RMS, rows=40),
    "layer": dataclasses.replace(LAYER, rows=40, cols=64),
}


def plain_cases(name: str) -> list[tuple[NormCase, bool]]:
    """Every plain case, and whether an implementation takes it."""
    return [
        (dataclasses.replace(base, **change), mark == "+")
        for base, marks in zip((FAST, WIDE_RMS), SUPPORTED[name], strict=True)
        for change, mark in zip(CHANGES.values(), marks, strict=False)
    ]


def variant_cases(name: str) -> list[tuple[NormCase, bool]]:
    """Every variant, also without a weight and with a zero-centred one, and whether an implementation has it itself."""
    norms, usual, without_weight = VARIANTS.get(name, ((), "", ""))
    zero_centred = usual if SUPPORTED[name][1][2] == "+" or name == "quack-per-head" else ""
    texts = {"plain": usual, "no weight": without_weight, "zero-centred": zero_centred}
    return [
        (
            with_features(dataclasses.replace(OF_HEADS[norm], **CHANGES[change]), parse_variants(text)[0]),
            norm in norms and text in taken.split(),
        )
        for norm in BOTH
        for text in TEXTS
        for change, taken in texts.items()
    ]
