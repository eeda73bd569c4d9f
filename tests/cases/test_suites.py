import subprocess
import sys

import pytest

from harness.cases.suites import NORMS, cases_of, parse_dtype, parse_norms, parse_shapes
from harness.errors import UsageError


def test_needs_no_torch():
    program = "import sys, harness.cases.suites, harness.devices; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("8192x4096,1024x1024", [(8192, 4096), (1024, 1024)]),
        ("8192X4096", [(8192, 4096)]),
        (" 8192 x 4096 , 1x1 ", [(8192, 4096), (1, 1)]),
        ("2x3,4x5,2x3,2X3", [(2, 3), (4, 5)]),
    ],
)
def test_parse_shapes(text, shapes):
    assert list(parse_shapes(text)) == shapes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--shapes is empty; give ROWSxCOLS, such as --shapes 8192x4096,1024x1024"),
        (" ", "--shapes is empty; give ROWSxCOLS, such as --shapes 8192x4096,1024x1024"),
        *(
            (text, f"--shapes: {text!r} is not a shape; write ROWSxCOLS, such as 8192x4096")
            for text in ("8192", "axb", "-2x3", "1x2x3", "²x2")
        ),
        ("0x1", "--shapes: '0x1' is empty; rows and cols are at least 1, such as 8192x4096"),
        ("1x0", "--shapes: '1x0' is empty; rows and cols are at least 1, such as 8192x4096"),
        ("1x1,", "--shapes has an empty shape between commas; remove the comma, or write ROWSxCOLS there"),
    ],
)
def test_parse_shapes_says_what_is_wrong(text, message):
    with pytest.raises(UsageError) as error:
        parse_shapes(text)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda: parse_norms("rms,batch"), "--norm batch: not one of rms, layer"),
        (lambda: parse_norms(""), "--norm (empty): not one of rms, layer"),
        (lambda: parse_dtype("int8"), "--dtype int8: not one of bf16, fp16, fp32"),
        (lambda: parse_dtype("fp8", "--weight-dtype"), "--weight-dtype fp8: not one of bf16, fp16, fp32"),
    ],
)
def test_unknown_norms_and_dtypes_name_the_choices(read, message):
    with pytest.raises(UsageError) as error:
        read()
    assert str(error.value) == message


def test_cases_go_norm_by_norm_and_rms_has_no_bias():
    cases = cases_of([(4, 8), (2, 3)], NORMS)
    assert [case.key for case in cases] == ["rms-4x8-bf16", "rms-2x3-bf16", "layer-4x8-bf16", "layer-2x3-bf16"]
    assert [case.bias for case in cases] == [False, False, True, True]
