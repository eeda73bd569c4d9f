"""The sentence of every reason, by its code: the only place where reasons are worded, and nothing decides by it.

A template names the fields of its reason. `{parts}` are the reasons that it is made of, behind what its spec says where
there are any: `{parts:: }` writes `: ` before them. `{listed}` has them with commas, `{each[0]}` the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from string import Formatter
from typing import Any, NamedTuple

from harness.records.reasons import ALL_VOID, ESCAPES, REMEMBERS, TEXT, Reason

TEXTS: dict[str, str] = {
    # Worded by somebody else: an older file, an adapter, an exception.
    TEXT: "{text}",
    "unsupported": "{text}",
    "missing": "{text}{parts:; }",
    "to_install": "{command}",
    "refused": "{text}",
    "declared_untimed": "{text}",
    "adapter_note": "{text}",
    "raised": "{type}: {message}",
    "error": "{type}",
    # Several reasons.
    "together": "{parts}",
    "process": "process {numbers}: {parts}",
    "of_impl": "{impl}: {parts}",
    "impl_is": "{impl} is {parts}",
    "status": "{status}{parts:: }",
    "absent": "absent",
    "no_reason": "no reason given",
    # How a trial ended.
    "died": "{how} in stage {stage!r}",
    "killed": "{how} in stage {stage!r}, from outside; --resume tries it again",
    "in_quarantine": "not tried: in quarantine after {after} crashes or hangs",
    "gpu_lost_twice": "the GPU was lost in two tries: {how}",
    "refused_layout": "refused: {parts}",
    "in_timed_call": "in a timed call, {parts}",
    "after_timing": "after timing, {parts}",
    "thread_changes_inputs": "a thread that it left at work goes on changing the inputs: {threads}",
    # What a backward returned.
    "not_grads": "the backward returned {type}, not Grads",
    "no_gradient": "{tensor} is missing",
    "not_a_tensor": "{tensor} is a {type}, not a plain tensor",
    "not_dense": "{tensor} is a {layout} tensor, not a dense one",
    "other_shape": "{tensor} has shape {shape} instead of {expected}",
    "other_dtype": "{tensor} is {dtype} instead of {expected}",
    "other_device": "{tensor} is on {device}",
    "wider_dtype": "{tensor} is {dtype} where {expected} was asked for: accepted, and rounded before it is judged",
    "off": "{listed} (1 is one rounding)",
    "tensor_off": "{tensor} is off by rho {rho:.3g}",
    "row_off": "a row of {tensor} is off by rho {rho:.3g}",
    "worst_element": "{tensor}[{at}] is {given:.6g} and not {right:.6g}",
    "other_strides": "{tensor} has strides {strides}, though every input is contiguous: it may have to be copied",
    "flushes_subnormals": "takes subnormal numbers as zero: {tensors}",
    # What it did besides.
    "changed_input": "the backward changed its input {tensors}",
    "changed_dy": "the backward changed its input {tensors}; an adapter may declare in_place for dy",
    "wrote_outside_input": "the backward wrote outside of its input {tensors}",
    "same_memory": "{tensors[0]} and {tensors[1]} lie in the same memory",
    "in_memory_of_input": "{tensors[0]} lies in the memory of the input {tensors[1]}",
    "wrote_behind_buffer": "the backward wrote {bytes} bytes outside of its own buffers, "
    "the first {distance} bytes behind the end of one",
    "wrote_before_buffer": "the backward wrote {bytes} bytes outside of its own buffers, "
    "the first {distance} bytes before one",
    "wrote_far_from_buffers": "the backward wrote {bytes} bytes outside of its own buffers, far from any",
    "changed_state": "the backward changed {names}",
    "left_process": "what it left at work slows all that is timed: {processes}",
    "left_thread": "the backward left a thread at work: {threads}",
    "changed_late": "{tensors} changed after the backward had returned",
    "leaks": "every call keeps {bytes} bytes of memory",
    REMEMBERS: "{tensors} did not follow new contents of dy at the same address",
    "remembered_in_replay": "{tensors} did not follow new contents of dy at the same address in a graph replay",
    ESCAPES: "work on another stream runs outside the timed span: {kernel}",
    # Determinism.
    "runs_differ": "{differing} of {repeats} runs differ, in {tensors}",
    "other_bits": "other bits in a new process",
    "waits_for_held": "waits for other kernels: it did not end within {seconds:g} s while another kernel held "
    "{programs} of {of} multiprocessors",
    "same_bits": "same bits",
    "different_bits": "other bits",
    "not_run": "not run: {parts}",
    # Why there is no time.
    "timing_not_asked": "timing was not asked for",
    "interpreted": "verified in the Triton interpreter, which is never timed",
    "not_timed": "not timed{parts:: }",
    "not_timed_in": "not timed in the context {context}",
    ALL_VOID: "every block was void{parts:: }",
    "void_blocks": "{blocks} {parts}",
    "throttled": "throttled ({by})",
    "allocator_grew": "allocator grew",
    "beside_did_not_start": "the kernel beside did not start",
    "beside_ended_early": "the kernel beside ended early",
    "not_captured": "cannot be captured: {text}",
    "captured_nothing": "the capture holds nothing: its replay runs no backward",
    "captured": "captured: {content}",
    "host_waited": "a call waits for the device, so that the host's time is not its own",
    # The kernels by the profiler.
    "lost_records": "the profiler lost records ({markers} of {expected} markers are here)",
    "kernels_differ": "the kernels differ between repetitions ({launched} launched)",
    "other_order_of_kernels": "the kernels are launched in another order from repetition to repetition",
    "nothing_launched": "nothing was launched",
    # A judgement.
    "bad_message": "it wrote something else than the answer that was due, in stage {stage!r}",
    "no_answer": "no answer in {seconds:g} s, in stage {stage!r}",
    "too_many_processes": "it started {seen} processes or more, and {most} are allowed",
    "does_not_stop": "a process of it goes on while the others are timed",
    "ran_while_stopped": "it went on while it was stopped and others ran",
    "unreadable_answer": "the gradients do not lie where it says",
    "shared_answers": "gradients of two calls lie in the same memory: each call must return memory of its own",
    "left_device_busy": "it left work on the GPU that goes on while the others are timed",
    "changed_code": "files of this project changed while it was judged: {files}",
    "peers_slower": "its peers were {times:.2f} times as slow while it was there: is the machine busy?",
    "saves_of_x": "its backward uses what was saved of x before it is timed ({what}): no verdict on its speed",
    "of_x_before": "right for x as it was, but x changes from call to call: compute in the call what depends on x, or "
    "declare by saves(case) what is kept of it",
    "short_stretch": "its calls take hardly longer than doing nothing: no verdict on speed; give a larger shape",
    "wide_interval": "the speedup scatters from {low:.2f} to {high:.2f}, no verdict on speed: is the machine busy?",
    # Configurations.
    "configuration": "configuration: {name}",
    "configuration_of_file": "configuration: {name}, of {file}",
    "default_configuration": "configuration: the default; {file} has no faster one",
    # Why a time is not ranked, or a ratio not formed.
    "impossible": "{us:us} us, and to read x and dy alone takes {least_us:us} us at the datasheet's {gbps:.0f} GB/s",
    "unproven": "unproven: the device may have waited for the host, so host time may be inside",
    "not_times": "a sample is not a positive number of microseconds",
    "too_short": "below {times_t0} x t0 ({limit_us:us} us): shown, not ranked",
    "too_fast": "too fast to be ranked, below {times_t0} x t0 ({limit_us:us} us)",
    "timed_apart": "timed apart from the others (group {group}, flush {flush})",
    "different_groups": "timed in different groups, {groups[0]} and {groups[1]}",
    "different_flushes": "timed with different flushes, {flushes[0]} and {flushes[1]}",
    "no_common_block": "no block holds both",
    "no_common_process": "no process timed both",
    "other_number_of_samples": "{samples[0]} samples cannot be matched with {samples[1]}",
    "no_forward": "its adapter gives no forward",
    # Why drawn shapes are not held out.
    "seed_chosen": "the seed was chosen",
    "kernel_not_measured": "{impl} was not measured",
    "kernel_not_committed": "no commit has {impl} as it was measured",
    "drawn_before_version": "version {version} of {impl} was committed later, at {at}",
    "resumed_at_another_revision": "the run was resumed at another revision, with its shapes known",
    "selftest_failed": "the self-test failed ({checks})",
    "on_a_cpu": "a CPU is timed by the wall clock, which counts whatever else the machine does; only GPUs are ranked",
    "aa_pair": "an A/A pair {parts}",
    "ratio_disturbed": "its ratio to {baseline} {parts}",
    "scatters": "scatters by {percent:.0f} % from block to block",
    "drifts": "drifts by {percent:.0f} % from the first third of the blocks to the last",
    "bursts": "is off by more than {off_percent:.0f} % in {percent:.0f} % of the blocks",
    # Notes on a row.
    "in_place": "overwrites dy, which is restored, untimed, before every call",
    "autograd": "reached through autograd, not by a direct call",
    "chosen": "chosen: {parts}",
    "scatter_of_choices": "medians of the {processes} processes: {lowest_us:us} to {highest_us:us} us",
    "some_processes": "timed in {timed} of {processes} processes",
    "some_set_aside": "timed in {timed} of {processes} processes, {set_aside} set aside for t0",
    "usually_waits": "waits for other kernels: until the one beside had ended, in {waited} of {samples} samples",
    "waits_sometimes": "waited for other kernels in {waited} of {samples} samples, fewer than half: "
    "until the one beside had ended",
    # An unfinished file.
    "unfinished": "Unfinished: {finished} of {jobs} cases are here; {parts}.",
    "interrupted": "the run was interrupted",
    "cut_short": "the run has not ended, or was cut short",
    "others_not_measured": "the others were not measured, or too many of their blocks were void",
    # Layouts.
    "not_contiguous": "where an input is not contiguous; an adapter may declare contiguous_only = True: {parts}",
    # A file that cannot be as it is.
    "longer_than_run": "its samples take {sampled_s:.0f} s in all, and the run took {wall_s:.0f} s",
    "rows_missing": "rows of processes {missing} are missing",
    "selftest_missing": "the self-test of its process is missing",
    "not_verified": "no record of a verification that gives its status",
    # A gate.
    "no_case_fits_claim": "no case of these results fits the claim",
    "no_case_fits_regression": "no case of these results fits, or neither side supports any",
    "not_measured": "{impl} was not measured: {parts}",
    "not_measured_again": "not measured",
    "right": "right",
    "right_and_deterministic": "right and deterministic",
    "right_no_time": "{impl} is right, and there is no time to keep",
    "is_deterministic": "{impl} is deterministic",
    "no_ratio": "no ratio: {parts}",
    "no_aa_pair": "no A/A pair in this case",
    "no_aa_pair_or_few_blocks": "no A/A pair in this case, or too few blocks for one",
    "times_as_fast": "{ratio:.3f} times as fast as {over}, between {low:.3f} and {high:.3f}",
    "slower": "slower by more than delta",
    "not_slower": "not slower by more than delta",
    "maybe_slower": "may be slower by more than delta",
    "no_process_for_mean": "no process measured all cases, so there is no mean over them",
    "slower_on_the_whole": "slower by more than delta on the whole",
    "not_slower_on_the_whole": "not slower by more than delta on the whole",
    "maybe_slower_on_the_whole": "may be slower by more than delta on the whole",
    "loss": "{speedup:.3f} [{low:.3f}, {high:.3f}]",
    "not_confirmed": "not confirmed: {each[0]}, then {each[1]}",
    "confirmed": "{each[0]}; confirmed: {each[1]}",
    "measured_again": "{each[0]}; measured again: {each[1]}",
    # The checks of a self-test.
    "check_empty": "two events with nothing between them",
    "check_null_kernel": "a kernel that does nothing: more than nothing, and not much more",
    "check_copy_line": "worst distance of a copy from it, {caches[0]} to {caches[1]} x the cache",
    "check_copy_of_nothing": "where the line meets zero bytes",
    "check_copy_bandwidth": "the slope of the line; beyond the datasheet it is a lie",
    "check_coldness": "half a cache after the flush, against one not read of late",
    "check_warm_buffer": "without the flush the probe must be faster by more than the limit of coldness",
    "check_linearity": "2 and 4 copies against 2 and 4 times one",
    "check_aa": "one kernel against itself, {value:+.2f} % ({low:+.2f} to {high:+.2f})",
    "check_planted": "{more:.0f}% more bytes read as {value:+.2f} % ({low:+.2f} to {high:+.2f})",
    "check_planted_undetected": "{more:.0f}% more bytes read as {value:+.2f} % ({low:+.2f} to {high:+.2f}), "
    "not told from A/A",
    "check_events_share": "what events read beyond the profiler's lead and span of one kernel; "
    "below zero, what the two resolve",
    "check_events": "with that share taken off, other work agrees to 1 us or 2 %",
    "no_kernels": "there are no kernels here",
    "no_profiler": "there is no profiler of kernels here",
    "little_memory": "too little memory is free for copies of several sizes",
    "larger_copies_no_longer": "larger copies took no longer",
    "host_late": "the host was late in {candidates}",
    "free_beside": "beside {programs} programs of {threads} threads and {shared_kib} KiB of shared memory a probe "
    "found {free} of {of} multiprocessors free",
    "all_resident_waits": "waits for other kernels: a launch that needs every multiprocessor took {us:.0f} us beside "
    "{programs}, {alone_us:.0f} us alone",
    "all_resident_did_not_wait": "a launch that needs every multiprocessor did not wait: {us:.0f} us beside "
    "{programs} programs",
    "no_row": "no row was written",
    "control_unproven": "{status}{parts:, }, without the queue proof",
    # Compute-sanitizer.
    "first_error": "{text}{parts:; }",
    "first_warning": "{text}",
    "trouble_of_tool": "{text}",
    "one_warning": "1 warning{parts:: }",
    "warnings": "{number} warnings{parts:, the first: }",
    "log_without_summary": "its log has no summary",
    "tool_stopped": "stopped {where} after {seconds:g} s",
    "tool_failed": "failed {where} with exit code {code}: {output}",
}


def sentence(*alike: Reason) -> str:
    """The reason in words; several that differ in numbers alone as one sentence, with the range of each number.

    Of a code that a newer version wrote, or with other fields than its template has, its code and values.
    """
    first = alike[0]
    values = {name: _joined([reason.fields[name] for reason in alike]) for name in first.fields}
    parts = [sentence(*column) for column in zip(*(reason.parts for reason in alike), strict=True)]
    with suppress(KeyError, IndexError, TypeError, ValueError):
        return _WRITER.format(TEXTS[first.code], **values, parts=_Parts(parts), listed=", ".join(parts), each=parts)
    written = ", ".join(_WRITER.format("{} {}", name, value) for name, value in values.items())
    return "; ".join(filter(None, [f"{first.code} ({written})" if written else first.code, *parts]))


class _Range(NamedTuple):
    low: float
    high: float


class _Parts(NamedTuple):
    sentences: Sequence[str]


class _Writer(Formatter):
    """Writes lists with commas, and times by the spec `us`."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, _Parts):
            return format_spec + "; ".join(value.sentences) if value.sentences else ""
        if isinstance(value, _Range):
            return f"{self.format_field(value.low, format_spec)} to {self.format_field(value.high, format_spec)}"
        if isinstance(value, list):
            return ", ".join(self.format_field(item, format_spec) for item in value)
        if format_spec == "us":
            return f"{value:.{2 if value < 10 else 1 if value < 1000 else 0}f}"
        return super().format_field(value, format_spec)


_WRITER = _Writer()


def _joined(values: Sequence[Any]) -> Any:
    """The value itself where all are equal, else the range of the numbers; of a list, place by place."""
    if all(value is values[0] or value == values[0] for value in values):
        return values[0]
    if isinstance(values[0], list):
        return [_joined(column) for column in zip(*values, strict=True)]
    return _Range(min(values), max(values))
