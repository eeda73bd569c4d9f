import dataclasses

import pytest

from harness.analysis.comparison import compare
from harness.analysis.verdicts import Loss, Subject, Verdict
from harness.cases import NormCase
from harness.errors import UsageError
from harness.records.reasons import Reason
from harness.records.run_records import ImplRecord, SideRecord
from reports.formats.pull_request import MOST_LINES, render
from reports.parts.answers import fastest
from tests.results_factory import (
    helpers,
    in_processes,
    many,
    mixed,
    results,
    row,
    thorough,
    twin,
    verification,
    verified_only,
)

FILES = {"mixed": mixed, "many": many, "verified_only": verified_only, "thorough": thorough}


def lines(comparison, impl=None):
    return render(comparison, impl).splitlines()


@pytest.mark.parametrize("name", ["mixed", "many", "verified_only", "thorough"])
def test_golden(golden, name):
    golden(f"{name}.pr.md", render(compare(FILES[name]())))


@pytest.mark.parametrize("cases", [1, 30, 36, 37, 38, 39, 40, 300])
def test_at_most_60_lines_and_no_case_is_lost_silently(cases):
    text = lines(compare(many(cases)))
    assert len(text) <= MOST_LINES
    shown = sum(line.startswith(("| rms-", "| layer-")) for line in text)
    left_out = next((int(line.split()[1]) for line in text if line.startswith("… ")), 0)
    assert shown + left_out == cases


def test_a_slower_case_is_never_among_those_left_out():
    text = lines(compare(many(200)))
    assert sum("| slower" in line for line in text) == 1


def test_of_many_failures_none_is_cut_from_the_first_line():
    names = [f"library-{number:03}" for number in range(100)]
    rows = [row(name, 50.0, status="wrong", reason="dx is off") for name in names]
    first = lines(compare(results(row("torch-eager", 90.0), row("quack", 50.0), *rows)), "quack")[0]
    assert [name for name in names if f"{name} wrong on 1" not in first] == []
    assert "fastest" in first


def test_the_subject_can_be_chosen():
    text = render(compare(mixed()), "quack")
    assert text.startswith(
        "quack: right 1 of 2, same bits 1 of 1. Failed: quack wrong on 1. quack is tied for fastest in 1 of 2 cases"
    )
    assert "| wrong |" in " ".join(text.split()).replace("wrong  |", "wrong |")
    with pytest.raises(UsageError, match="--subject can be: "):
        render(compare(mixed()), "nonesuch")


def test_default_subject_is_fastest_with_most_cases():
    rows = [row("torch-eager", 100.0), row("quack", 50.0), row("liger", 40.0), *helpers(100.0, 46.0)]
    assert render(compare(results(*rows))).startswith(
        "liger: right 1 of 1, same bits 1 of 1. liger is fastest in 1 of 1 case on this GPU"
    )


def test_all_of_a_tie_are_named():
    rows = [row("torch-eager", 100.0), row("quack", 50.0), row("liger", 50.1), *helpers(100.0, 46.0)]
    assert fastest(compare(results(*rows)))[0] == "liger, quack are tied for fastest in 1 of 1 case on this GPU."
    assert fastest(compare(results(*rows)), "liger")[0] == "liger is tied for fastest in 1 of 1 case on this GPU."


def test_every_file_of_a_run_is_a_subject():
    rows = [row("torch-eager", 100.0), row("mine", 50.0), row("yours", 40.0, status="wrong", reason="off")]
    file = results(*rows, row("triton-inhouse", 30.0), *helpers(100.0, 46.0))
    added = [ImplRecord(name=name, family=name, source=f"new/{name}.py") for name in ("mine", "yours")]
    more = {"implementations": [*file.run.implementations, *added]}
    more["libraries"] = file.run.libraries | {f"{name}.py": "sha256:0" for name in ("mine", "yours")}
    text = lines(compare(dataclasses.replace(file, run=file.run.model_copy(update=more))))
    assert text[0].startswith("mine: right 1 of 1, same bits 1 of 1. ")
    assert text[2].startswith("yours: right 0 of 1, same bits 0 of 0. ")
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text if line.startswith("| rms-")]
    assert [(cells[1], cells[3], cells[-1]) for cells in table] == [
        ("mine", "54.9", "right, n=50"),
        ("yours", "43.9 (wrong)", "wrong"),
    ]


def test_what_was_not_timed_is_not_called_fastest_in_none():
    untimed = row("triton-inhouse", timed=None, untimed="interpreted on a CPU")
    comparison = compare(results(untimed, row("torch-eager", 100.0), row("quack", 50.0), *helpers(100.0, 46.0)))
    assert render(comparison).startswith(
        "quack: right 1 of 1, same bits 1 of 1. quack is fastest in 1 of 1 case on this GPU"
    )
    found = render(comparison, "triton-inhouse")
    assert found.startswith("triton-inhouse: right 1 of 1, same bits 1 of 1. triton-inhouse was not timed here.")


BASE, HEAD = "mine@base", "mine@head"
NEVER_NOISY = (1.0, 1.0, 1.0)


def compared(heads, rows=1024, noise=NEVER_NOISY):
    """A `compare` run in three processes: base takes 50 us, and each head is a row on a case of its own."""
    measured = []
    for number, of_head in enumerate(heads):
        case = NormCase("rms", rows + number, 4096)
        head = row(HEAD, case=case, **of_head)
        measured += [row(BASE, 50.0, case), head, twin(BASE, 50.0, case, off=0.001, shift=0)]
    bias = {(HEAD, "impl", process): scale for process, scale in enumerate(noise)}
    file = results(*in_processes(*measured, scales=NEVER_NOISY, bias=bias), baseline=BASE, names=(BASE, HEAD))
    sides = [SideRecord(word=word, commit=letter * 40) for word, letter in (("base", "b"), ("head", "c"))]
    run = {"sides": sides, "command": "normbwd compare '--base=HEAD^1' --impls mine"}
    return compare(dataclasses.replace(file, run=file.run.model_copy(update=run)))


