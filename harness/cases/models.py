"""The norms of models that people train: which backwards one training step calls, and how often.

The figures are those of each model's public config.json: num_hidden_layers and hidden_size, and of queries and keys the
numbers of heads, which are 128 wide. Assumed: as many rows as the step has tokens, no tensor
parallelism, no recomputation; activations and weights in one dtype, the residual stream too; queries, keys and values
of one projection wherever queries and keys are normalised before their rotation, so that their heads are a slice of it.
A norm whose x goes on as the residual is a `residual`; the last norm, and one of a branch alone, are plain. An
embedding that is normalised is plain too. eps is the usual one of this project, since no time depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.cases.case import NormCase

TOKENS = (8192, 32768)  # of one step


@dataclass(frozen=True)
class NormCall:
    """One norm of a model, and how often a step calls its backward: `rows` of each token, `cols` wide.

    With a `projection`, of that many columns, the rows are heads of a slice of it.
    """

    times: int
    cols: int
    features: tuple[str, ...] = ()
    rows: int = 1
    projection: int = 0
    weight: bool = True
    zero_centred: bool = False

    def case(self, tokens: int) -> NormCase:
        """The case that this norm is, in bf16 on a GPU."""
        return NormCase(
            "rms",
            tokens * self.rows,
            self.cols,
            weight=self.weight,
            zero_centred=self.zero_centred,
            features=(*self.features, *(("qk",) if self.projection else ())),
            heads=self.rows if self.projection else 0,
            projection=self.projection,
        )


@dataclass(frozen=True)
class Model:
    """A model's norms; `source` has its configuration."""

    name: str
    source: str
    calls: tuple[NormCall, ...]


def _residuals(
    layers: int, cols: int, *, each: int = 2, plain: int = 1, weight: bool = True, zero_centred: bool = False
) -> tuple[NormCall, ...]:
    """The norms of the residual stream: `each` of a layer with a residual, and `plain` ones without."""
    first = NormCall(each * layers, cols, ("residual",), weight=weight, zero_centred=zero_centred)
    return first, replace(first, times=plain, features=())


def _heads(layers: int, queries: int, keys: int, *, zero_centred: bool = False) -> tuple[NormCall, ...]:
    """The norms of queries and keys, 128 wide, of a projection that holds keys and as many values beside them."""
    first = NormCall(layers, 128, rows=queries, projection=(queries + 2 * keys) * 128, zero_centred=zero_centred)
    return first, replace(first, rows=keys)


MODELS: tuple[Model, ...] = (
    Model("Llama 3 8B", "meta-llama/Meta-Llama-3-8B", _residuals(32, 4096)),
    Model("Llama 3 70B", "meta-llama/Meta-Llama-3-70B", _residuals(80, 8192)),
    Model("Qwen3 8B", "Qwen/Qwen3-8B", _residuals(36, 4096) + _heads(36, 32, 8)),
    Model("Qwen3 235B", "Qwen/Qwen3-235B-A22B", _residuals(94, 4096) + _heads(94, 64, 4)),
    # Before and after attention, before and after the MLP: those after are of a branch alone. All are zero-centred.
    Model(
        "Gemma 3 27B",
        "google/gemma-3-27b-pt",
        _residuals(62, 5376, plain=2 * 62 + 1, zero_centred=True) + _heads(62, 32, 16, zero_centred=True),
    ),
    # Queries and keys have latents that are normalised; that of the keys is a slice, beside 64 rotary columns. The
    # layer that predicts further tokens (num_nextn_predict_layers) is left out.
    Model(
        "DeepSeek-V3",
        "deepseek-ai/DeepSeek-V3",
        (*_residuals(61, 7168), NormCall(61, 1536), NormCall(61, 512, projection=512 + 64)),
    ),
    Model("gpt-oss 120B", "openai/gpt-oss-120b", _residuals(36, 2880)),
    # No norm has a weight. The embedding is normalised as well; queries and keys are so after their rotation, which
    # leaves them contiguous.
    Model(
        "nanochat d20",
        "karpathy/nanochat nanochat/gpt.py, depth 20",
        (*_residuals(20, 1280, plain=2, weight=False), NormCall(2 * 20, 128, rows=10, weight=False)),
    ),
    # x of the gated norm is the output of the scan; z, a slice of the input projection, is taken as contiguous.
    Model(
        "Mamba2 2.7B",
        "state-spaces/mamba2-2.7b; mamba_ssm/modules/mamba2.py: norm_before_gate False",
        (*_residuals(64, 2560, each=1), NormCall(64, 2 * 2560, ("gated",))),
    ),
)


def cases_of_models() -> tuple[NormCase, ...]:
    """Each case that a step of any model has, once, by number of tokens."""
    cases = (call.case(tokens) for tokens in TOKENS for model in MODELS for call in model.calls)
    return tuple(dict.fromkeys(cases))
