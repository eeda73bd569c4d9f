from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t

from harness.analysis.joining import by_case
from harness.gate import failures
from harness.gate.judge import judge
from harness.gate.limits import Limits
from harness.gate.variance_shrinkage import FEWEST_CASES, shrunk_variances
from harness.records.file import load
from tests.simulated_runs import (
    ALIKE,
    EVEN,
    H200,
    Shape,
    asked,
    biases,
    confirmed,
    deviations,
    judged,
    medians,
    results_of,
)

RUNS = 2000
UNLIKE = Path("results/h200/fast-llm.jsonl.bz2")
COPIES = Path("results/h200/compare-comment-only.jsonl.bz2")
BASE_COPY = "triton-inhouse@base"
PROCESSES = 5
ON_ONE_GPU = 4  # the fifth process of UNLIKE was measured by another, too


def share(found):
    return float(np.mean(found))


def read(path):
    """What was read of each case, implementation and role, in us, block by block: an array a process."""
    return {
        (case, impl, role): [np.array(timing.samples_us) for timing in joined.timings]
        for case, of in by_case(load(path)).items()
        for (impl, role), joined in of.items()
        if role in ("impl", "again") and len(joined.timings) == PROCESSES
    }


@pytest.fixture(scope="module")
def published():
    """Of each case and implementation, without those of torch.compile, whose code each process chooses anew."""
    return {
        (case, impl): times
        for (case, impl, role), times in read(UNLIKE).items()
        if role == "impl" and not impl.startswith("torch-compiled")
    }


def log_ratios(published, base, *impls):
    """The log ratios of implementations over one, block by block, of every case: an array a process."""
    return [
        [np.log(one / other) for one, other in zip(published[case, base], times, strict=True)]
        for (case, impl), times in published.items()
        if (impl in impls if impls else impl != base) and (case, base) in published
    ]


def between_processes(cells):
    return np.array([np.std([np.median(logs) for logs in cell], ddof=1) for cell in cells])


def simulated(noise, blocks):
    shape = Shape(processes=PROCESSES, blocks=blocks)
    head, _ = medians(np.random.default_rng(0), 2000, shape=shape, noise=noise)
    return head.std(axis=2, ddof=1)


def test_the_noise_is_that_of_the_published_run_or_a_little_more(published):
    cells = log_ratios(published, "torch-eager")
    assert len(cells) == 468
    assert np.median([logs.std() for cell in cells for logs in cell]) == pytest.approx(H200.block, rel=0.1)
    neighbours = [np.corrcoef(logs[1:], logs[:-1])[0, 1] for cell in cells for logs in cell]
    assert abs(np.median(neighbours)) < 0.05  # blocks of a process are as good as independent
    seen, ours = between_processes(cells), simulated(H200, len(cells[0][0]))
    assert 1.0 < np.median(ours) / np.median(seen) < 1.2
    assert 1.0 < np.sqrt((ours**2).mean() / (seen**2).mean()) < 1.2


def test_two_that_compile_to_the_same_kernel_scatter_less():
    """Head, which differs by a comment, and base's second copy, both over base."""
    times = read(COPIES)
    cells = [
        [np.log(one / other) for one, other in zip(times[case, BASE_COPY, "impl"], copy, strict=True)]
        for (case, impl, role), copy in times.items()
        if (impl, role) != (BASE_COPY, "impl")
    ]
    assert len(cells) == 12
    ours = simulated(ALIKE, len(cells[0][0]))
    assert np.median(ours) == pytest.approx(np.median(between_processes(cells)), rel=0.2)


def of_the_mean(cells):
    """The variance between processes of the mean over cells, and what it were if the cells were independent."""
    off, count = cells - cells.mean(axis=-1, keepdims=True), cells.shape[-2]
    return (off.mean(axis=-2) ** 2).sum(axis=-1).mean(), (off**2).sum(axis=(-2, -1)).mean() / count**2


def test_cases_share_a_part_of_the_bias_of_their_process(published):
    """All pairs of implementations that have all thirty cases: the mean over them scatters more than thirty coins."""
    impls = [impl for impl in {impl for _, impl in published} if sum(impl == of for _, of in published) == 30]
    pairs = [log_ratios(published, base, impl) for base in impls for impl in impls if impl < base]
    seen = np.array([[[np.median(logs) for logs in cell] for cell in cells] for cells in pairs])
    head, _ = medians(np.random.default_rng(0), 2000, shape=Shape(cells=30, processes=PROCESSES, blocks=60))
    observed, independent = of_the_mean(seen)
    simulated, alone = of_the_mean(head)
    assert observed / independent == pytest.approx(simulated / alone, rel=0.25)
    assert simulated / alone > 1.5


