"""Headline, tallies and floors of published files, from raw samples: json, bz2, numpy and scipy, no code of harness.

Written from docs/method.md, so that an error of the analysis and of the documents' writer would show as a difference.
"""

from __future__ import annotations

import bz2
import json
import math
import re
from collections import Counter, defaultdict
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

CHECKOUT = Path(__file__).parents[2]
FILES = sorted(
    path.relative_to(CHECKOUT).as_posix()
    for path in CHECKOUT.glob("results/*/*.jsonl.bz2")
    if not path.name.startswith(("compare", "verify"))
)
OWN = "triton-inhouse"
PASSED = ("ok", "nondeterministic")
GRAVEST = ("wrong", "impossible", "crashed", "timeout", "oom", "unsupported", "missing", *reversed(PASSED))
PROCESS_BAND, RUN_BAND = 0.019, 0.035  # docs/method.md: 1.92 %, and 3.56 %
PLACES = ("first", "tied", "behind", "no verdict")


class Case:
    """One case in one context: its samples by (implementation, role) and process."""

    def __init__(self, fields, rows, t0s, baseline, context):
        self.fields, self.baseline, self.timings, self.doubted = fields, baseline, {}, set()
        statuses, prints, self.passes = defaultdict(list), defaultdict(set), {}
        for (process, impl, role), row in sorted(rows.items()):
            outcome = row if context == "cold" else (row.get("contexts") or {}).get(context, {})
            known = row["status"] if outcome.get("status", "ok") == "ok" else outcome["status"]
            timing = outcome.get("timing")
            statuses[impl, role].append(known)
            prints[impl, role].add((row.get("verification") or {}).get("fingerprint"))
            if timing is None or not timing.get("proven", True):
                self.doubted.add((impl, role))
            else:
                blocks = timing.get("blocks")
                samples = unpacked(timing["samples_us"])
                by_block = np.full(max(blocks or [len(samples) - 1], default=0) + 1, np.nan)
                by_block[blocks or slice(None)] = samples
                self.timings.setdefault((impl, role), {})[process] = (timing["group"], timing["flush"], by_block)
        self.status = {key: min(of_key, key=GRAVEST.index) for key, of_key in statuses.items()}
        self.same_bits = {k: self.status[k] == "ok" and len(prints[k] - {None}) < 2 for k in prints}
        self.t0s = t0s
        self._set_aside()

    def usable(self, key):
        return self.status.get(key) in PASSED and key not in self.doubted and key in self.timings

    def us(self, key):
        return float(np.median([np.nanmedian(by_block) for *_, by_block in self.timings[key].values()]))

    def _set_aside(self):
        """Processes whose ten t0 are above the fastest time, where others' are not."""
        keys = [key for key in self.timings if key[1] == "impl" and self.status[key] in PASSED]
        processes = {process for key in keys for process in self.timings[key]}
        fastest = min((self.us(key) for key in keys if self.usable(key)), default=math.inf)
        coarse = {process for process in processes if 10 * self.t0s.get(process, 0) > fastest}
        if coarse < processes:
            for key in list(self.timings):
                self.timings[key] = {p: timing for p, timing in self.timings[key].items() if p not in coarse}
                if not self.timings[key]:
                    del self.timings[key]

    def logs(self, base, other):
        """The log ratio of each block that both have, for each process that timed them together."""
        one, two = self.timings.get(base, {}), self.timings.get(other, {})
        both = [(one[process], two[process]) for process in sorted(one.keys() & two.keys())]
        together = [(a[2], b[2]) for a, b in both if a[:2] == b[:2]]
        logs = [np.log(a[: b.size] / b[: a.size]) for a, b in together]
        return [each[np.isfinite(each)] for each in logs]

    def too_short(self, key):
        return self.us(key) < 10 * max(self.t0s.get(process, 0) for process in self.timings[key])

    def ranked(self):
        """The implementations that compete, fastest first; and whether another one bars "fastest"."""
        base, barred, ranked = (self.baseline, "impl"), False, []
        for key in [key for key in self.timings if key[1] == "impl" and self.usable(key)]:
            disturbed = key != base and any(map(interferes, self.logs(base, key)))
            barred |= self.too_short(key) or disturbed
            together = key == base or not self.usable(base) or len(self.logs(base, key)) == len(self.timings[key])
            if together and not self.too_short(key) and not disturbed:
                ranked.append(key[0])
        return sorted(ranked, key=lambda impl: (self.us((impl, "impl")), impl)), barred

    def band(self):
        """What the A/A pair reads, at least PROCESS_BAND in one process; infinite without a verdict.

        The pair is the baseline's, or another's in a case that the baseline does not have.
        """
        pairs = {impl: self.logs((impl, "impl"), (impl, "again")) for impl, role in self.timings if role == "again"}
        if not pairs or any(interferes(logs) for of_impl in pairs.values() for logs in of_impl):
            return math.inf
        medians = {impl: [np.median(each) for each in logs] for impl, logs in pairs.items() if logs}
        bands = {
            impl: max(PROCESS_BAND if len(of) < 2 else 0, math.sqrt(np.mean(np.square(of))))
            for impl, of in medians.items()
        }
        return bands.get(self.baseline, max(bands.values()))

    @cached_property
    def _leads(self):
        """The lower end of the interval of the fastest over each implementation; none if nobody is called fastest."""
        ranked, barred = self.ranked()
        first = (ranked[0], "impl") if ranked and not barred else None
        return {impl: interval(self.logs((impl, "impl"), first))[0] for impl in ranked[1:]} if first else {}

    def leaders(self, floor=0.0):
        """The fastest and what cannot be told from it, none if nobody is called fastest."""
        ranked, barred = self.ranked()
        band = max(floor, self.band())
        return [] if barred else ranked[:1] + [impl for impl, low in self._leads.items() if low <= band]

    def place(self, floor=0.0):
        """Whether the in-house kernel or a variant of it is first, tied or behind, or nobody is called fastest."""
        mine = list(map(is_own, self.leaders(floor)))
        return "no verdict" if not mine else "first" if all(mine) else "tied" if any(mine) else "behind"

    def near(self, floor=0.0):
        """Whether an interval ends so near to the band that another draw of the bootstrap may decide otherwise."""
        one_process = max((len(of_key) for of_key in self.timings.values()), default=0) < 2
        return one_process and any(abs(low - max(floor, self.band())) < 0.002 for low in self._leads.values())

    def lead(self):
        """The in-house kernel's best time over that of the others' best, by blocks; None without a verdict."""
        ranked, barred = self.ranked()
        best = [next((impl for impl in ranked if is_own(impl) == own), None) for own in (False, True)]
        if barred or None in best:
            return None
        return math.exp(np.mean([np.median(each) for each in self.logs(*((impl, "impl") for impl in best))]))

    def speedup(self, impl):
        logs = self.logs((self.baseline, "impl"), (impl, "impl"))
        return 1.0 if impl == self.baseline else math.exp(np.mean([np.median(each) for each in logs]))

    @property
    def name(self):
        case = self.fields
        more = [f"w{case['weight_dtype']}"] * (case["weight"] and case["weight_dtype"] != case["dtype"])
        more += ["noweight"] * (not case["weight"]) + ["zerocentred"] * case["zero_centred"]
        more += [f"qk{case['heads']}of{case['projection']}" if f == "qk" else f for f in case.get("features", [])]
        return "-".join([case["norm"], f"{case['rows']}x{case['cols']}", case["dtype"], *more])


