"""Triton reads this when it is imported: its kernels run in the interpreter here, on a CPU."""

import os

os.environ["TRITON_INTERPRET"] = "1"
