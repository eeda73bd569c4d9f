"""Logs in the words of compute-sanitizer, and what is read in them."""

import pytest

from harness.sanitizer.log import Finding, read_log
from tests.wording import worded

CLEAN = """\
========= COMPUTE-SANITIZER
========= ERROR SUMMARY: 0 errors
"""

INVALID_WRITE = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 2 bytes
=========     at backward_rows+0x1d20 in kernels.py:143
=========     by thread (96,0,0) in block (8,0,0)
=========     Access to 0x7f1e4fa10a10 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f1e4fa00000 of size 68,112 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: launch [0x2a5f] in __triton_launcher.so
=========         Host Frame: _PyEval_EvalFrameDefault [0x143a9] in python3
=========
========= Invalid __global__ write of size 2 bytes
=========     at backward_rows+0x1d20 in kernels.py:143
=========     by thread (97,0,0) in block (8,0,0)
=========     Access to 0x7f1e4fa10a12 is out of bounds
=========     and is 3 bytes after the nearest allocation at 0x7f1e4fa00000 of size 68,112 bytes
=========
========= Target application returned an error
========= ERROR SUMMARY: 2064 errors
========= ERROR SUMMARY: 2044 errors were not printed. Use --print-limit option to adjust the number of printed errors
"""

RACES = """\
========= COMPUTE-SANITIZER
========= Warning: Race reported between Write access at warp_sums(float *)+0x550 in sums.cu:100
=========     and Read access at warp_sums(float *)+0x580 in sums.cu:107 [64 hazards]
=========
========= Error: Race reported between Write access at ln_bwd(float *, int)+0xb0 in ln.cu:28
=========     and Write access at ln_bwd(float *, int)+0xb0 in ln.cu:28 [34 hazards]
=========     and Read access at ln_bwd(float *, int)+0xc0 in ln.cu:30 [1024 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (256 errors, 1 warning)
"""

DIVERGED = """\
========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in block.
=========     at backward_rows+0x5a0 in kernels.py:143
=========     by thread (0,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 32 errors
"""

NO_RACES = """\
========= COMPUTE-SANITIZER
========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)
"""

UNINITIALISED = """\
========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at finish+0x130 in kernels.py:201
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x7f3c7ec000fc
=========
========= ERROR SUMMARY: 257 errors
========= ERROR SUMMARY: 237 errors were not printed. Use --print-limit option to adjust the number of printed errors
"""

REFUSED = """\
========= COMPUTE-SANITIZER
========= Error: Device not supported. Please refer to the "Supported Devices" section of the sanitizer documentation
=========
========= Target application returned an error
========= ERROR SUMMARY: 1 error
"""

UNTRACKED = """\
========= COMPUTE-SANITIZER
========= Internal Sanitizer Error: The Sanitizer encountered an error while launching ln_bwd and \
didn't track the launch. Errors might go undetected. (Unable to allocate \
enough memory to perform the requested operation)
=========
========= ERROR SUMMARY: 0 errors
"""

NO_CUDA = """\
========= COMPUTE-SANITIZER
========= Error: Target application terminated before first instrumented API call
========= Tracking kernels launched by child processes requires the --target-processes all option.
"""


@pytest.mark.parametrize("text", [CLEAN, NO_RACES])
def test_nothing_was_found(text):
    assert read_log(text) == Finding(0)


@pytest.mark.parametrize(
    ("text", "errors", "detail"),
    [
        (INVALID_WRITE, 2064, "Invalid __global__ write of size 2 bytes at backward_rows+0x1d20 in kernels.py:143"),
        (UNINITIALISED, 257, "Uninitialized __global__ memory read of size 4 bytes at finish+0x130 in kernels.py:201"),
        (
            DIVERGED,
            32,
            "Barrier error detected. Divergent thread(s) in block. at backward_rows+0x5a0 in kernels.py:143",
        ),
    ],
    ids=["write", "uninitialised", "diverged"],
)
def test_errors_are_counted_and_the_first_is_shown(text, errors, detail):
    finding = read_log(text)
    assert (finding.errors, worded(finding.detail)) == (errors, detail)


def test_race_has_all_places_and_warnings():
    finding = read_log(RACES)
    assert (finding.errors, worded(finding.detail)) == (
        256,
        "Race reported between Write access at ln_bwd(float *, int)+0xb0 in ln.cu:28 "
        "and Write access at ln_bwd(float *, int)+0xb0 in ln.cu:28 [34 hazards] "
        "and Read access at ln_bwd(float *, int)+0xc0 in ln.cu:30 [1024 hazards]; "
        "1 warning: Race reported between Write access at warp_sums(float *)+0x550 in sums.cu:100 "
        "and Read access at warp_sums(float *)+0x580 in sums.cu:107 [64 hazards]",
    )


@pytest.mark.parametrize(
    ("text", "beginning"),
    [
        (REFUSED, "Device not supported. Please refer to"),
        (UNTRACKED, "Internal Sanitizer Error: The Sanitizer encountered an error while launching ln_bwd"),
        (NO_CUDA, "Target application terminated before first instrumented API call Tracking kernels"),
    ],
    ids=["device", "memory", "no CUDA"],
)
def test_a_tool_that_failed_proves_nothing(text, beginning):
    finding = read_log(text)
    assert finding.errors is None
    assert worded(finding.detail).startswith(beginning)


@pytest.mark.parametrize("text", ["", "========= COMPUTE-SANITIZER\n", "Segmentation fault\n"])
def test_log_without_summary(text):
    assert read_log(text) is None
