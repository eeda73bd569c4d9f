"""What documents say of the verification of every library is so in its published file."""

import re
from functools import cache
from pathlib import Path

import pytest

from harness.analysis.outcomes import outcomes
from tests.published_files import load

ROOT = Path(__file__).parent.parent
NORMS = ("rms", "layer")
USUAL, LARGE, WIDE = "8192x1024", "65537x32768", "512x65536"
NAMES = {
    "torch": ("torch-eager", "torch-compiled"),
    "apex": ("apex-fast", "apex-fused"),
    "Fast-LLM": ("fast-llm",),
    "FLA": ("fla",),
    "FlagGems": ("flag-gems",),
    "Helion": ("helion",),
    "Liger": ("liger",),
    "Mamba": ("mamba",),
    "Oink": ("oink",),
    "TileGym": ("tilegym",),
    "Transformer Engine": ("transformer-engine",),
    "cuDNN": ("cudnn",),
}
LISTED = re.compile(
    "(torch-compiled|triton-inhouse|apex-fast|apex-fused|flash-attn-cuda|flash-attn-triton|"
    "quack-fused-sum|quack|transformer-engine-rocm|"
    f"{'|'.join(sorted(NAMES, key=len, reverse=True))})(?:'s (RMSNorm|LayerNorm))?"
)


def published():
    return load("verify-peers")


@cache
def found():
    """Each outcome: by implementation, norm, and the kind of inputs, or the shape of the usual ones."""
    return {(outcome.impl, outcome.case.norm, where_of(outcome.case)): outcome for outcome in outcomes([published()])}


def where_of(case):
    return f"{case.rows}x{case.cols}" if case.inputs == "normal" else case.inputs


def with_status(status, where):
    """Who has a status somewhere, and in which norm; a norm that is never taken counts as none."""
    taken = {key[:2] for key, outcome in found().items() if key[2] == USUAL and outcome.status != "unsupported"}
    return {key[:2] for key, outcome in found().items() if key[2] == where and outcome.status == status} & taken


def classes(impl, norm, where):
    """Those of the gradients that are not exact."""
    outcome = found()[impl, norm, where]
    return {name: error.error_class for name, error in outcome.checked.errors.items() if error.error_class != "exact"}


@cache
def text_of(page):
    return " ".join((ROOT / page).read_text("utf-8").replace("**", "").split())


def said(pattern, page="docs/verification.md"):
    """The one place of a page where a pattern is."""
    places = re.findall(pattern, text_of(page))
    assert len(places) == 1, pattern
    return places[0]


def listed(text):
    """The implementations that a list in plain words names, each with the norm that is named or all that it takes."""
    assert not LISTED.sub("", text).replace(", and ", "").replace(" and ", "").replace(", ", "").strip(), text
    return {
        (impl, norm)
        for name, only in LISTED.findall(text)
        for impl in NAMES.get(name, (name,))
        for norm in NORMS
        if (impl, norm, USUAL) in found() and only in ("", {"rms": "RMSNorm", "layer": "LayerNorm"}[norm])
        if found()[impl, norm, USUAL].status != "unsupported"
    }


def exact(*without):
    """Who is exact wherever it answers, and fails nowhere, but for some places."""
    failing = {
        key[:2]
        for key, outcome in found().items()
        if key[2] not in without and (outcome.status not in ("ok", "nondeterministic", "unsupported") or classes(*key))
    }
    both = {impl for impl, _ in failing}
    return {key for key in with_status("ok", USUAL) | with_status("nondeterministic", USUAL) if key[0] not in both}


def test_page_counts_the_implementations_and_no_row_is_missing():
    assert said(r"in bf16 over (\d+) implementations") == str(len({impl for impl, _, _ in found()}))
    norm_and_where = {key[1:] for key in found()}
    assert {(impl, *place) for impl, _, _ in found() for place in norm_and_where} == found().keys()
    later = {(row.impl, row.case.norm) for row in published().rows if row.process}
    assert {key[:2] for key in found()} == later


