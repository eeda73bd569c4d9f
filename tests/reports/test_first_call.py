from reports import render
from tests.results_factory import gateable, helpers, row


def test_first_calls_are_added_up_cold_and_warm():
    rows = [
        row(impl, 100.0, process=process, prepare_s=seconds)
        for impl, times in {"torch-eager": (0.1, 0.1), "quack": (7.0, 0.5)}.items()
        for process, seconds in enumerate(times)
    ]
    page = render(gateable(*rows, *helpers(100.0, 40.0)), "first-call")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if "quack" in line]
    assert cells == [["quack", "1", "7.0", "7.0", "0.5"]]
