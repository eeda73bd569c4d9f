from dataclasses import replace

import pytest

from harness.analysis import currency
from harness.analysis.currency import adapter_versions, out_of_date
from harness.engine_version import ENGINE_VERSION
from harness.records.run_records import ImplRecord
from harness.records.settings import Settings
from tests.results_factory import results, row

PLANNED = Settings(shapes="8192x4096", impls="all", seed=7)


@pytest.fixture
def checkout(tmp_path):
    """Two adapters, of which one states a version."""
    for name, text in (("quack", 'name = "quack"\nversion = 2\n'), ("peers/liger", 'name = "liger"\n')):
        path = tmp_path / f"impls/{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'"""An adapter."""\n\n{text}requires = ()\n')
    adapter_versions.cache_clear()
    return tmp_path


@pytest.fixture
def run():
    """A finished run of both adapters, as the plan asks for it, of a user's file, and of a fourth that was missing."""
    done = results(row("quack", 50.0), shapes="8192x4096", impls="all")
    impls = [
        ImplRecord(name="quack-fast", family="quack", source="impls/quack.py", version=2),
        ImplRecord(name="liger", family="liger", source="impls/other_peers/liger.py"),  # moved since
        ImplRecord(name="mine", family="mine", source="mine.py", version=5),
        ImplRecord(name="cudnn", family="cudnn", source="impls/cudnn.py", missing="not here"),
    ]
    changes = {"implementations": impls, "engine_version": ENGINE_VERSION}
    return replace(done, run=done.run.model_copy(update=changes))


def with_settings(run, **changes):
    return replace(run, run=run.run.model_copy(update={"settings": run.run.settings.changed(**changes)}))


def test_run_of_these_versions_is_current_wherever_its_code_is_now(run, checkout):
    assert out_of_date(run, PLANNED, checkout) == ()


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("version = 2", "version = 3", "version 2 of quack where 3 is here"),
        ('name = "quack"', 'name = "quark"', "quack is no adapter here"),
    ],
)
def test_another_version_of_an_adapter_makes_it_stale(run, checkout, was, now, said):
    path = checkout / "impls/quack.py"
    path.write_text(path.read_text().replace(was, now))
    assert out_of_date(run, PLANNED, checkout) == (said,)


def test_another_version_of_the_engine_makes_it_stale(run, checkout, monkeypatch):
    monkeypatch.setattr(currency, "ENGINE_VERSION", 7)
    assert f"version {ENGINE_VERSION} of the engine where 7 is here" in out_of_date(run, None, checkout)


@pytest.mark.parametrize(
    ("planned", "said"),
    [
        ({"dtype": "fp16"}, "dtype none where the plan says fp16"),
        ({"processes": 5}, "processes 1 where the plan says 5"),
        ({"context": "step"}, "context cold where the plan says step"),
        (
            {"shapes": ",".join(["8192x4096"] * 9)},
            "shapes 8192x4096 where the plan says " + "8192x4096,8192x4096,8192x4096,8192x40...",
        ),
    ],
)
def test_other_settings_make_it_stale(run, checkout, planned, said):
    assert out_of_date(run, PLANNED.changed(**planned), checkout) == (said,)


def test_defaults_of_the_device_are_no_other_settings(run, checkout):
    run = with_settings(run, dtype="bf16", repeats=50, seeds=1, context="cold", baseline="torch-eager")
    assert out_of_date(run, PLANNED, checkout) == ()


def test_unfinished_run_is_stale(run, checkout):
    assert out_of_date(replace(run, end=None), PLANNED, checkout) == ("not finished",)


def test_run_of_a_part_of_its_cases_is_stale(run, checkout):
    part = replace(run, run=run.run.model_copy(update={"jobs": 3}))
    assert out_of_date(part, PLANNED, checkout) == ("1 of 3 cases",)
