"""The kinds of launch: a way to cut a problem into programs, and the sizes that it needs."""

from __future__ import annotations

from dataclasses import dataclass

STAGES = 3  # two buffers: a tile arrives while another is used; with 2 Triton makes one, and nothing overlaps
PART_BYTES = 4096  # of a row, for a program that shares it: 8 words of two elements a thread, 4 warps side by side


@dataclass(frozen=True)
class OnePass:
    """`backward_rows`: tiles of `rows` rows, each `chunks` x `cols` columns, which `programs` programs take in turn."""

    rows: int
    chunks: int
    cols: int
    warps: int
    programs: int
    fold: bool
    packed: bool = False
    maxnreg: int | None = None
    stages: int = STAGES
    fused: bool = False

    @property
    def partials(self) -> int:
        """Rows of partial gradients."""
        return self.programs


@dataclass(frozen=True)
class Shared:
    """`backward_parts`: tiles of `rows` rows, shared by `parts` programs of `cols` columns; `groups` take turns.

    A tile is finished `delay` tiles after its sums were sent out, and of `stages` tiles in shared memory the rest are
    under way. All programs have to be on the device at once:
    `residents` on each multiprocessor, which `maxnreg` registers a thread leave room for.
    """

    rows: int
    parts: int
    groups: int
    delay: int
    residents: int
    maxnreg: int | None = None
    cols: int = PART_BYTES // 2
    warps: int = 4
    stages: int = STAGES
    fused: bool = True

    @property
    def programs(self) -> int:
        """Programs in all."""
        return self.groups * self.parts

    @property
    def partials(self) -> int:
        """Rows of partial gradients."""
        return self.groups


@dataclass(frozen=True)
class TwoPass:
    """`row_sums` in chunks of `sum_cols`; `backward_columns` in tiles of `rows` x `cols`, `groups` a column."""

    rows: int
    cols: int
    warps: int
    groups: int
    sum_cols: int = 4096
    sum_warps: int = 8
    stages: int = STAGES
    fused: bool = False

    @property
    def partials(self) -> int:
        """Rows of partial gradients."""
        return self.groups


@dataclass(frozen=True)
class FewRows:
    """`backward_few`: a program for each row, `chunks` x `row_cols`, and one for every `cols` columns.

    The latter takes `rows` rows at a time.
    """

    rows: int
    cols: int
    chunks: int
    row_cols: int
    warps: int
    stages: int = 1
    maxnreg: int | None = None

    @property
    def fused(self) -> bool:
        """Whether programs wait for each other: none does."""
        return False


Launch = OnePass | Shared | TwoPass | FewRows


def words(launch: Launch) -> str:
    """A launch as a person reads it."""
    if isinstance(launch, OnePass):
        text = f"one pass: {launch.rows} x {launch.chunks * launch.cols}, {launch.warps} warps, "
        text += f"{launch.programs} programs, {launch.stages} stages"
        return text + (", packed" if launch.packed else "")
    if isinstance(launch, Shared):
        text = f"shared: {launch.rows} x {launch.cols} by {launch.parts}, {launch.warps} warps, "
        text += f"{launch.groups} groups, {launch.residents} resident, delay {launch.delay}, {launch.stages} stages"
        return text + (f", {launch.maxnreg} registers" if launch.maxnreg else "")
    if isinstance(launch, FewRows):
        text = f"few rows: rows of {launch.chunks * launch.row_cols} beside {launch.rows} x {launch.cols}, "
        return text + f"{launch.warps} warps, {launch.stages} stages"
    text = f"two passes: {launch.rows} x {launch.cols}, {launch.warps} warps, {launch.groups} groups, "
    return text + f"{launch.stages} stages"
