"""What a model has around a norm: the features of a case beyond the plain one, and the reading of `--variant`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from harness.cases.case import Norm, NormCase
from harness.errors import UsageError, name_hint

PLAIN = "plain"

# By feature: what its backward does beyond the plain one, whose gradient of x is J(dy).
FEATURES: dict[str, str] = {
    "residual": "x goes on as the next residual, whose gradient is added: dx = J(dy) + dres",
    "dropout": "x = residual + mask * branch / (1 - p): dx as with a residual, dbranch = mask * dx / (1 - p)",
    "parallel": "two norms of one x: dx = J(dy * weight + dy1 * weight1), the gradients of both norms' parameters",
    "parallel-tied": "x = residual + two branches, one norm: dx as with a residual; with dropout each has its mask",
    "qk": "the rows are heads of a slice of a projection, so that x has two row strides",
    "gated": "y = norm(x * silu(z)): dz as well",
    "gated-norm-first": "y = norm(x) * silu(z): dz as well",
    "frozen": "no parameter has a gradient: dx alone, and what else has rows (--gradients dx)",
}
PARAMETERS = ("no weight", "zero-centred weight")  # of a plain norm, where they are not the usual ones
IMPLIED = {"dropout": "residual", "parallel-tied": "residual"}

USUAL_SHAPE = (8192, 4096)
USUAL_P = 0.1
MOST_HEADS = 32  # of a token, where only rows are known
OF_ALL_HEADS = 2 / 3  # that are queries, where keys and values lie beside them: 32 of 48 in Qwen3 8B


def parse_variants(text: str) -> list[tuple[str, ...]]:
    """Read `plain,residual,parallel+residual` into the features of each variant; raises UsageError."""
    return list(dict.fromkeys(_parse_variant(part.strip().lower()) for part in text.split(",")))


def _parse_variant(text: str) -> tuple[str, ...]:
    features = [feature.strip() for feature in text.split("+")]
    for feature in features:
        if feature not in (PLAIN, *FEATURES):
            hint = name_hint(feature, (PLAIN, *FEATURES))
            raise UsageError(f"--variant {feature or '(empty)'}: no variant is called so; {hint}")
    return with_implied(feature for feature in features if feature != PLAIN)


def with_implied(features: Iterable[str]) -> tuple[str, ...]:
    """Features with those that come with them."""
    named = set(features)
    return tuple(sorted(named | {IMPLIED[feature] for feature in named if feature in IMPLIED}))


def needs(case: NormCase) -> frozenset[str]:
    """What a case asks of an implementation beyond a plain norm with a weight; parameters go with each feature."""
    unusual = [name for name, is_set in zip(PARAMETERS, (not case.weight, case.zero_centred), strict=True) if is_set]
    with_each = [f"{name}, {feature}" for name in unusual for feature in case.features]
    return frozenset([*case.features, *(with_each if case.features else unusual)])


def probes(norm: Norm, features: Collection[str]) -> list[NormCase]:
    """Cases of a usual shape: a plain one, one with each feature, and each of these with unusual parameters."""
    plain = NormCase(norm, *USUAL_SHAPE, bias=norm == "layer")
    usual = [plain, *(with_features(plain, with_implied([feature])) for feature in sorted(features))]
    return [
        each
        for case in usual
        for each in (case, replace(case, weight=False, bias=False), replace(case, zero_centred=True))
    ]


def with_weight(case: NormCase) -> NormCase:
    """A case with a weight, and in LayerNorm a bias, as it is multiplied: the weight itself, not 1 + weight."""
    return replace(case, weight=True, bias=case.bias or (not case.weight and case.norm == "layer"), zero_centred=False)


def with_features(case: NormCase, features: Collection[str]) -> NormCase:
    """A case with these features, in place of those that it has; raises UsageError for some that exclude each other.

    Dropout has the usual p, and qk as many heads as fit the rows, beside half as many of keys and values.
    """
    heads = next(n for n in range(MOST_HEADS, 0, -1) if case.rows % n == 0) if "qk" in features else 0
    try:
        return replace(
            case,
            features=tuple(features),
            dropout_p=USUAL_P if "dropout" in features else 0.0,
            heads=heads,
            projection=round(heads / OF_ALL_HEADS) * case.cols,
        )
    except ValueError as error:
        raise UsageError(f"--variant {'+'.join(features)}: {error}") from error


def without(case: NormCase, features: Collection[str]) -> NormCase:
    """A case without these features."""
    left = tuple(feature for feature in case.features if feature not in features)
    return replace(
        case,
        features=left,
        dropout_p=case.dropout_p if "dropout" in left else 0.0,
        heads=case.heads if "qk" in left else 0,
        projection=case.projection if "qk" in left else 0,
    )
