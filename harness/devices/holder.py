"""A kernel that holds some multiprocessors on a stream of its own, as the one of an all-reduce does."""

from __future__ import annotations

import time
from typing import Any, Literal

import torch

from harness.errors import UnavailableError

STARTED_WITHIN_S = 0.1  # after all that was queued before it; a flush takes a millisecond
MOST_LOOKS = 400_000  # of a program at the word that releases it, a microsecond each: it ends by itself
CALIBRATION_LOOKS = 4000
TIME_WAS_UP = 2  # how a program ended
REGISTERS = (
    24  # of a thread, as in the kernel: other kernels find room beside it, as far as threads and shared memory go
)

# running: every program still holds its multiprocessor; over: all gave up, because their time was up; else: neither.
HolderState = Literal["running", "over", "ended early"]


class Holder:
    """Programs that hold up to `threads` and `shared_kib` of shared memory each, as much as this device lets one have.

    Raises UnavailableError, with the reason, where there is no kernel for that. It is compiled and run once here.
    """

    def __init__(self, threads: int, shared_kib: int) -> None:
        properties: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
        self.multiprocessors = int(properties.multi_processor_count)
        lanes = int(getattr(properties, "warp_size", 32))
        most_bytes = getattr(properties, "shared_memory_per_block_optin", 0) or properties.shared_memory_per_block
        # 1 KiB is left to the launch and to how threads tell each other what one of them saw.
        self.shared_kib = min(shared_kib, int(most_bytes) // 1024 - 1)
        warps = max(1, threads // lanes)
        launched = 1 << (warps.bit_length() - 1)
        # Only since Hopper can a launch have warps beside those of a power of two, which Triton asks for.
        more = warps - launched if not torch.version.hip and properties.major >= 9 else 0
        self.threads = (launched + more) * lanes
        self._launch: dict[str, Any] = {"kib": self.shared_kib, "lanes": lanes, "more": more, "num_warps": launched}
        if more:
            self._launch["maxnreg"] = REGISTERS
        self._stream, self._releasing = torch.cuda.Stream(), torch.cuda.Stream()
        # In the host's memory, where it can look while the device is busy.
        self._started = torch.zeros(self.multiprocessors, dtype=torch.int32).pin_memory()
        self._ended = torch.zeros_like(self._started).pin_memory()
        self._one = torch.ones(1, dtype=torch.int32).pin_memory()
        self._release = torch.zeros(1, dtype=torch.int32, device="cuda")
        self._programs = 0
        self._look_us: dict[int, float] = {}  # by programs: the more look, the longer it takes
        try:
            self._calibrate(1)
        except Exception as error:
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
            raise UnavailableError(f"the kernel that holds multiprocessors cannot run here ({why})") from error

    def occupy(self, programs: int, for_us: float) -> None:
        """Queue so many programs behind what is queued on the current stream; they end by themselves after `for_us`.

        Raises ValueError for fewer than none, or more than there are multiprocessors: each has one word to tell in.
        """
        if not 0 <= programs <= self.multiprocessors:
            raise ValueError(f"cannot hold {programs} of {self.multiprocessors} multiprocessors")
        self.release()
        if programs not in self._look_us:
            self._calibrate(programs)
        self._started.zero_()
        self._ended.zero_()
        self._programs = programs
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._release.zero_()
            self.queue(programs, min(MOST_LOOKS, int(for_us / self._look_us[programs]) + 1))

    def queue(self, programs: int, looks: int, **options: Any) -> None:
        """Queue so many programs on the current stream, which look so many times; `options` are the launch's."""
        from harness.devices.holder_kernel import hold

        kernel: Any = hold
        kernel[(programs,)](self._started, self._ended, self._release, looks, **self._launch, **options)

    def started(self) -> bool:
        """Wait until every program runs; whether that happened in time."""
        flags = self._started[: self._programs].numpy()
        until_s = time.monotonic() + STARTED_WITHIN_S
        while not flags.all():
            if time.monotonic() > until_s:
                return False
        return True

    def state(self) -> HolderState:
        """The state of the programs at this moment: running, over because their time was up, or ended early."""
        ended = self._ended[: self._programs].numpy()
        if not ended.any():
            return "running"
        self._stream.synchronize()  # what the last programs wrote may arrive after the end mark
        return "over" if (ended == TIME_WAS_UP).all() else "ended early"

    def running(self) -> int:
        """How many programs have started so far and have not ended."""
        flags = self._started[: self._programs].numpy(), self._ended[: self._programs].numpy()
        return int((flags[0] != 0).sum() - (flags[1] != 0).sum())

    def release(self) -> None:
        """End the programs, and wait until they have ended; nothing where none was queued."""
        if not self._programs:
            return
        with torch.cuda.stream(self._releasing):
            self._release.copy_(self._one, non_blocking=True)  # a copy needs no multiprocessor
        self._releasing.synchronize()
        self._stream.synchronize()
        self._programs = 0

    def _calibrate(self, programs: int) -> None:
        """Find how long a look takes in us, once the first launch has compiled and loaded the kernel."""
        for _ in range(2):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            with torch.cuda.stream(self._stream):
                self._release.zero_()
                begin.record()
                self.queue(programs, CALIBRATION_LOOKS)
                end.record()
            end.synchronize()
            self._look_us[programs] = begin.elapsed_time(end) * 1e3 / CALIBRATION_LOOKS