def is_own(impl):
    return impl == OWN or impl.startswith(f"{OWN}-")


def unpacked(samples):
    if isinstance(samples, list):
        return samples
    return [(samples["median"] + each) * samples["unit_ns"] / 1000 for each in samples["from_median"]]


def interferes(logs):
    """Scatter above 15 %, drift above 10 %, or more than 10 % of the blocks off by 30 %."""
    lower, upper = np.percentile(logs, (25, 75))
    third = len(logs) // 3
    drift = abs(np.median(logs[-third:]) - np.median(logs[:third])) if len(logs) >= 9 else 0
    bursts = np.mean(np.abs(logs - np.median(logs)) > 0.3) if len(logs) >= 9 else 0
    return (upper - lower) / 2 > 0.15 or drift > 0.1 or bursts > 0.1


def interval(logs):
    """The 95 % interval of a log ratio: Student's t over processes; of one, by ranks or a bootstrap, the wider."""
    if len(logs) > 1:
        medians = [np.median(each) for each in logs]
        return stats.t.interval(0.95, len(medians) - 1, np.mean(medians), stats.sem(medians))
    values = np.asarray(logs[0])
    rank = int(stats.binom.ppf(0.025, values.size, 0.5)) - 1
    ordered, random = np.sort(values), np.random.default_rng(0)
    places = random.integers(values.size, size=(values.size, 400))  # a stationary bootstrap
    goes_on = random.random(places.shape) > 1 / max(2, round(values.size ** (1 / 3)))
    for place in range(1, values.size):
        places[place] = np.where(goes_on[place], (places[place - 1] + 1) % values.size, places[place])
    medians = np.median(values[places], axis=0)
    low, high = np.percentile(medians, (2.5, 97.5))
    return min(low, ordered[rank]), max(high, ordered[-1 - rank])


