import dataclasses

import pytest

from harness.analysis.comparison import compare
from harness.errors import UsageError
from harness.records.run_records import ImplRecord
from reports.formats.pull_request import MOST_LINES, render
from tests.results_factory import helpers, many, mixed, results, row, thorough, verified_only

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
        "quack: right 1 of 2, same bits 1 of 1. Failed: quack wrong on 1. quack is fastest in 0 of 2"
    )
    assert "| wrong |" in " ".join(text.split()).replace("wrong  |", "wrong |")
    with pytest.raises(UsageError, match="--subject can be: "):
        render(compare(mixed()), "nonesuch")


def test_default_subject_is_fastest_with_most_cases():
    rows = [row("torch-eager", 100.0), row("quack", 50.0), row("liger", 40.0), *helpers(100.0, 46.0)]
    assert render(compare(results(*rows))).startswith(
        "liger: right 1 of 1, same bits 1 of 1. liger is fastest in 1 of 1 case"
    )


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
        ("yours", "wrong", "wrong"),
    ]


def test_what_was_not_timed_is_not_called_fastest_in_none():
    untimed = row("triton-inhouse", timed=None, untimed="interpreted on a CPU")
    comparison = compare(results(untimed, row("torch-eager", 100.0), row("quack", 50.0), *helpers(100.0, 46.0)))
    assert render(comparison).startswith("quack: right 1 of 1, same bits 1 of 1. quack is fastest in 1 of 1 case")
    found = render(comparison, "triton-inhouse")
    assert found.startswith("triton-inhouse: right 1 of 1, same bits 1 of 1. triton-inhouse was not timed here.")
