import bz2
import errno
import gc
import gzip
import json
import math
import tracemalloc
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.cases import NormCase
from harness.errors import UnavailableError, UsageError
from harness.records import limits
from harness.records.file import RESULTS_NAME, ResultsFile, in_folder, load, set_torn_line_aside
from harness.records.reasons import Reason
from harness.records.run_records import EndRecord, ImplRecord
from harness.records.schema import (
    Budget,
    Check,
    ConditionsRecord,
    Kernel,
    KernelTotals,
    RowRecord,
    SelfTestRecord,
    TensorCheck,
    Verification,
    VoidBlocks,
    worst,
)
from tests.results_factory import mixed, results, row, run_record, selftest, timing
from tests.wording import worded

CASE = NormCase("layer", 4, 8, bias=True)
ROW = RowRecord(case=CASE, impl="a", status="ok")
END = EndRecord(ended_at="2025-06-01T12:10:00+00:00", wall_s=1.5)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.jsonl"


def write(path, *records):
    file = ResultsFile(path)
    for record in records:
        file.append(record)
    file.close()


def complaint(path):
    with pytest.raises(UsageError) as caught:
        load(path)
    return str(caught.value)


def test_what_is_written_is_what_is_read(path):
    written = mixed()
    write(path, written.run, *written.rows, written.end)
    assert load(path) == written


@pytest.mark.parametrize("unknown", [{"cpu": True}, {"names": ()}])
def test_a_run_that_knows_little_of_its_device_can_be_read(path, unknown):
    run = run_record(**unknown).model_copy(update={"revision": None})
    write(path, run)
    assert load(path).run == run


BUDGET = Budget(t0_us=1.0, null_us=2.0, fixed_us=1.5, relative=0.01, ratio=0.02, copy_gbps=4000.0, event_offset_us=3.0)


def test_selftests_and_conditions_are_read_back(path):
    """A check that could not be made stays unknown."""
    checks = [
        Check(name="t0", passed=True, value=1.0, limit=10.0, unit="us", detail="median of 20"),
        Check(name="cold", passed=False, value=9.0, limit=2.0, unit="%"),
        Check(name="null kernel", passed=None, detail="a CPU launches none"),
    ]
    selftests = [
        SelfTestRecord(when="before", budget=BUDGET, checks=checks),
        SelfTestRecord(
            when="after", process=1, budget=Budget(t0_us=2.0, fixed_us=1.0, relative=0.0, ratio=0.0), checks=[]
        ),
    ]
    conditions = [
        ConditionsRecord(case=CASE, group="g1"),
        ConditionsRecord(case=CASE, group="g2", process=1, power_w=[400.5], throttled={"power cap": [0]}),
    ]
    write(path, run_record(), selftests[0], conditions[0], ROW, conditions[1], selftests[1], END)
    found = load(path)
    assert found.selftests == tuple(selftests)
    assert found.conditions == tuple(conditions)
    assert (found.rows, found.end) == ([ROW], END)


def test_budget_is_the_worst_of_the_selftests(path):
    other = Budget(t0_us=2.0, fixed_us=1.0, relative=0.03, ratio=0.01, copy_gbps=3900.0, event_offset_us=4.0)
    bare = Budget(t0_us=0.5, fixed_us=0.5, relative=0.0, ratio=0.0)
    write(
        path, run_record(), *(SelfTestRecord(when="before", budget=each, checks=[]) for each in (BUDGET, other, bare))
    )
    assert load(path).budget == Budget(
        t0_us=2.0, null_us=2.0, fixed_us=1.5, relative=0.03, ratio=0.02, copy_gbps=3900.0, event_offset_us=3.5
    )
    assert worst([bare]) == bare


def test_without_a_self_test_there_is_no_budget(path):
    write(path, run_record(), ROW)
    assert load(path).budget is None