@pytest.mark.parametrize("noise", [H200, EVEN], ids=["uneven", "even"])
def test_false_alarms_are_below_2_percent(noise):
    rng = np.random.default_rng(1)
    for processes in (1, 3, 5, 10):
        assert share(judged(*medians(rng, RUNS, shape=Shape(processes=processes), noise=noise)).any_regressed) < 0.02


@pytest.mark.parametrize("noise", [H200, EVEN], ids=["uneven", "even"])
def test_5_percent_loss_in_one_of_60_cases_is_found(noise):
    """The power is above 95 %."""
    rng = np.random.default_rng(2)
    assert share(judged(*medians(rng, RUNS, np.log1p(0.05), noise=noise)).regressed[:, 0]) > 0.95


def short_kernels(rng, processes=5, planted=0.0, everywhere=False):
    """Runs in which every fourth cell scatters five times as much as the others, as kernels of a few us do."""
    shape = Shape(processes=processes)
    between = np.where(NOISIER, 5.0, 1.0) * deviations(rng, RUNS, shape)
    return medians(rng, RUNS, planted, shape, everywhere=everywhere, between=between)


NOISIER = np.arange(60) % 4 == 3


def test_power_where_case_variances_differ():
    """Where the variances of the cases differ, false alarms are a little more frequent and more losses are found."""
    none, lost = (short_kernels(np.random.default_rng(1), planted=np.log1p(by)) for by in (0.0, 0.03))
    assert share(judged(*none, alone=True).any_regressed) < share(judged(*none).any_regressed) < 0.015
    assert share(judged(*short_kernels(np.random.default_rng(1), 10)).any_regressed) < 0.01
    assert share(judged(*short_kernels(np.random.default_rng(1), 3)).any_regressed) < 0.035
    assert share(judged(*lost, alone=True).regressed[:, 0]) < 0.55 < 0.65 < share(judged(*lost).regressed[:, 0])


def test_loss_of_delta_passes_in_5_percent():
    """Where the variances of the cases differ, 5 % is the average over the cases."""
    delta = short_kernels(np.random.default_rng(3), planted=np.log1p(0.01), everywhere=True)
    passed = judged(*delta).passed
    assert share(passed) < 0.055
    assert share(passed[:, NOISIER]) < 0.09
    assert share(judged(*delta, alone=True).passed[:, NOISIER]) < 0.055


@pytest.mark.parametrize("noise", [H200, EVEN], ids=["uneven", "even"])
@pytest.mark.parametrize("cells", [1, 2, 5, 20])
def test_in_a_run_of_fewer_cells_it_is_the_same(cells, noise):
    none, lost = (
        judged(*medians(np.random.default_rng(seed), RUNS, np.log1p(by), Shape(cells=cells), noise))
        for seed, by in ((1, 0.0), (2, 0.05))
    )
    assert share(none.any_regressed) < 0.02
    assert share(lost.regressed[:, 0]) > 0.95


def test_shrinkage_leaves_fewer_verdicts_inconclusive():
    """By a third, and more losses are found."""
    none, lost = (medians(np.random.default_rng(5), RUNS, np.log1p(by)) for by in (0.0, 0.02))
    assert share(judged(*none).open) < 0.67 * share(judged(*none, alone=True).open)
    assert share(judged(*lost, alone=True).regressed[:, 0]) < 0.16 < 0.25 < share(judged(*lost).regressed[:, 0])


def test_the_scatter_found_so_foretells_a_published_process(published):
    """The fourth process is as far from the other three as their scatter says, shrunk towards that of other cases."""
    ps = []
    for impl, base in combinations(sorted({impl for _, impl in published}), 2):
        cells = log_ratios(published, base, impl)
        found = np.array([[np.median(logs) for logs in cell[:ON_ONE_GPU]] for cell in cells])
        for left_out in range(ON_ONE_GPU) if len(cells) >= FEWEST_CASES else ():
            others = np.delete(found, left_out, axis=1)
            variances, freedom = shrunk_variances(others.var(axis=1, ddof=1), ON_ONE_GPU - 2)
            off = found[:, left_out] - others.mean(axis=1)
            ps.append(2 * t.sf(np.abs(off) / np.sqrt(ON_ONE_GPU / (ON_ONE_GPU - 1) * variances), freedom))
    ps = np.concatenate(ps)
    assert len(ps) > 2000
    assert [share(ps <= level) < 1.1 * level for level in (0.1, 0.05, 0.02, 0.01, 0.002)] == [True] * 5


