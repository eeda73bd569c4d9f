"""Made-up runs of `normbwd tune`, for tests of what reads them."""

import math
from dataclasses import replace

from harness.tune.candidates import NOTE
from harness.tune.winners import DEFAULT
from impls.inhouse.regimes.one_pass import OnePass
from impls.inhouse.tuned import as_text
from tests.results_factory import CASE, in_processes, results, row, twin

NAMES = (DEFAULT, "launch-01", "launch-02", "launch-03", "launch-04")
LAUNCHES = {
    name: OnePass(rows=number, chunks=1, cols=4096, warps=16, programs=128, fold=True, stages=3, fused=True)
    for number, name in enumerate(NAMES[1:], 1)
}


def default(us=50.0, case=CASE, off=0.0):
    """The default launch and its twin."""
    return [row(DEFAULT, us, case), twin(DEFAULT, us, case, off=off)]


def candidate(name, us, case=CASE, **more):
    """A row of another launch; one that did not pass has no time."""
    return row(name, us, case, shift=1, notes=[NOTE + as_text(LAUNCHES[name])], **more)


def swept(*rows, **settings):
    """A sweep of these rows."""
    return results(*rows, names=NAMES, baseline=DEFAULT, **settings)


def again(*rows, scales=(1.0, 1.004, 0.997, 1.002, 0.999), bias=()):
    """The winners measured again, in five processes."""
    return swept(*in_processes(*rows, scales=scales, bias=bias), processes=len(scales))


TALL = [replace(CASE, rows=rows) for rows in (1024, 2048, 4096)]


def one_of_each():
    """Of four cases: a winner that is confirmed, one that is not, one without, one whose default was not measured."""
    first = [*default(), candidate("launch-01", 47.5), candidate("launch-02", 45.0)]
    second = [*default(20.0, TALL[0]), candidate("launch-03", 19.0, TALL[0])]
    third = [*default(10.0, TALL[1]), candidate("launch-01", 11.0, TALL[1])]
    fourth = [row(DEFAULT, None, TALL[2], status="crashed", reason="RuntimeError: out of\nresources")]
    sweep = swept(*first, *second, *third, *fourth)
    confirming = [*default(50.2), candidate("launch-02", 45.6), candidate("launch-03", 44.0)]
    confirming += [*default(20.0, TALL[0]), candidate("launch-03", 20.0 * math.exp(-0.001), TALL[0])]
    uneven = {("launch-02", "impl", 1): 1.012, ("launch-02", "impl", 3): 0.998}
    return sweep, again(*confirming, bias=uneven)