def test_kernels_totals_and_other_engines_survive_in_a_row(path):
    row = ROW.model_copy(
        update={
            "process": 2,
            "kernels": [
                Kernel(name="rows", median_us=2.0),
                Kernel(name="columns", median_us=1.0, start_us=1.5, event_us=1.25),
            ],
            "kernel_totals": KernelTotals(sum_us=3.0, union_us=2.5, span_us=2.5, event_us=4.0),
            "other_engines_us": {"do_bench": 5.0},
        }
    )
    write(path, run_record(), row)
    assert load(path).rows == [row]


def test_blocks_with_gaps_and_without_survive(path):
    whole = timing(10.0, blocks=5)
    gaps = whole.model_copy(
        update={"blocks": [0, 1, 3, 4, 6], "voided": [VoidBlocks(cause=Reason("allocator_grew"), blocks=2)]}
    )
    none = whole.model_copy(
        update={"blocks": [], "samples_us": [], "voided": [VoidBlocks(cause=Reason("allocator_grew"), blocks=9)]}
    )
    rows = [ROW.model_copy(update={"timing": each, "process": n}) for n, each in enumerate((whole, gaps, none))]
    write(path, run_record(), *rows)
    assert load(path).rows == rows


@pytest.mark.parametrize("broken", [[1], {"samples_us": None}, {"samples_us": 3}])
def test_timing_of_none_is_a_readable_error(path, broken):
    write(path, run_record(), ROW)
    altered(path, 2, lambda record: record.update(timing=broken))
    assert "line 2 is not a results record (row.timing" in complaint(path)


def test_every_record_is_on_disk_before_append_returns(path):
    file = ResultsFile(path)
    file.append(run_record())
    assert load(path).rows == []
    file.append(ROW)
    assert load(path).rows == [ROW]
    file.close()


def test_of_an_implementation_in_a_process_the_last_row_counts(path):
    """A case that is resumed is measured anew, and appended."""
    first = ROW.model_copy(update={"status": "crashed", "reason": Reason("text", {"text": "boom"})})
    elsewhere = ROW.model_copy(update={"process": 1})
    tested = SelfTestRecord(when="after", budget=BUDGET, checks=[])
    write(path, run_record())
    write(path, first, tested, elsewhere, tested)
    write(path, ROW, END, tested)
    loaded = load(path)
    assert loaded.rows == [elsewhere, ROW]
    assert loaded.selftests_behind == (0, 1, 2)
    assert loaded.end == END


def test_stage_times_are_summed_over_resumes(path):
    """A file without an end record has none."""
    write(path, run_record(), ROW)
    assert load(path).end is None
    first = END.model_copy(update={"wall_s": 5.0, "stages_s": {"time": 2.5, "verify": 1.0}})
    later = END.model_copy(update={"wall_s": 9.0, "interrupted": True, "stages_s": {"time": 3.1, "prepare": 1.0}})
    write(path, first, later)
    together = {"wall_s": 14.0, "stages_s": {"prepare": 1.0, "time": 5.6, "verify": 1.0}}
    assert load(path).end == later.model_copy(update=together)


def test_infinite_rho_is_read_back_from_plain_json(path):
    check = TensorCheck(rho=math.inf, relative_rms=math.inf, error_class="wrong")
    verification = Verification(tensors={"dx": check}, repeats=2, differing=0)
    row = ROW.model_copy(update={"status": "wrong", "verification": verification})
    write(path, run_record(), row)
    assert load(path).rows == [row]

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    for line in path.read_text().splitlines():
        json.loads(line, parse_constant=refuse)


@pytest.mark.parametrize("text", ["two\nlines", "µs · ≥ 化", 'a "quote" and \\', "tab\tand\x00nul", "\x1b[31mred"])
def test_any_reason_stays_in_one_line(path, text):
    row = ROW.model_copy(update={"status": "crashed", "reason": Reason("text", {"text": text})})
    write(path, run_record(), row, END)
    assert path.read_bytes().count(b"\n") == 3
    assert load(path).rows == [row]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85"])
