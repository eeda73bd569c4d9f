"""A small transformer trained twice, with torch's norms and with the in-house ones: the losses, and what a step takes.

    python -m pip install -e .                                    # once, in a clone of this project
    python examples/training_step.py                              # on a GPU: 4 layers of 4096, 8192 tokens a step
    python examples/training_step.py --norm layer --cols 8192
    python examples/training_step.py --compile                    # the model compiled whole
    python examples/training_step.py --beside 8                   # a kernel holds 8 multiprocessors during the backward
    TRITON_INTERPRET=1 python examples/training_step.py --device cpu --cols 64 --tokens 64 --layers 1 --steps 3

A norm of the model adds what comes out of a layer to the residual, and normalises the sum. With torch's these are two
operators, whose backward adds gradients; with the in-house ones a single one.
Prints the loss of each step for both; on a GPU also the time of a step from begin to end, alone and beside another
kernel, with steps of both models in turn; and by the profiler the device time of a step that is the backward of norms,
for torch without the additions. The other kernel stands for an all-reduce of gradients: it begins with the backward and
lasts, for both models, as long as the slower backward takes alone. A step beside which it did not hold what it was to
hold does not count.
Where nothing is to be installed, `python -m examples.training_step` in the clone does the same.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median, quantiles

import torch
from torch import Tensor, nn
from torch.autograd import DeviceType
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu
from torch.profiler import ProfilerActivity, profile

from impls.inhouse.model import layer_norm, rms_norm

VOCABULARY = 1024
SEQUENCE = 512
TIMED_STEPS = 20  # of each model
PROFILED_STEPS = 5
# What the profiler calls the backward of a norm: autograd's nodes of torch's own, and this project's node and operator.
NORM_BACKWARDS = ("NativeLayerNormBackward0", "FusedRmsNormBackward0", "_EagerNormBackward", "normbwd::norm_backward")
HOLDER_THREADS, HOLDER_KIB = 640, 200  # of each program that holds a multiprocessor, as in `bench --context beside:8`


class TorchNorm(nn.Module):
    """The addition of a residual, and torch's norm of the sum."""

    def __init__(self, cols: int, *, layer: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(cols) if layer else nn.RMSNorm(cols, eps=1e-5)

    def forward(self, x: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the norm of x + residual, both `(..., cols)`, and that sum, the next residual."""
        total = x if residual is None else x + residual
        return self.norm(total), total


class InhouseNorm(nn.Module):
    """The same in one kernel forward, and in one backward."""

    def __init__(self, cols: int, *, layer: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(cols))
        self.bias = nn.Parameter(torch.zeros(cols)) if layer else None

    def forward(self, x: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the norm of x + residual, both `(..., cols)`, and that sum, the next residual."""
        if self.bias is None:
            return rms_norm(x, self.weight, 1e-5, residual=residual, return_residual=True)
        return layer_norm(x, self.weight, self.bias, 1e-5, residual=residual, return_residual=True)


def heads_of(cols: int) -> int:
    """The heads of attention: of 128 columns each, as far as there are so many."""
    return max(1, cols // 128)


class Block(nn.Module):
    """Attention and a gated feed-forward part, each behind a norm; what either gives, the next norm adds."""

    def __init__(self, cols: int, norm: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.heads = heads_of(cols)
        self.norms = nn.ModuleList([norm(), norm()])
        self.qkv = nn.Linear(cols, 3 * cols, bias=False)
        self.out = nn.Linear(cols, cols, bias=False)
        self.up = nn.Linear(cols, 4 * cols, bias=False)
        self.down = nn.Linear(2 * cols, cols, bias=False)

    def forward(self, x: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        """One block on what the last one adds to the residual, both `(batch, sequence, cols)`."""
        batch, sequence, cols = x.shape
        y, total = self.norms[0](x, residual)
        qkv = self.qkv(y).view(batch, sequence, 3, self.heads, cols // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = scaled_dot_product_attention(q, k, v, is_causal=True)
        y, total = self.norms[1](self.out(attended.transpose(1, 2).reshape(batch, sequence, cols)), total)
        gate, value = self.up(y).chunk(2, -1)
        return self.down(silu(gate) * value), total


class Model(nn.Module):
    """Embedding, blocks, a last norm and the logits."""

    def __init__(self, cols: int, layers: int, norm: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, cols)
        self.blocks = nn.ModuleList([Block(cols, norm) for _ in range(layers)])
        self.norm = norm()
        self.logits = nn.Linear(cols, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of tokens `(batch, sequence)`."""
        x, residual = self.embedding(tokens), None
        for block in self.blocks:
            x, residual = block(x, residual)
        return self.logits(self.norm(x, residual)[0])


def main(arguments: Sequence[str] | None = None) -> None:
    """Train both, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--norm", choices=("rms", "layer"), default="rms")
    parser.add_argument("--cols", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=8192, help="a step; rows of every norm")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--compile", action="store_true", help="compile the model with torch.compile")
    parser.add_argument(
        "--beside",
        type=int,
        default=0,
        metavar="K",
        help="also time steps while another kernel holds K multiprocessors",
    )
    options = parser.parse_args(arguments)
    for fault in faults_of(options):
        parser.error(fault)
    norms = {"torch": TorchNorm, "in-house": InhouseNorm}
    steps = {
        name: Step(options, partial(norm, options.cols, layer=options.norm == "layer")) for name, norm in norms.items()
    }
    losses = {name: [float(step()) for _ in range(options.steps)] for name, step in steps.items()}
    print("step  loss with torch's norms  with the in-house ones  difference")
    for number, (theirs, ours) in enumerate(zip(losses["torch"], losses["in-house"], strict=True)):
        print(f"{number:4d}  {theirs:23.5f}  {ours:22.5f}  {ours - theirs:+10.5f}")
    if options.device == "cpu":
        return
    alone = time_steps(steps)
    print_steps("alone", alone)
    if options.beside:
        other = Other(options.beside, max(median(times.backward_us) for times in alone.values()))
        print_steps(
            f"beside a kernel on {options.beside} multiprocessors for {other.lasts_us:.0f} us", time_steps(steps, other)
        )
    print_norms({name: profile_step(step) for name, step in steps.items()})


def faults_of(options: argparse.Namespace) -> Iterator[str]:
    """Why this cannot be trained or timed here, with how to mend it."""
    for name in ("cols", "tokens", "layers", "steps"):
        if (number := getattr(options, name)) < 1:
            yield f"--{name} {number}: must be at least 1"
    if options.cols % heads_of(options.cols):
        yield f"--cols {options.cols}: does not divide into heads; give a multiple of 128"
    if options.tokens % min(SEQUENCE, options.tokens):
        yield f"--tokens {options.tokens}: does not divide into sequences; give a multiple of {SEQUENCE}, or fewer"
    yield from (faults_on_a_cpu if options.device == "cpu" else faults_on_a_gpu)(options)


def faults_on_a_cpu(options: argparse.Namespace) -> Iterator[str]:
    """The same for what a CPU alone cannot do."""
    if options.beside:
        yield "--beside holds multiprocessors of a GPU; leave it out on a CPU"
    if os.environ.get("TRITON_INTERPRET") != "1":
        small = "--cols 64 --tokens 64 --layers 1 --steps 3"
        yield f"a CPU needs Triton's interpreter; set TRITON_INTERPRET=1, and train a small model: {small}"


def faults_on_a_gpu(options: argparse.Namespace) -> Iterator[str]:
    """The same for a GPU."""
    there = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    if options.device not in ("cuda", *there) or not there:
        yield f"--device {options.device}: not here; give one of {', '.join(['cpu', *there])}"
    multiprocessors = torch.cuda.get_device_properties(options.device).multi_processor_count
    if not 0 <= options.beside < multiprocessors:
        yield f"--beside {options.beside}: must leave one of {multiprocessors} multiprocessors free"


@dataclass
class Times:
    """What each step took in us, from begin to end and in its backward; how many more steps do not count."""

    step_us: list[float] = field(default_factory=list[float])
    backward_us: list[float] = field(default_factory=list[float])
    void: int = 0


class Other:
    """Another kernel, which holds so many multiprocessors for the same time beside every backward."""

    def __init__(self, multiprocessors: int, lasts_us: float) -> None:
        from harness.devices.holder import Holder

        self.lasts_us = lasts_us
        self._multiprocessors = multiprocessors
        self._holder = Holder(HOLDER_THREADS, HOLDER_KIB)
        self.begin()  # compiled and calibrated here, and not within a step
        self._holder.release()

    def begin(self) -> None:
        """Queue it behind what is queued."""
        self._holder.occupy(self._multiprocessors, self.lasts_us)

    def held(self) -> bool:
        """After the step: whether all its programs started and held their multiprocessors until their time was up."""
        return self._holder.started() and self._holder.state() == "over"


def time_steps(steps: Mapping[str, Step], other: Other | None = None) -> dict[str, Times]:
    """Time steps of both models in turn, in an order that is drawn anew each time, so that both see the same device."""
    order, rng = list(steps), random.Random(0)
    times = {name: Times() for name in steps}
    for _ in range(TIMED_STEPS):
        rng.shuffle(order)
        for name in order:
            step_us, backward_us = steps[name].timed_us(other.begin if other else lambda: None)
            if other and not other.held():
                times[name].void += 1
                continue
            times[name].step_us.append(step_us)
            times[name].backward_us.append(backward_us)
    return times


def print_steps(where: str, times: Mapping[str, Times]) -> None:
    """Print what a step takes with each kind of norm, and the ratio of both."""
    for name, taken in times.items():
        void = (
            f" ({taken.void} of {TIMED_STEPS} steps do not count: the other kernel did not hold)" if taken.void else ""
        )
        if taken.step_us:
            print(f"{name}, {where}: a step takes {median(taken.step_us):.0f} us, {spread(taken.step_us)}{void}")
        else:
            print(f"{name}, {where}: no time{void}")
    theirs, ours = times["torch"].step_us, times["in-house"].step_us
    if theirs and ours:
        print(f"{where}: with torch's norms a step takes {median(theirs) / median(ours):.3f} times as long")


def spread(times_us: Sequence[float]) -> str:
    """Between which times half of them lie."""
    low, _, high = quantiles(times_us, n=4) if len(times_us) > 1 else (times_us[0],) * 3
    return f"half of them {low:.0f} to {high:.0f}"


def print_norms(profiled: Mapping[str, tuple[float, float]]) -> None:
    """Print the device time of the norms' backward, and of all kernels, in us a step."""
    for name, (norms_us, kernels_us) in profiled.items():
        share = f"{norms_us:.0f} us" if norms_us else "fused into other kernels,"
        print(f"{name}: backward of norms {share} of {kernels_us:.0f} us on the device, a step")
    theirs, ours = profiled["torch"][0], profiled["in-house"][0]
    if theirs and ours:
        print(f"torch's backward of norms takes {theirs / ours:.2f} times as long")


class Step:
    """One step of training."""

    def __init__(self, options: argparse.Namespace, norm: Callable[[], nn.Module]) -> None:
        torch.manual_seed(0)
        dtype = torch.bfloat16 if options.device != "cpu" else torch.float32
        model = Model(options.cols, options.layers, norm).to(options.device, dtype)
        self.model = torch.compile(model) if options.compile else model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        sequence = min(SEQUENCE, options.tokens)
        generator = torch.Generator().manual_seed(1)
        # Sums of random walks: something that can be learnt.
        steps = torch.randint(0, 3, (options.tokens // sequence, sequence + 1), generator=generator)
        self.tokens = (steps.cumsum(1) % VOCABULARY).to(options.device)

    def __call__(self, mark: Callable[[], object] = lambda: None) -> Tensor:
        """Train once; `mark` is called at the begin and the end, and around the backward."""
        mark()
        tokens = self.tokens
        loss = cross_entropy(self.model(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten())
        self.optimizer.zero_grad()
        mark()
        loss.backward()
        mark()
        self.optimizer.step()
        mark()
        return loss.detach()

    def timed_us(self, beside: Callable[[], object]) -> tuple[float, float]:
        """What one step took and what its backward took, in us; `beside` is called as the backward begins."""
        events: list[torch.cuda.Event] = []

        def mark() -> None:
            if len(events) == 1:
                beside()
            events.append(torch.cuda.Event(enable_timing=True))
            events[-1].record()

        self(mark)
        torch.cuda.synchronize()
        begin, backward, after, end = events
        return begin.elapsed_time(end) * 1e3, backward.elapsed_time(after) * 1e3


def profile_step(step: Step) -> tuple[float, float]:
    """By the profiler, the device's time for the backward of norms and for all kernels, in us a step."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for _ in range(PROFILED_STEPS):
            step()
        torch.cuda.synchronize()
    averages = profiler.key_averages()
    norms_us = sum(row.device_time_total for row in averages if row.key in NORM_BACKWARDS)
    # Kernels alone: a call on the host holds the time of its kernels a second time.
    kernels_us = sum(row.self_device_time_total for row in averages if row.device_type == DeviceType.CUDA)
    return norms_us / PROFILED_STEPS, kernels_us / PROFILED_STEPS


if __name__ == "__main__":
    main()
