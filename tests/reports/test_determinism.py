import pytest

from harness.analysis.checks import join_verifications
from harness.cases import NormCase
from reports.labels import determinism, same_bits
from reports.markdown_writer import write_section as write
from reports.parts.determinism import bound, bound_text, in_short, level, section
from tests.results_factory import CASE, LAYER, outcomes, results, row, under, verification

SMALL = NormCase("rms", 512, 1024)


def render(found):
    return write(section(found))


def found(*verifications, cases=(CASE, SMALL, LAYER)):
    """Outcomes of one implementation, a case a verification."""
    rows = [
        row("quack", case=case, status="nondeterministic" if each.differing else "ok", verification=each)
        for case, each in zip(cases, verifications, strict=False)
    ]
    return outcomes([results(*rows, timed=False)])


def cells(outcomes_found, line=0):
    """The cells of one line of the section's first table."""
    table = render(outcomes_found)[2].splitlines()
    heads, *lines = ([cell.strip() for cell in each.split("|")[1:-1]] for each in (table[0], *table[2:]))
    return dict(zip(heads, lines[line], strict=True))


def test_rule_of_three_bounds_the_probability():
    """No change in n comparisons bounds the probability of a change by 3 / n."""
    assert bound(299) == pytest.approx(3 / 299)
    assert bound(3) is None
    assert [bound_text(runs - 1) for runs in (2, 50, 300, 3000)] == ["-", "< 6.1 %", "< 1 %", "< 0.10 %"]


def test_a_process_that_ran_once_adds_no_repetition():
    once = [verification(repeats=300, fingerprint="aa"), verification(repeats=1, fingerprint="aa")]
    checked = join_verifications(once)
    assert (checked.repeats, checked.compared, determinism(checked)) == (300, 299, "same bits in 300 runs")
    assert determinism(join_verifications([verification(repeats=1)])) == "not checked"


def test_other_bits_in_a_new_process_are_told():
    prints = [verification(repeats=300, fingerprint=each) for each in ("aa", "bb", "aa")]
    checked = join_verifications(prints)
    assert (checked.moved, determinism(checked), same_bits(checked)) == (
        True,
        "other bits in a new process",
        "no, new process",
    )
    assert level([checked]) == "nondeterministic (other bits in a new process)"
    assert not join_verifications(prints[::2]).moved
    rows = [row("quack", verification=each, process=process) for process, each in enumerate(prints)]
    line = cells(outcomes([results(*rows, timed=False)]))
    assert (line["determinism"], line["new process"], line["a run differs, 95 %"]) == (
        "nondeterministic (other bits in a new process)",
        "1 of 2 differ",
        "-",
    )


def test_cases_of_one_level_stand_in_one_line():
    mixed = found(verification(repeats=3000), verification(SMALL, repeats=300), cases=(CASE, SMALL))
    assert [cells(mixed, line)["determinism"] for line in (0, 1)] == ["same bits in 3000 runs", "same bits in 300 runs"]
    assert cells(mixed, 1)["a run differs, 95 %"] == "< 1 %"
    assert in_short(mixed) == "same bits in 3000 runs on 1 of 2 cases; at 95 % fewer than 0.10 % of runs differ"
    spoilt = found(verification(repeats=3000), verification(SMALL, differing_in=["dx"]), cases=(CASE, SMALL))
    assert in_short(spoilt) == "nondeterministic (2 of 50 differ, in dx) on 1 of 2 cases"


def test_conditions_are_counted_over_their_cases():
    conditions = under(runs=50, graph="it allocates while it is captured, which is more than this column has room for")
    twice = found(
        verification(repeats=300, conditions=conditions), verification(SMALL, repeats=300, conditions=under(runs=20))
    )
    line = cells(twice)
    assert (line["cases"], line["side stream"], line["graph replay"]) == ("2", "same (70)", "same (20), not run on 1")
    alone = cells(found(verification(repeats=300, conditions=conditions)))
    assert alone["graph replay"] == "not run: it allocates while it is captured, whic…"
    assert cells(found(verification()))["busy device"] == "not run"


def test_invariance_is_told_as_it_was_found():
    same, other = ({"dx of half the batch": text} for text in ("same bits", "other bits"))
    alike = render(found(verification(invariance=same), verification(SMALL, invariance=same)))[-1]
    assert alike.splitlines()[-1].endswith("same bits |")
    mixed = render(found(verification(invariance=same), verification(SMALL, invariance=other)))[-1]
    assert "same bits in 1, other bits in 1" in mixed
    assert not any("half the batch" in part for part in render(found(verification())))


def test_what_failed_is_not_called_deterministic():
    wrong = row("quack", status="wrong", verification=verification(repeats=300))
    assert section(outcomes([results(wrong, timed=False)])) is None