def test_a_separator_that_is_no_newline_does_not_end_a_line(path, separator):
    row = ROW.model_copy(update={"notes": [Reason("text", {"text": f"one{separator}two"})]})
    write(path, run_record(), row)
    assert load(path).rows == [row]


def test_of_a_line_that_is_cut_off_the_advice_can_be_followed(path, monkeypatch):
    """A run is resumed by the command that began it, and only where its file still lies."""

    def cut(command, name="results.jsonl"):
        file = path.with_name(name)
        file.unlink(missing_ok=True)
        write(file, run_record().model_copy(update={"command": command}), ROW)
        file.write_bytes(file.read_bytes()[:-10])
        return complaint(file).removeprefix(f"{file} line 2 is cut off; ")

    monkeypatch.chdir(path.parent)
    go_on, copy = "go on from the line before with ", "copy it again from where it came from, or delete the line"
    assert cut("normbwd compare --base a") == f"{go_on}`normbwd compare --base a --resume --out {path.parent}`"
    assert cut("normbwd verify --out . --resume") == f"{go_on}`normbwd verify --out . --resume`"
    assert cut("normbwd verify --out elsewhere") == copy
    assert cut("normbwd bench", "mine.jsonl") == copy


def test_a_line_that_lacks_its_newline_alone_is_cut_too(path):
    write(path, run_record(), ROW)
    path.write_bytes(path.read_bytes()[:-1])
    assert "line 2 is cut off" in complaint(path)


def test_a_torn_line_is_kept_aside(path):
    write(path, run_record(), ROW)
    whole = path.read_bytes()
    torn = whole.splitlines(keepends=True)[1][:30]
    with path.open("ab") as stream:
        stream.write(torn)
    assert load(path, torn=True).rows == [ROW]
    for _ in range(2):
        set_torn_line_aside(path)
        assert path.read_bytes() == whole
    assert path.with_suffix(".torn").read_bytes() == torn + b"\n"


def test_a_line_that_is_cut_off_within_a_character_is_left_out_too(path):
    write(path, run_record(), ROW)
    with path.open("ab") as stream:
        stream.write('{"record":"row","reason":"3 µ'.encode()[:-1])
    assert load(path, torn=True).rows == [ROW]


def test_a_full_disk_is_told_in_one_line():
    file = ResultsFile(Path("/dev/full"))
    with pytest.raises(UnavailableError, match=r"^cannot write /dev/full: No space left on device; "):
        file.append(run_record())
    file.close()


def test_a_record_that_found_no_room_leaves_no_half_line(path):
    """The disk is full in the middle of a row, and has room for the next record."""
    write(path, run_record())
    file = ResultsFile(path)
    stream, rooms = file._stream, [9, 0]

    def into_what_room_is_left(line):
        room = rooms.pop(0) if rooms else len(line)
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return stream.write(line[:room])

    file._stream = SimpleNamespace(write=into_what_room_is_left, fileno=stream.fileno, close=stream.close)
    with pytest.raises(UnavailableError, match="No space left on device"):
        file.append(ROW)
    file.append(ROW)
    file.close()
    assert load(path).rows == [ROW]


def test_a_second_run(path):
    write(path, run_record(), ROW, run_record())
    assert complaint(path) == f"{path} line 3 starts a second run; give one run's file at a time"


def test_rows_without_a_run(path):
    write(path, ROW)
    expected = f"{path} does not begin with a run record; is it a results.jsonl of `normbwd bench`?"
    assert complaint(path) == expected
    for other in ("speed: fast\n", "speed: fast", '{"record": "note"}\n', "[]\n"):
        path.write_text(other)
        assert complaint(path) == expected


def test_a_file_in_which_nothing_was_written_can_be_deleted(path):
    expected = f"{path} holds no whole record; delete it and measure again, or give another folder with --out"
    path.write_bytes(b"")
    assert complaint(path) == expected
    path.write_text('{"record": "ru')
    with pytest.raises(UsageError) as caught:
        load(path, torn=True)
    assert str(caught.value) == expected


