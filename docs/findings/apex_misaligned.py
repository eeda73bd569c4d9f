"""apex's fast LayerNorm on an x that begins one element past an aligned address, as a slice of a larger buffer may.

Needs an NVIDIA GPU and apex, built from source with fast_layer_norm.
"""

import torch  # isort: skip  # first: it loads the libraries that the extension links to
import fast_layer_norm  # isort: skip

ROWS, COLS, EPS = 8192, 1024, 1e-5
buffer = torch.randn(ROWS * COLS + 1, device="cuda").bfloat16()
weight, bias = torch.ones(COLS, device="cuda").bfloat16(), torch.zeros(COLS, device="cuda").bfloat16()
for offset in (0, 1):
    x = buffer[offset : offset + ROWS * COLS].view(ROWS, COLS)
    try:
        y, mean, rstd = fast_layer_norm.ln_fwd(x, weight, bias, EPS)
        torch.cuda.synchronize()
        print(f"x at an address that is {x.data_ptr() % 16} past a multiple of 16 bytes: done")
    except RuntimeError as error:
        print(f"x at an address that is {x.data_ptr() % 16} past a multiple of 16 bytes: {str(error).splitlines()[0]}")