def states():
    """Two cases of a head in each state, with what the comment has to say first and in the row of the second case."""
    wrong = {"status": "wrong", "reason": "dx is off by rho 9.1"}
    loose = {"us": 50.0, "status": "nondeterministic", "verification": verification(differing_in=["dweight"])}
    again = "times as fast as base over 2 cases."
    return {
        "good": (
            [{"us": 40.0}] * 2,
            f"right on 2 of 2, same bits on 2 of 2, faster on 2 of 2: 1.250 [1.250, 1.250] {again}",
        ),
        "same": (
            [{"us": 50.0}] * 2,
            f"right on 2 of 2, same bits on 2 of 2, same on 2 of 2: 1.000 [1.000, 1.000] {again}",
        ),
        "slower": (
            [{"us": 50.0}, {"us": 60.0}],
            f"right on 2 of 2, same bits on 2 of 2, slower on 1 of 2, same on 1 of 2: 0.913 [0.913, 0.913] {again}",
        ),
        "wrong": (
            [{"us": 50.0}, wrong],
            "wrong on 1 of 2, right on 1 of 2, same bits on 1 of 1, same on 1 of 2: "
            "1.000 [1.000, 1.000] times as fast as base over 1 case.",
        ),
        "nondeterministic": ([{"us": 50.0}, loose], "other bits on 1 of 2, same on 2 of 2"),
        "crashed": ([{"status": "crashed", "reason": "RuntimeError: x | y"}] * 2, "crashed on 2 of 2."),
        "refuses": ([{"status": "unsupported", "reason": "too wide"}] * 2, "right on 0 of 2, refuses 2 of 2."),
    }


@pytest.mark.parametrize("state", states())
def test_first_line_of_a_head_in_each_state(state):
    heads, says = states()[state]
    text = lines(compared(heads))
    assert text[0].startswith("**mine: ")
    assert text[0].endswith("**")
    assert says in text[0]
    assert text[2] == "Base is commit bbbbbbbbbbbb, head is commit cccccccccccc, on NVIDIA H200."
    assert "compare --impls mine --base bbbbbbbbbbbb --head cccccccccccc`" in "\n".join(text)
    assert any(line.startswith(f"- {HEAD}: ") for line in text) == (state in ("wrong", "crashed"))


def test_a_noisy_head_is_not_called_the_same():
    text = lines(compared([{"us": 50.0}] * 2, noise=(1.0, 1.1, 0.91)))
    assert "same bits on 2 of 2, too noisy to tell on 2 of 2: 1.0 [0.8, 1.3] times as fast" in text[0]
    assert sum("too noisy to tell" in line for line in text if line.startswith("| rms-")) == 2


def test_of_100_cases_all_failures_are_named_and_slower_cases_are_shown():
    heads = [{"us": 50.0}] * 79 + [{"us": 60.0}]
    heads += [{"status": "crashed", "reason": f"RuntimeError: {'x' * 200} {word}"} for word in "abcdefghijklmnopqrst"]
    comparison = compared(heads)
    text = lines(comparison)
    assert len(text) <= MOST_LINES
    assert "crashed on 20 of 100, right on 80 of 100" in text[0]
    failed = " ".join(line for line in text if line.startswith(f"- {HEAD}: "))
    assert [case.case.key for case in comparison.cases[80:] if f"x {case.case.key}" in failed] == []
    assert [case.case.key for case in comparison.cases[80:] if case.case.key not in failed] == []
    shown = [line for line in text if line.startswith("| rms-")]
    assert sum("slower" in line for line in shown) == 1
    assert f"… {100 - len(shown)} more in report: {100 - len(shown)} same" in text


def test_the_memory_of_base_is_shown_where_it_reads_otherwise():
    text = lines(compared([{"us": 50.0, "peak_extra_bytes": (1 << 20) + more} for more in (0, 700, 1 << 20)]))
    memory = [line.split("|")[6].strip() for line in text if line.startswith("| rms-")]
    assert memory == ["1.0 MiB", "1.0 MiB", "2.0 MiB (base 1.0 MiB)"]


def test_a_gate_has_a_line_and_a_column():
    comparison = compared([{"us": 60.0}, {"us": 50.0}, {"status": "wrong", "reason": "off"}])
    slow, same, wrong = (case.case for case in comparison.cases)
    subject, loss = Subject("regression", "", (HEAD, BASE)), Loss(0.83, 0.82, 0.84, 0.02, 0.0, 0.0)
    verdicts = [
        Verdict(subject, slow, "REGRESSED", Reason("slower"), loss=loss),
        Verdict(subject, same, "PASS", Reason("not_slower"), loss=loss),
        Verdict(subject, wrong, "REGRESSED", Reason("text", {"text": "mine@head is wrong: off"})),
        Verdict(subject, None, "INCONCLUSIVE", Reason("maybe_slower_on_the_whole"), loss=loss),
    ]
    text = render(comparison, verdicts=verdicts)
    assert text.splitlines()[2] == (
        "Gate: 1 REGRESSED (slower by more than delta), 1 REGRESSED, "
        "1 INCONCLUSIVE (geomean 0.830 [0.820, 0.840]: may be slower by more than delta on the whole), 1 PASS."
    )
    cells = [[cell.strip() for cell in line.split("|")] for line in text.splitlines() if line.startswith("| rms-")]
    assert [row[6] for row in cells] == ["REGRESSED", "PASS", "REGRESSED"]
    assert text.count("off") == 1