def altered(path, number, change):
    """Change the JSON object of one line."""
    lines = path.read_text().splitlines()
    record = json.loads(lines[number - 1])
    change(record)
    lines[number - 1] = json.dumps(record)
    path.write_text("\n".join(lines) + "\n")


MEND = "; delete the line, or read the file with the version that wrote it"


@pytest.mark.parametrize(
    ("number", "change", "fault"),
    [
        (2, {"colour": "red"}, "row.colour: Extra inputs are not permitted"),
        (1, {"schema_version": 2}, "run.schema_version: Input should be 1"),
        (2, {"impl": None}, "row.impl: Input should be a valid string"),
        (
            2,
            {"status": "fine"},
            "row.status: Input should be 'ok', 'wrong', 'impossible', 'nondeterministic', 'unsupported', 'missing', "
            "'crashed', 'timeout' or 'oom'",
        ),
        (
            2,
            {"record": "note"},
            "the line: Input tag 'note' found using 'record' does not match any of the expected tags: 'run', "
            "'same_code', 'resumed', 'gpu', 'selftest', 'row', 'conditions', 'sanitizer', 'end'",
        ),
    ],
)
def test_a_line_that_is_no_record_of_this_version(path, number, change, fault):
    write(path, run_record(), ROW)
    altered(path, number, lambda record: record.update(change))
    mend = MEND if number > 1 else MEND.replace("delete the line, or ", "")  # which would leave no run
    assert complaint(path) == f"{path} line {number} is not a results record ({fault}){mend}"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"samples_us": [1.0, "Infinity"], "blocks": [0, 1]}, "row.timing.samples_us.1: Input should be a finite"),
        ({"samples_us": [1.0, -2.0], "blocks": [0, 1]}, "row.timing.samples_us.1: Input should be greater"),
        ({"samples_us": [1.0, 2.0], "blocks": [3, 3]}, "row.timing: Value error, each sample must"),
        ({"samples_us": [1.0, 2.0], "blocks": [3]}, "row.timing: Value error, each sample must"),
        ({"samples_us": [1.0], "blocks": [10**30]}, "row.timing.blocks.0: Input should be less than"),
    ],
)
def test_timings_that_nobody_measured_are_refused_by_their_line(path, change, fault):
    write(path, run_record(), row("quack", 50.0))
    altered(path, 2, lambda record: record["timing"].update(change))
    assert complaint(path).startswith(f"{path} line 2 is not a results record ({fault}")


@pytest.mark.parametrize("t0_us", [-5.0, "NaN"])
def test_a_reading_of_nothing_that_cannot_be_is_refused(path, t0_us):
    write(path, run_record(), selftest(), ROW)
    altered(path, 2, lambda record: record["budget"].update(t0_us=t0_us))
    assert complaint(path).startswith(f"{path} line 2 is not a results record (selftest.budget.t0_us: Input should be")


@pytest.mark.parametrize(
    ("number", "change", "fault"),
    [
        (2, {"process": 10**9}, "row.process: Input should be less than 1000)"),
        (2, {"peak_extra_bytes": 10**400}, "row.peak_extra_bytes: Input should be less than"),
        (2, {"reason": {"code": "drifts", "fields": {"percent": 10**400}}}, "row.reason.fields.percent"),
        (2, {"timing": {"samples_us": {"unit_ns": 10**300, "median": 1, "from_median": [1]}}}, "row.timing.unit_ns"),
        (3, {"process": 10**9}, "conditions.process: Input should be less than 1000)"),
        (4, {"wall_s": "NaN"}, "end.wall_s: Input should be a finite number)"),
        (1, {"device": {"datasheet_gbps": 0}}, "run.device.datasheet_gbps: Input should be greater than 0)"),
        (1, {"settings": {"context": "warm"}}, "--context 'warm': not one of cold, "),
        (1, {"settings": {"context": ["warm"]}}, "--context \"['warm']\": not one of cold, "),
    ],
)
def test_numbers_that_no_run_has_are_refused_by_their_line(path, number, change, fault):
    def update(record):
        for name, value in change.items():
            record[name] = record[name] | value if isinstance(record.get(name), dict) else value

    write(path, run_record(), row("quack", 50.0), ConditionsRecord(case=CASE, group="g1"), END)
    altered(path, number, update)
    assert f"{path} line {number} is not a results record ({fault}" in complaint(path)


