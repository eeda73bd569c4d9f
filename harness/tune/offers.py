"""Asks a worker which implementations can be tuned, and their configurations."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.cases import NormCase
from harness.cases.adapter import Config
from harness.cases.unfused import WITH_TORCH
from harness.defaults import OWN_IMPL
from harness.devices import profiles
from harness.errors import UnavailableError, UsageError
from harness.records.cases_asked import cases_on
from harness.records.reason_texts import sentence
from harness.records.run_records import ImplRecord
from harness.run.invocation import Invocation
from harness.run.plan import select
from harness.run.process import Worker, start_worker
from harness.worker.messages import ListConfigs, Offer, Offered

MOST_CONFIGS = 64  # of a case: all of them stand in one block


@dataclass(frozen=True)
class Tunable:
    """An implementation, and for each case the configurations to measure, by name, its default first."""

    name: str
    configs: Mapping[NormCase, Mapping[str, Config]]

    @property
    def most(self) -> int:
        """The most configurations that a case has beside its default."""
        return max(map(len, self.configs.values())) - 1


def find_tunables(invocation: Invocation) -> tuple[str, list[Tunable]]:
    """The name of the device's profile, and what there is to tune on it.

    Raises UsageError for an implementation that offers no configurations, UnavailableError where it cannot run here.
    """
    with tempfile.TemporaryDirectory(prefix="normbwd-") as folder:
        started = start_worker(invocation.start(), Path(folder) / "worker.log")
        try:
            profile, facts = profiles.choose(invocation.device, started.hello.available)
            cases = list(invocation.cases) or cases_on(facts.kind, invocation.settings)
            impls = _implementations(invocation, started.hello.implementations)
            tunables = [_tunable(impl, cases, started.worker, invocation.time_limit_s) for impl in impls]
        finally:
            started.worker.kill()
    return profile.name, tunables


def _implementations(invocation: Invocation, implementations: Sequence[ImplRecord]) -> list[ImplRecord]:
    """The implementations of --impls, or those of the --impl files, or the in-house one."""
    files = tuple(map(str, invocation.impl_files))
    of_files = [item.name for item in implementations if item.source in files and not item.name.endswith(WITH_TORCH)]
    patterns = invocation.settings.impls or ",".join(of_files) or OWN_IMPL
    return select(implementations, patterns, None, "", files)


def _tunable(impl: ImplRecord, cases: Sequence[NormCase], worker: Worker, time_limit_s: float) -> Tunable:
    if impl.missing:
        raise UnavailableError(f"{impl.name} cannot be tuned here: {sentence(impl.missing)}")
    offers = _ask(impl.name, cases, worker, time_limit_s)
    for case, offer in zip(cases, offers, strict=True):
        if offer.fault:
            raise UsageError(f"{impl.name} cannot be tuned for {case.key}: {offer.fault}")
        if len(offer.configs) > MOST_CONFIGS + 1:
            raise UsageError(
                f"{impl.name} offers {len(offer.configs) - 1} configurations for {case.key} beside its default, and "
                f"{MOST_CONFIGS} can be measured; let its configs(case) offer fewer"
            )
    configs = {case: offer.configs for case, offer in zip(cases, offers, strict=True) if len(offer.configs) > 1}
    if not configs:
        if refusal := next((offer.refusal for offer in offers if offer.refusal), None):
            raise UnavailableError(f"{impl.name} cannot be tuned here: {refusal}")
        raise UsageError(f"{impl.name} offers no configurations of these cases; docs/tune.md says how an adapter does")
    return Tunable(impl.name, configs)


def _ask(name: str, cases: Sequence[NormCase], worker: Worker, time_limit_s: float) -> Sequence[Offer]:
    worker.send(ListConfigs(name, tuple(cases)))
    match worker.receive(time_limit_s):
        case Offered(offers=offers):
            worker.receive(time_limit_s)  # Done
            return offers
        case None:
            raise UnavailableError(f"configs(case) of {name} did not answer within {time_limit_s:g} s")
        case event:
            raise UnavailableError(f"the worker answered {event} when asked for the configurations of {name}")