@pytest.mark.parametrize("processes", [1, 3, 5])
def test_confirmation_adds_no_false_alarms(processes):
    rng = np.random.default_rng(1)
    between, shape = deviations(rng, RUNS), Shape(processes=processes)
    first = judged(*medians(rng, RUNS, shape=shape, between=between))
    both = confirmed(first, *medians(rng, RUNS, between=between))
    assert (both.any_regressed <= first.any_regressed).all()
    assert share(both.any_regressed) < 0.001
    assert processes > 1 or share(first.any_regressed) > 0.002


def test_confirmation_separates_delta_from_5_percent():
    """A loss of delta is seldom confirmed, a loss of 5 % nearly always."""
    for planted, everywhere in ((0.01, True), (0.05, False)):
        rng = np.random.default_rng(3)
        between = deviations(rng, RUNS)
        first, again = (medians(rng, RUNS, np.log1p(planted), everywhere=everywhere, between=between) for _ in "12")
        once = judged(*first)
        both = confirmed(once, *again)
        if everywhere:
            assert share(both.regressed.any(axis=1)) < 0.01 < 0.03 < share(once.regressed.any(axis=1))
        else:
            assert share(both.regressed[:, 0]) > 0.97


def test_false_discovery_rate_is_as_promised():
    """The worst case of the error that the gate controls: no cell has lost more than it may, and all have lost that."""
    rng = np.random.default_rng(3)
    found = judged(*medians(rng, RUNS, np.log1p(0.01), noise=H200, everywhere=True))
    assert share(found.regressed.any(axis=1)) < 0.06


@pytest.mark.parametrize(("noise", "of_beyond", "of_twice"), [(H200, 0.5, 0.94), (ALIKE, 0.999, 0.999)])
def test_a_small_loss_everywhere_is_found_by_the_mean_alone(noise, of_beyond, of_twice):
    rng = np.random.default_rng(4)
    allowed, beyond, twice = (
        judged(*medians(rng, RUNS, np.log1p(by), noise=noise, everywhere=True)) for by in (0.005, 0.0075, 0.01)
    )
    assert share(allowed.mean_regressed) < 0.06
    assert share(beyond.mean_regressed) > of_beyond
    assert share(beyond.regressed.any(axis=1)) < 0.02
    assert share(twice.mean_regressed) > of_twice


def test_what_is_counted_here_is_what_the_gate_says():
    """Three runs of bare medians, judged by the gate and on arrays."""
    shape = Shape(blocks=8)
    for seed, planted in enumerate((0.0, 0.02, 0.05)):
        head, twin = medians(np.random.default_rng(seed), 1, planted, shape)
        found = judged(head, twin)
        *cells, mean = judge(results_of(head[0], twin[0], shape=shape), Limits(regression=[asked()]))
        assert [verdict.outcome == "REGRESSED" for verdict in cells] == found.regressed[0].tolist()
        assert [verdict.outcome == "PASS" for verdict in cells] == found.passed[0].tolist()
        assert (mean.outcome == "REGRESSED") == found.mean_regressed[0]


def test_what_is_counted_as_confirmed_is_what_the_gate_says():
    shape, rng = Shape(blocks=8), np.random.default_rng(7)
    between = deviations(rng, 1, shape)
    first, again = (medians(rng, 1, shape=shape, between=between) for _ in "12")
    first[0][:, :4] -= np.log1p(0.05)
    again[0][:, :2] -= np.log1p(0.05)
    limits = Limits(regression=[asked()])
    verdicts = judge(results_of(first[0][0], first[1][0], shape=shape), limits)
    *cells, mean = failures.confirmed(verdicts, limits, results_of(again[0][0], again[1][0], shape=shape))
    found = confirmed(judged(*first), *again)
    assert [verdict.outcome == "REGRESSED" for verdict in cells] == found.regressed[0].tolist()
    assert found.regressed[0][:4].tolist() == [True, True, False, False]
    assert [verdict.outcome for verdict in cells[2:4]] == ["INCONCLUSIVE"] * 2
    assert (mean.outcome == "REGRESSED") == found.mean_regressed[0]


@pytest.mark.parametrize(("seed", "planted"), [(0, 0.0), (1, 0.0), (2, 0.05)])
def test_whole_runs_block_by_block(seed, planted):
    rng = np.random.default_rng(seed)
    head, twin = biases(rng)
    head[0] -= planted
    first, *others = judge(results_of(head, twin, rng), Limits(regression=[asked()]))
    assert first.outcome == ("REGRESSED" if planted else "PASS")
    assert "REGRESSED" not in {verdict.outcome for verdict in others}
    assert first.loss.speedup == pytest.approx(np.exp(-planted), rel=0.01)