def limited(monkeypatch, **lowered):
    for name, most in lowered.items():
        monkeypatch.setattr(limits, name, most)


@pytest.mark.parametrize(
    ("lowered", "excess"),
    [
        ({"LINE_BYTES": 100}, "100 bytes in line 1"),
        ({"BYTES": 1000}, "1,000 bytes, unpacked"),
        ({"LINES": 2}, "2 lines"),
        ({"CASES": 1}, "1 cases"),
        ({"PROCESSES": 3}, "3 processes"),
        ({"ELEMENTS": 32}, "32 elements of x in line 3"),
    ],
)
def test_a_file_above_a_limit_is_refused_in_one_line(path, monkeypatch, lowered, excess):
    run = run_record()
    run = run.model_copy(update={"settings": run.settings.changed(processes=4)})
    write(path, run, ROW, ROW.model_copy(update={"case": replace(CASE, rows=6)}))
    assert len(load(path).rows) == 2
    limited(monkeypatch, **lowered)
    assert complaint(path) == f"{path} has more than {excess}, which no run has; get it again from who measured it"


@pytest.mark.parametrize(("ending", "compress"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
@pytest.mark.parametrize("content", [b"\0", b"\n", b"[" * 99 + b"\n"])
def test_of_a_bomb_no_more_is_unpacked_than_the_limits_allow(tmp_path, monkeypatch, ending, compress, content):
    bomb = tmp_path / f"results.jsonl{ending}"
    bomb.write_bytes(compress(content * (20_000_000 // len(content))))
    limited(monkeypatch, BYTES=500_000, LINE_BYTES=100_000)
    tracemalloc.start()
    try:
        assert "which no run has" in complaint(bomb)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_the_rows_of_a_case_share_it(path):
    """A file may have a hundred thousand."""
    other = ROW.model_copy(update={"impl": "b"})
    write(path, run_record(), ROW, other, ROW.model_copy(update={"case": replace(CASE, rows=6)}))
    first, second, third = (row.case for row in load(path).rows)
    assert first is second
    assert (first, third.rows) == (CASE, 6)
    assert gc.isenabled()


def test_a_line_nested_without_end_is_refused(path):
    write(path, run_record())
    path.write_text(path.read_text() + '{"record":' * 40_000 + "\n")
    assert "line 2 is not a results record (the line: Invalid JSON: recursion limit exceeded" in complaint(path)


def test_times_below_the_reading_of_x_and_dy_are_impossible(path):
    """2 x 64 MiB at 4800 GB/s: nothing cold takes less than 28 us, whoever wrote the file."""
    write(path, run_record(), row("quack", 25.0), row("liger", 29.0))
    altered(path, 1, lambda record: record["device"].pop("datasheet_gbps"))  # the profile is named still
    quack, liger = load(path).rows
    assert (quack.status, worded(quack.reason).split(",")[1]) == (
        "impossible",
        " and to read x and dy alone takes 28.0 us at the datasheet's 4800 GB/s",
    )
    assert liger.status == "ok"
    altered(path, 2, lambda record: record["timing"].update(flush="none"))  # where no time is impossible
    assert complaint(path) == f"{path} line 2 has a time with another flush than the run's; measure again"


def test_samples_longer_than_the_run_are_refused(path):
    found = results(row("quack", 50.0, timed=timing(5e7)))
    write(path, found.run, *found.rows, found.end)
    assert "cannot be what a run measured: its samples take" in complaint(path)


def test_a_case_that_is_no_norm(path):
    write(path, run_record(), ROW)
    altered(path, 2, lambda record: record["case"].update(norm="rms"))
    assert complaint(path) == (
        f"{path} line 2 is not a results record "
        f"(row.case: Value error, only a LayerNorm with a weight has a bias){MEND}"
    )


def test_a_line_that_is_no_json(path):
    write(path, run_record())
    path.write_text(path.read_text() + "speed: fast\n")
    assert complaint(path) == (
        f"{path} line 2 is not a results record (the line: Invalid JSON: expected value at line 1 column 1){MEND}"
    )


def test_a_binary_file(path):
    path.write_bytes(bytes(range(256)))
    assert complaint(path) == f"{path} does not begin with a run record; is it a results.jsonl of `normbwd bench`?"


def test_a_file_that_is_not_there(path):
    assert complaint(path) == f"cannot read {path}: No such file or directory"


def test_a_file_that_cannot_be_written(tmp_path):
    with pytest.raises(UsageError) as caught:
        ResultsFile(tmp_path)
    assert str(caught.value) == f"cannot write {tmp_path}: Is a directory; give a writable folder with --out"


def test_records_cannot_be_changed_or_given_unknown_fields():
    with pytest.raises(ValueError, match="frozen"):
        ROW.status = "wrong"
    with pytest.raises(ValueError, match="Extra inputs"):
        RowRecord(case=CASE, impl="a", status="ok", speed="fast")


@pytest.mark.parametrize(("ending", "compress"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_a_packed_file_is_read_like_a_plain_one(tmp_path, ending, compress):
    plain, packed = tmp_path / "results.jsonl", tmp_path / f"results.jsonl{ending}"
    write(plain, run_record(), ROW)
    packed.write_bytes(compress(plain.read_bytes()))
    assert load(packed) == load(plain)
    packed.write_bytes(packed.read_bytes()[:-9])
    assert complaint(packed) == (
        f"cannot read {packed}: it is cut off or damaged; copy it again from where it came from"
    )
    packed.write_bytes(plain.read_bytes())
    assert complaint(packed) == (
        f"cannot read {packed}: it is no {ending} file; if it is plain text, take {ending} off its name"
    )


def test_a_folder_is_no_results_file(tmp_path):
    assert complaint(tmp_path) == f"{tmp_path} is a folder; give a results file, RUN/results.jsonl"
    (tmp_path / "fp16.jsonl.bz2").touch()
    assert complaint(tmp_path) == f"{tmp_path} is a folder; give one of its files, such as {tmp_path}/fp16.jsonl.bz2"
    assert in_folder(tmp_path) == tmp_path
    (tmp_path / RESULTS_NAME).touch()
    assert in_folder(tmp_path) == in_folder(tmp_path / RESULTS_NAME) == tmp_path / RESULTS_NAME


def test_of_an_unfinished_run_a_case_is_finished_that_has_a_row_of_all_that_are_tried_on_it():
    """What torch completes is not tried on a plain norm."""
    residual = replace(CASE, features=("residual",))
    names = ("torch-eager", "quack", "quack + torch")
    impls = [ImplRecord(name=name, family=name, source="", handles={}) for name in names]
    impls[0] = impls[0].model_copy(update={"handles": {"layer": ["residual"]}})
    rows = [row(name, 10.0, case=CASE) for name in names[:2]]
    rows += [row("torch-eager", 10.0, case=residual), row("quack", case=residual, status="unsupported", reason="no")]
    whole = [*rows, row("quack + torch", 10.0, case=residual)]

    def cut(rows):
        found = results(*rows, interrupted=True)
        return replace(found, run=found.run.model_copy(update={"implementations": impls}))

    assert cut(whole).finished_cases == 2
    assert cut(rows).finished_cases == 1
    assert cut(rows[1:]).finished_cases == 0
