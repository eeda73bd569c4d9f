"""One norm backward to compute: which norm, shape, dtypes and inputs.

Importable without torch, so that a plan or a report needs none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from harness.cases.input_kinds import INPUT_KINDS

if TYPE_CHECKING:
    import torch

Norm = Literal["rms", "layer"]
Dtype = Literal["bf16", "fp16", "fp32"]
DeviceKind = Literal["cuda", "cpu"]  # torch's device type: an AMD GPU is "cuda" too
Stored = Literal[Dtype, "uint8"]  # what a tensor of a case may hold: a mask is bytes

ITEM_BYTES: dict[Stored, int] = {"bf16": 2, "fp16": 2, "fp32": 4, "uint8": 1}


@dataclass(frozen=True)
class NormCase:
    """One norm backward to compute: which norm, which shape, which dtypes, on which kind of device.

    `dtype` is that of x, dy and dx; `weight_dtype` that of weight, bias and their gradients. With `zero_centred` the
    norm multiplies by (1 + weight).

    `features` is what it has beyond a plain norm; `harness.cases.variants` names those that are known. With `dropout`
    an element is dropped with probability `dropout_p`. With `qk` the rows are `heads` of each token, a slice of a
    projection that is `projection` columns wide. Raises ValueError for a combination that is no norm.
    """

    norm: Norm
    rows: int
    cols: int
    dtype: Dtype = "bf16"
    weight_dtype: Dtype = "bf16"
    weight: bool = True
    bias: bool = False
    zero_centred: bool = False
    eps: float = 1e-5
    device: DeviceKind = "cuda"
    inputs: str = "normal"  # what the numbers are and how they lie in memory: a name in input_kinds.py
    features: tuple[str, ...] = ()  # an adapter declares those that it `handles`
    dropout_p: float = 0.0
    heads: int = 0
    projection: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", tuple(sorted(set(self.features))))
        if self.inputs not in INPUT_KINDS:
            raise ValueError(f"no inputs are called {self.inputs!r}")
        if self.rows < 0 or self.cols < 1:
            raise ValueError(f"a case needs rows >= 0 and cols >= 1, not {self.rows} x {self.cols}")
        if self.bias and (self.norm == "rms" or not self.weight):
            raise ValueError("only a LayerNorm with a weight has a bias")
        if self.zero_centred and not self.weight:
            raise ValueError("a zero-centred weight needs a weight")
        self._check_features()

    @property
    def key(self) -> str:
        """A short unique name, such as `rms-8192x4096-bf16`: what differs from the usual case is appended."""
        parts = [self.norm, f"{self.rows}x{self.cols}", self.dtype]
        if self.weight and self.weight_dtype != self.dtype:
            parts.append(f"w{self.weight_dtype}")
        if not self.weight:
            parts.append("noweight")
        elif self.norm == "layer" and not self.bias:
            parts.append("nobias")
        if self.zero_centred:
            parts.append("zerocentred")
        if self.eps != 1e-5:
            parts.append(f"eps{self.eps!r}")
        if self.inputs != "normal":
            parts.append(self.inputs)
        figures = {"dropout": f"{self.dropout_p:g}", "qk": f"{self.heads}of{self.projection}"}
        parts += [feature + figures.get(feature, "") for feature in self.features]
        return "-".join(parts)

    @property
    def gate_first(self) -> bool:
        """Whether what is normalised is x * silu(z)."""
        return "gated" in self.features

    def _check_features(self) -> None:
        has = set(self.features)
        if ("dropout" in has) != (0 < self.dropout_p < 1):
            raise ValueError("dropout needs a probability above 0 and below 1, and nothing else has one")
        if ("qk" in has) != (self.heads > 0):
            raise ValueError("qk needs a number of heads, and nothing else has one")
        if self.heads and (self.rows % self.heads or self.projection < self.heads * self.cols):
            raise ValueError("the rows of qk are whole tokens, and their heads fit into the projection")
        if has & {"dropout", "parallel-tied"} and "residual" not in has:
            raise ValueError("dropout and parallel-tied add to a residual")
        for one, other in (("parallel", "parallel-tied"), ("gated", "gated-norm-first")):
            if {one, other} <= has:
                raise ValueError(f"{one} and {other} exclude each other")


def torch_dtype(dtype: Stored) -> torch.dtype:
    """The torch dtype of a name."""
    import torch

    return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "uint8": torch.uint8}[dtype]