def test_page_names_who_is_exact():
    everywhere, up_to, oink = re.search(
        r"- (quack, [^.]*) are `exact` on everything that they take\. So are, up to 2\^31 elements, (.*), and (Oink) ",
        text_of("docs/verification.md"),
    ).groups()
    apart = listed("torch-compiled, triton-inhouse")
    assert listed(everywhere) == exact() - apart
    assert listed(up_to) == exact(LARGE) - exact()
    assert listed(oink) == exact(LARGE, WIDE) - exact(LARGE)
    assert with_status("crashed", WIDE) == {("oink", "rms")}
    assert apart <= exact()


def test_page_names_who_flushes_subnormal_numbers():
    flushing = {
        key[:2]
        for key in found()
        if all("flushes subnormals" in classes(*key[:2], f"subnormal-{name}").values() for name in ("x", "dy"))
    }
    assert listed(said(r"- ([^-]*-attn-cuda) flush subnormal numbers to zero, of x and of dy\.")) == flushing
    assert flushing <= exact(LARGE, "misaligned", "subnormal-x", "subnormal-dy")


def test_page_names_who_does_what_beyond_2_31_elements():
    right = listed(said(r"More than 2\^31 elements: ([^.]*) are right\."))
    assert right == with_status("ok", LARGE)
    wrong = {*listed("apex-fused, FlagGems, TileGym's LayerNorm")}
    assert wrong == with_status("wrong", LARGE)
    assert said(r"(apex-fused gives wrong sums and, in RMSNorm, a wrong row of dx .*, and FlagGems wrong sums)\.")
    for impl, norm in wrong:
        reason = found()[impl, norm, LARGE].reason
        assert ("dweight" in reason) == (impl != "tilegym")
        assert ("a row of dx" in reason) == (
            (impl, norm) != ("flag-gems", "rms") and (impl, norm) != ("apex-fused", "layer")
        )
    no_memory = {key for key in with_status("crashed", LARGE) if "llegal" in found()[*key, LARGE].reason}
    assert listed(said(r"wrong sums\. ([^.]*) access memory that is not there\.")) == no_memory
    assert with_status("crashed", LARGE) - no_memory == {("oink", "rms")}
    assert {key for key in with_status("unsupported", LARGE) if "no engine" in found()[*key, LARGE].reason} == listed(
        said(r"not there\. (\w+) has\s+no engine\.")
    )


def test_page_names_who_takes_what_is_misaligned():
    crash, refuse = re.search(
        r"misaligned x or dy: ([^;]*) end in a CUDA error, [^;]*; ([^;]*) refuse; to the others it makes no difference",
        text_of("docs/verification.md"),
    ).groups()
    assert listed(crash) == with_status("crashed", "misaligned")
    assert listed(refuse) == with_status("unsupported", "misaligned")
    for key in {key[:2] for key in found()} - listed(crash) - listed(refuse):
        assert classes(*key, "misaligned") == classes(*key, USUAL), key
        assert (key in with_status("wrong", "misaligned")) == (key in with_status("wrong", USUAL)), key


def test_page_names_who_keeps_bits():
    assert not any(row.verification.differing for row in published().rows if row.verification)
    moved = {key for key, outcome in found().items() if outcome.status == "nondeterministic"}
    assert moved == {(impl, norm, USUAL) for impl, norm in listed("FLA's LayerNorm, Mamba's LayerNorm")}
    assert said(r"the (LayerNorms of FLA and Mamba gave other bits of dx)")
    for impl, norm, _ in moved:
        prints = {
            row.verification.fingerprint.partition("-")[2]
            for row in published().rows
            if (row.impl, row.case.norm, where_of(row.case)) == (impl, norm, USUAL)
        }
        assert len(prints) == 1, "dweight and dbias keep their bits"
    of_half = {
        key[:2]
        for key, outcome in found().items()
        if any(text != "same bits" for text in outcome.checked.invariance.get("dx of half the batch", ()))
    }
    assert listed(said(r"When the batch is halved, (.*?) give other bits of dx")) == of_half