@lru_cache(maxsize=1)
def read(name):
    """The first line of a file, its rows by case, and t0 by process."""
    run, cases, t0s = {}, defaultdict(dict), defaultdict(float)
    for line in bz2.decompress((CHECKOUT / name).read_bytes()).splitlines():
        record = json.loads(line)
        if record["record"] == "run":
            run = record
        elif record["record"] == "row":
            cases[json.dumps(record["case"])][record["process"], record["impl"], record["role"]] = record
        elif record["record"] == "selftest":
            t0s[record["process"]] = max(t0s[record["process"]], record["budget"]["t0_us"])
    return run, cases, t0s


def contexts(name):
    """The contexts of a file, cold first; in a file of verifications nothing."""
    settings = read(name)[0]["settings"]
    return list(dict.fromkeys(["cold", *settings.get("context", "cold").split(",")])) if settings["timed"] else []


def cases_of(name, context="cold"):
    run, cases, t0s = read(name)
    base = run["settings"]["baseline"]
    t0s = {} if context == "host" else t0s
    return [Case(json.loads(case), rows, t0s, base, context) for case, rows in cases.items()]


def tables(text):
    """The markdown tables of a text, each as a list of rows by heading."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        heads, _, *rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.splitlines()]
        found.append([dict(zip(heads, row, strict=True)) for row in rows])
    return found


def differing(what, figures, values):
    """The figures of a text that are not these values, to their own digits."""
    pairs = [(figure, value, len(figure.partition(".")[2])) for figure, value in zip(figures, values, strict=True)]
    return [f"{what}: {text}, not {v}" for text, v, digits in pairs if abs(float(text) - v) > 0.5 * 10**-digits + 1e-9]


def means(cases):
    """By norm and implementation: the geometric mean, the ends, the number of cases, and cases won alone."""
    speedups, won = defaultdict(list), Counter()
    for case in cases:
        ranked, _ = case.ranked()
        for impl in ranked:
            won[case.fields["norm"], impl] += case.leaders() == [impl]
            speedups[case.fields["norm"], impl] += [case.speedup(impl)] if case.baseline in ranked else []
    return {
        key: (stats.gmean(values), min(values), max(values), len(values), won[key])
        for key, values in speedups.items()
        if values
    }


def wrong_times(cases, text):
    """The medians in a report's tables of times that are not those of the samples."""
    by_name, found = {case.name: case for case in cases}, []
    for row in (row for table in tables(text) for row in table if row.get("case") in by_name):
        case = by_name[row["case"]]
        for impl, cell in row.items():
            figure = re.match(r"\**([\d.]+)\**", cell)
            if figure and (impl, "impl") in case.timings:
                found += differing(f"{case.name} {impl}", [figure[1]], [case.us((impl, "impl"))])
    return found


