"""All that an adapter of the in-house kernels launches for the cases of published files, told without a GPU.

A child process runs the adapter on meta tensors, laid out as the harness lays out inputs, behind the driver of a device
that is not there. Of each launch it tells the kernel, its grid, its numbers, its options, and Triton's IR after the
first stage, without places in the source: all later stages follow from these. Of a case that was studied the launches
of the study count as well.
"""

import contextlib
import hashlib
import importlib
import json
import sys
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from harness.cases import Inputs
from harness.cases.case import torch_dtype
from harness.cases.guards import place
from harness.cases.input_kinds import INPUT_KINDS
from harness.cases.tensors import tensors_of
from harness.records.file import load
from harness.records.published_plan import file_of
from harness.verify import study
from tests.impls.gpuless import in_child, instead_of_launches

DIGITS = 16
OF_THE_MACHINE = ("extern_libs",)  # options that hold paths; Triton's version decides what is there


def launched(adapter, files, impls=None, was=None):
    """Digests of what an adapter launches for the cases of published files `(device, name)`, by case, file by file.

    `impls` is a folder that holds another copy of impls/, such as that of another revision. With `was`, a hash of the
    adapter's code, only for the cases that this code measured: other code may have gone on with a file.
    """
    return in_child(__name__, adapter, files, str(impls or ""), was)


def digest(of_cases):
    """One digest of all cases of a file."""
    return _hash(json.dumps(of_cases, sort_keys=True))


def _hash(text):
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


# ------------------------------------------------------------------------------------------------ in the child


def cases_of(adapter, device, name, was):
    """The record of the device, and the implementations and cases of a file that an adapter ran; whether studied.

    Cases under the sanitizer are among them, whichever code that was. Code without a row of its own is asked for all.
    """
    results = load(file_of(device, name))
    own = {impl.name for impl in results.run.implementations if impl.source == adapter}
    parts = [rows for sources, rows in results.by_code() if was in (None, (sources or {}).get(adapter))]
    of_code = [row for row in chain(*parts) if row.impl in own]
    asked = {}
    for row in of_code or (row for row in results.rows if row.impl in own):
        studied = bool(row.verification and row.verification.invariance)
        asked[row.impl, row.case] = studied or asked.get((row.impl, row.case), False)
    for record in results.sanitized:
        if record.impl in own:
            asked.setdefault((record.impl, record.case), False)
    return results.run.device, asked


def inputs_of(case):
    """The inputs of a case as the harness lays them out, without memory."""
    import torch

    layout = INPUT_KINDS[case.inputs].layout
    placed = {
        tensor.name: place(
            torch.empty(tensor.shape(case), dtype=torch_dtype(tensor.dtype_in(case)), device="meta"),
            layout,
            tensor.name,
            case.heads,
            case.projection,
        )
        for tensor in tensors_of(case, "input", "statistic")
    }
    plain = {name: placed.pop(name, None) for name in ("x", "weight", "bias", "dy", "mean", "rstd")}
    return Inputs(case=case, eps=case.eps, **plain, extra=placed)


def first_stage(kernel, signature, constexprs, attributes, target, options):
    """A kernel's IR after the first stage, and its options."""
    from triton._C.libtriton import ir
    from triton.compiler.compiler import make_backend

    backend, source = make_backend(target), kernel.ASTSource(kernel, signature, constexprs, attributes)
    stages = {}
    backend.add_stages(stages, options, source.language)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    generated = backend.get_codegen_implementation(options)
    module = source.make_ir(target, options, generated, backend.get_module_map(), context)
    first = next(iter(stages.values()))
    named = {name: value for name, value in vars(options).items() if name not in OF_THE_MACHINE}
    return first(module, {"target": target, **vars(options)}).str_nodebug() + repr(named)


def numbers_of(arguments):
    """The numbers among a kernel's arguments, those of tuples included."""
    for argument in arguments:
        if isinstance(argument, tuple):
            yield from numbers_of(argument)
        elif isinstance(argument, (int, float)):
            yield argument


@contextlib.contextmanager
def telling(device):
    """Tell launches on a device instead of starting them, in a list that is given."""
    import torch
    from triton.runtime.jit import JITFunction

    from impls.inhouse import device as of_device
    from impls.inhouse.model import forward
    from tests.impls.test_inhouse_compiles import TARGETS

    target, gpu = TARGETS[device.architecture]
    gpu = replace(gpu, multiprocessors=device.sm_count or gpu.multiprocessors)
    told = []

    class Told:
        """A kernel of which a launch is told."""

        def __init__(self, name, kernel):
            self.name, self.kernel = name, kernel

        def __getitem__(self, grid):
            def tell(*arguments, **options):
                code = self.kernel.warmup(*arguments, grid=grid, **options)
                told.append([self.name, list(grid), list(numbers_of(arguments)), code])

            return tell

    def instead_of_compiling(kernel, key, signature, device, constexprs, options, attributes, warmup):
        kept, _, target, *_ = kernel.device_caches[device]
        kept[key] = _hash(first_stage(kernel, signature, constexprs, attributes, target, options))
        return kept[key]

    memory = torch.empty(1 << 20, dtype=torch.int64, device="meta")
    of_device.gpu_of.cache_clear()
    with (
        instead_of_launches(target, Told, memory),
        patch.object(forward, "forward_row", Told("forward_row", forward.forward_row)),
        patch.object(JITFunction, "_do_compile", instead_of_compiling),
        patch.object(of_device, "_whole", lambda _: gpu),
    ):
        yield told


def of_case(told, prepare, case, studied):
    """What is launched for a case, or the kind of exception by which it is refused."""
    told.clear()
    inputs = inputs_of(case)
    try:
        gradients = prepare(inputs)()
    except ValueError as error:
        return [type(error).__name__]
    if studied:
        # Without numbers nothing can be compared, which the study takes for a failure; it has launched by then.
        implementation = SimpleNamespace(prepare=prepare, unsupported=lambda case: None)
        study.fp32_errors(implementation, inputs)
        study.invariance(implementation, inputs, gradients)
    return [*told]


def of_file(adapter, device, name, was):
    """The digests of all cases of a file, by implementation and case."""
    module = importlib.import_module(adapter.removesuffix(".py").replace("/", "."))
    record, asked = cases_of(adapter, device, name, was)
    variants = getattr(module, "variants", {})
    found = {}
    with telling(record) as told:
        for (impl, case), studied in asked.items():
            variant = (variants[impl],) if impl in variants else ()
            # A refusal of the adapter itself comes before its inputs are made, as in the harness.
            if module.unsupported(case, *variant) is None:
                given = {"sm_margin": variant[0]} if variant else {}
                launches = of_case(told, partial(module.prepare, **given), case, studied)
                found[f"{impl} {case.key}"] = _hash(json.dumps(launches))
    return found


def main():
    adapter, files, impls, was = json.loads(sys.argv[1])
    if impls:
        sys.path.insert(0, impls)
    with contextlib.redirect_stdout(sys.stderr):
        found = {f"{device}/{name}": of_file(adapter, device, name, was) for device, name in files}
    import impls as used

    expected = Path(impls) if impls else Path(__file__).parents[2]
    assert Path(used.__file__).parents[1].samefile(expected), f"{used.__file__} is not in {expected}"
    print(json.dumps(found))


if __name__ == "__main__":
    main()