def test_page_names_who_is_wrong_where():
    """But for more than 2^31 elements."""
    wrong = {}
    for (impl, norm, where), outcome in found().items():
        if outcome.status == "wrong" and where != LARGE:
            wrong.setdefault((impl, norm), set()).add(where)
    mostly = {key: wrong.pop(key) for key in listed("FlagGems's LayerNorm, TileGym's LayerNorm")}
    always = {"correlated", "zero-weights", "tiny-weights", "subnormal-dy"}
    assert wrong == {
        ("fast-llm", "rms"): always | {"2048x1"},
        ("fast-llm", "layer"): always | {"large-bias", "small-x"},
        ("helion", "rms"): {"large-x", "2048x515", "2048x1025", "2048x1028"},
        ("liger", "rms"): {"subnormal-dy"},
    }
    assert said(r"Fast-LLM keeps y, .*? (where a weight is 0 or tiny, or dy correlated with xhat or subnormal, in)")
    assert said(r"in (LayerNorm also where the bias is large or x small, and in RMSNorm of one column)")
    assert said(r"here ((?:\d+, )+\d+ and \d+|\d+, \d+ and \d+) ") == "515, 1025 and 1028"
    for (impl, norm), places in mostly.items():
        assert len(places) > 30
        assert USUAL in places
        without_dx = {where for where in places if "dx" not in found()[impl, norm, where].reason}
        assert without_dx == {"subnormal-x"}
        in_dweight = {where for where in places if "dweight" in found()[impl, norm, where].reason}
        assert in_dweight == {"mean-10", "mean-100", "subnormal-x"}
    assert with_status("crashed", "0x1024") == listed("Liger's LayerNorm")


def test_page_says_what_roundings_cost_on_the_usual_inputs():
    inexact = {key[:2]: classes(*key) for key in found() if key[2] == USUAL and classes(*key)}
    assert {
        key: of for key, of in inexact.items() if key not in listed("FlagGems's LayerNorm, TileGym's LayerNorm")
    } == {
        ("fast-llm", "rms"): {"dweight": "two"},
        ("fast-llm", "layer"): {"dweight": "two", "dbias": "one extra rounding"},
        ("liger", "rms"): {"dweight": "two"},
    }
    eager = {key for key in found() if key[0] == "torch-eager" and classes(*key)}
    assert eager == {("torch-eager", norm, "65537x1024") for norm in NORMS}
    assert not any(classes(*key) for key in found() if key[:2] in {("helion", "layer"), ("liger", "layer")})


@pytest.mark.parametrize(
    ("pattern", "impl", "norm", "where", "gradient"),
    [
        (r"its dx was off by ([\d.]+) roundings", "helion", "rms", "large-x", "dx"),
        (r"also at 1025, by ([\d.]+), and", "helion", "rms", "2048x1025", "dx"),
        (r"and at 515, by ([\d.]+) \(", "helion", "rms", "2048x515", "dx"),
        (r"LayerNorm's dweight is then off by ([\d.]+) roundings", "fast-llm", "layer", "large-bias", "dweight"),
        (r"roundings and dx by ([\d.]+) \(\[verification", "fast-llm", "layer", "large-bias", "dx"),
        (r"of both norms is off by ([\d.]+) roundings for a subnormal", "fast-llm", "rms", "subnormal-dy", "dweight"),
        (r"of both norms is off by ([\d.]+) roundings for a subnormal", "fast-llm", "layer", "subnormal-dy", "dweight"),
    ],
)
def test_findings_have_the_roundings_of_the_file(pattern, impl, norm, where, gradient):
    rho = said(pattern, "docs/findings/README.md")
    assert f"{gradient} is off by rho {rho}" in re.split(r", | \(", found()[impl, norm, where].reason)
