import pytest

from reports.markdown_writer import without_padding
from reports.markdown_writer import write_section as write
from reports.table import Cell, Section, left, table


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["3", "-", "12"], "number"),
        ([Cell("< 1 %", 0.01), "-"], "number"),
        (["1.66e-3", "inf", "nan"], "number"),
        (["3", "not run"], "text"),
        ([Cell("< 1 %", 0.01), "not run"], "text"),
        (["-", "-"], "text"),
    ],
)
def test_column_of_figures_is_sorted_by_figures(cells, kind):
    assert table(["what"], [[cell] for cell in cells]).kinds == (kind,)


def test_faults_are_bold_and_cell_details_left_out():
    found = table(
        left("impl"), [[Cell("wrong", status="wrong", why=("dx is off",))], [Cell("crashed", status="crashed")]]
    )
    _, text = write(Section("outcomes", (found,)))
    assert "| **wrong** |" in text
    assert "| crashed   |" in text
    assert "dx is off" not in text


def test_a_page_without_padding_says_the_same():
    page = "\n".join(
        [
            "A sentence  with | two blanks.",
            "",
            "| impl            |   us | why       |",
            "|:----------------|-----:|-----------|",
            "| fast-llm + torch |  5.1 | a \\| b     |",
            "|                 |   12 |           |",
        ]
    )
    assert without_padding(page).split("\n") == [
        "A sentence  with | two blanks.",
        "",
        "| impl | us | why |",
        "|:---|---:|---|",
        "| fast-llm + torch | 5.1 | a \\| b |",
        "| | 12 | |",
    ]
