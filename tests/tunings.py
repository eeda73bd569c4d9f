"""Made-up runs of `normbwd tune`, for tests of what reads them."""

import math
from dataclasses import replace

from harness.records.reasons import Reason
from harness.tune.offers import Tunable
from harness.worker.configured import candidate_name
from tests.results_factory import CASE, in_processes, results, row, twin

DEFAULT = "mine"
CONFIGS = {"default": {"rows": 1}} | {f"rows={rows}": {"rows": rows, "tma": None} for rows in (2, 4, 8, 16)}
NAMES = tuple(candidate_name(DEFAULT, number) for number in range(len(CONFIGS)))
CONFIG_NAMES = dict(zip(NAMES, CONFIGS, strict=True))


def default(us=50.0, case=CASE, off=0.0):
    """The default and its twin."""
    return [row(DEFAULT, us, case), twin(DEFAULT, us, case, off=off)]


def candidate(number, us, case=CASE, **more):
    """A row of a configuration that is not the default; one that did not pass has no time."""
    name = candidate_name(DEFAULT, number)
    return row(name, us, case, shift=1, notes=[Reason("configuration", {"name": CONFIG_NAMES[name]})], **more)


def swept(*rows, **settings):
    """A sweep of these rows."""
    return results(*rows, names=NAMES, baseline=DEFAULT, **settings)


def again(*rows, scales=(1.0, 1.004, 0.997, 1.002, 0.999), bias=()):
    """The winners measured again, in five processes."""
    return swept(*in_processes(*rows, scales=scales, bias=bias), processes=len(scales))


TALL = [replace(CASE, rows=rows) for rows in (1024, 2048, 4096)]
TUNABLE = Tunable(DEFAULT, dict.fromkeys([CASE, *TALL], CONFIGS))


def one_of_each():
    """Of four cases: a winner that is confirmed, one that is not, one without, one whose default was not measured."""
    first = [*default(), candidate(1, 47.5), candidate(2, 45.0)]
    second = [*default(20.0, TALL[0]), candidate(3, 19.0, TALL[0])]
    third = [*default(10.0, TALL[1]), candidate(1, 11.0, TALL[1])]
    fourth = [row(DEFAULT, None, TALL[2], status="crashed", reason="RuntimeError: out of\nresources")]
    sweep = swept(*first, *second, *third, *fourth)
    confirming = [*default(50.2), candidate(2, 45.6), candidate(3, 44.0)]
    confirming += [*default(20.0, TALL[0]), candidate(3, 20.0 * math.exp(-0.001), TALL[0])]
    uneven = {("mine#02", "impl", 1): 1.012, ("mine#02", "impl", 3): 0.998}
    return sweep, again(*confirming, bias=uneven)
