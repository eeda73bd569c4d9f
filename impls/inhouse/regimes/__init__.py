"""The regimes of the in-house kernel, a file each, with the kernel beside it; choice.py lists them and picks one."""