def wrong_means(cases, text):
    """The mean speedups in a report's summary, with their ends and counts, that are not those of the samples."""
    mine, found, seen = means(cases), [], set()
    for table in tables(text):
        for row in table:
            speedup = next((cell for head, cell in row.items() if head.startswith("geomean speedup vs")), None)
            key = row.get("norm"), row.get("impl", "").partition(" (")[0]
            if speedup is None or key in seen:  # the first summary is of cold
                continue
            seen.add(key)
            ends = row.get("smallest to largest", "").split(" to ")
            said = [speedup, *ends, row["cases"].split(" of ")[0], row.get("fastest in", row.get("first in"))]
            found += differing(key, said, mine.get(key, [0] * 5))
    assert not mine or seen
    return found


def wrong_bands(cases, text):
    """The narrowest and the widest A/A band of a report, if they are not those of the samples."""
    bands = [100 * math.expm1(band) for case in cases if math.isfinite(band := case.band())]
    said = re.search(r"A/A bands?: ±([\d.]+) %(?: to ±([\d.]+) %)?", text)
    if not said or not bands:
        return []
    ends = (min(bands), max(bands)) if said[2] else (max(bands),)
    return differing("band", filter(None, said.groups()), ends)


def wrong_report(name, text):
    cases = cases_of(name)
    return wrong_times(cases, text) + wrong_means(cases, text) + wrong_bands(cases, text)


