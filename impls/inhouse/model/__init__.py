"""`rms_norm` and `layer_norm` for a model: a forward beside the in-house backward, under autograd and torch.compile.

    >>> from impls.inhouse.model import layer_norm, rms_norm
    >>> y = rms_norm(x, weight, 1e-6)  # x (..., cols) in bf16, fp16 or fp32
    >>> y = layer_norm(x, weight, bias, 1e-5)

For the norms of a model that is not to be changed there is `in_torch.as_torchs_backward`.
examples/training_step.py trains a small transformer with them.
"""

from .norms import layer_norm, rms_norm

__all__ = ["layer_norm", "rms_norm"]
