"""The project's own LayerNorm and RMSNorm backward in Triton: entry, kernels, launch choice; docs/kernel.md explains it."""
