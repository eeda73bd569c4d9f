"""The project's own LayerNorm and RMSNorm backward in Triton; docs/kernel.md tells its story."""