def wrong_places(device, run, context, cases, text):
    """The counts of a run in docs/results.md that are not those of the samples, but for calls that are too near."""
    heading = f"## {read(f'results/{device}/{run}.jsonl.bz2')[0]['device']['name']}\n"
    of_device = text.partition(heading)[2].partition("\n## ")[0]
    label = run if context == "cold" else f"{run}, {context}"
    rows = [row for table in tables(of_device) for row in table if "timed run" in row]
    (row,) = [row for row in rows if re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", row["timed run"]) == label]
    counts = Counter(case.place() for case in cases)
    near = sum(case.near() for case in cases)
    wrong = [
        f"{label}: {place} {row[place]}, not {counts[place]}" for place in PLACES if int(row[place]) != counts[place]
    ]
    return wrong if sum(abs(int(row[place]) - counts[place]) for place in PLACES) > 2 * near else []


def wrong_headline(device, cases, text):
    """The README's mean speedups of defaults on a device that are not those of the samples."""
    mine, found, seen = means(cases), [], 0
    for row in (row for table in tables(text) for row in table if "library" in row):
        for norm, head in {"rms": f"{device}, RMSNorm", "layer": f"{device}, LayerNorm"}.items():
            if figure := re.match(r"[\d.]+", row.get(head, "")):
                seen += 1
                library = row["library"].partition(" (")[0]
                found += differing(library, [figure[0]], mine[norm, library][:1])
    assert seen
    return found


def report_of(name):
    path = (CHECKOUT / name).with_name(Path(name).name.replace(".jsonl.bz2", ".md"))
    return path.read_text() if path.exists() else None


def document(name):
    return (CHECKOUT / name).read_text()


A_COUNT = r"\| \d+ of \d+ \|(?: [^|]+ \|)? (\d+) \| \d+ \|"  # with a column of common cases, where there is one
PLANTED = (r"\*\*([\d.]+)\*\*", A_COUNT, r"bands?: ±([\d.]+)")  # a time, a count, a band


@pytest.fixture(scope="module")
def small():
    """The smallest published file whose report has all of PLANTED."""
    names = sorted(FILES, key=lambda name: (CHECKOUT / name).stat().st_size)
    return next(name for name in names if all(re.search(figure, report_of(name) or "") for figure in PLANTED))


def with_another(match):
    """The text with the first digit of a figure one higher."""
    at = match.start(1)
    return f"{match.string[:at]}{(int(match.string[at]) + 1) % 10}{match.string[at + 1 :]}"


def test_a_report_says_what_its_samples_say(small):
    assert wrong_report(small, report_of(small)) == []


@pytest.mark.parametrize("figure", PLANTED)
def test_planted_error_is_found(small, figure):
    assert len(wrong_report(small, with_another(re.search(figure, report_of(small))))) == 1


def test_planted_error_in_the_tallies_is_found(small):
    _, device, file = Path(small).parts
    place = device, file.removesuffix(".jsonl.bz2"), "cold", cases_of(small)
    text, heading = document("docs/results.md"), f"## {read(small)[0]['device']['name']}\n"
    assert wrong_places(*place, text) == []
    line = re.compile(rf"\| \[{place[1]}\]\([^|]*\|[^|]*\| \d+ \| (\d+) ").search(text, text.index(heading))
    assert len(wrong_places(*place, with_another(line))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_report_and_tally_says_what_the_samples_say(name):
    device, run = Path(name).parts[1], Path(name).name.removesuffix(".jsonl.bz2")
    text = report_of(name)
    assert text is None or run == "engines" or wrong_report(name, text) == []
    for context in contexts(name):
        assert wrong_places(device, run, context, cases_of(name, context), document("docs/results.md")) == []


@pytest.mark.slow
def test_headline_and_floors_of_the_readme():
    headline = [name for name in FILES if Path(name).name == "fast-llm.jsonl.bz2"]
    for name in headline:
        assert wrong_headline(Path(name).parts[1], cases_of(name), document("README.md")) == []
    off, name = [], headline[-1]
    for case in cases_of(name):
        for impl in case.ranked()[0]:
            values = np.array([np.median(logs) for logs in case.logs((case.baseline, "impl"), (impl, "impl"))])
            off += list(np.abs(values - values.mean()) * math.sqrt(5 / 4)) if impl != case.baseline else []
    assert 0.018 < np.percentile(off, 95) <= PROCESS_BAND


@pytest.mark.slow
def test_tallies_of_all_runs():
    """Each case in each context once, of the first run of the plan that has it, current ones before stale ones."""
    plan = re.findall(r"^\[runs\.(\S+)\]", document("results/plan.toml"), re.MULTILINE)
    lines, devices = {}, {"rms": "RMSNorm", "layer": "LayerNorm"}
    for device in sorted({Path(name).parts[1] for name in FILES}):
        of_device = [name for run in plan if (name := f"results/{device}/{run}.jsonl.bz2") in FILES]
        section = (
            document("docs/results.md").partition(f"## {read(of_device[0])[0]['device']['name']}\n")[2].split("\n## ")
        )
        stale = re.findall(r"^\| \[?([\w-]+)\b[^|]*\| [\d-]+, stale", section[0], re.MULTILINE)
        for name in sorted(of_device, key=lambda name: Path(name).name.partition(".")[0] in stale):
            for context in contexts(name):
                for case in cases_of(name, context):
                    line = f"{read(name)[0]['device']['name']}, {devices[case.fields['norm']]}"
                    key = json.dumps(case.fields), context, read(name)[0]["settings"]["flush"]
                    cell = case.place(RUN_BAND), case.near(RUN_BAND), case.lead()
                    lines.setdefault(line, {}).setdefault(key, cell)
    (tallies,) = [table for table in tables(document("docs/results.md")) if "device, norm" in table[0]]
    assert {row["device, norm"] for row in tallies} == lines.keys()
    for row in tallies:
        cells = list(lines[row["device, norm"]].values())
        counts, near = Counter(place for place, *_ in cells), sum(near for _, near, _ in cells)
        said = [int(row[head]) for head in ("ahead", *PLACES[1:])]
        assert sum(said) == len(cells)
        assert sum(abs(count - counts[place]) for count, place in zip(said, PLACES, strict=True)) <= 2 * near
        leads = [lead for *_, lead in cells if lead]
        figures = re.findall(r"[\d.]+", row["lead over the best other"])
        assert differing("lead", figures, (stats.gmean(leads), min(leads), max(leads))) == []
