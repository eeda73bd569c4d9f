"""What commands take where no implementation is named; no other module of harness or reports names one."""

OWN_IMPL = "triton-inhouse"  # the kernel of this repository: what `tune` tunes and a pull request is about
OWN_FILES = ("impls/triton_inhouse.py", "impls/inhouse")  # its version is what these hold
BASELINE = "torch-eager"  # what speedups are over
