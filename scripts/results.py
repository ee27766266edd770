"""Reader: result files become tables. Plots, report and compare all start from them.

read(paths) takes feedrate's files, scripts/reference.py's and interleave.py's, plain Google
Benchmark's, trace files (bench --timeline), and folders of them. It returns Results:

    rows        one line a repetition of a row; a skipped row is one line with its reason
    aggregates  Google Benchmark's own mean, median, …, never mixed with the rows
    runs        who measured where: one entry a run of a program, with the whole context
    traces      the timelines
    notes       what was tolerated or left out, a line each

A file that cannot be understood is a UsageError with the file, the place and what is wrong. Needs
pandas (scripts/look.sh brings it).
"""

import dataclasses
import json
import os
import re

import common

try:
    import pandas
except ImportError as error:
    common.missing(error)

# --- Names: what Google Benchmark and feedrate call things ----------------------------------------

SIMULATED, IMPLEMENTATION = "feedrate.simulated", "feedrate.implementation"
BENCH, REFERENCE, PUBLISHED, PLAIN = "bench", "reference", "published", "google benchmark"
MS_PER_UNIT = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
TEXTS = ("run_name", "run_type", "time_unit", "label", "aggregate_name", "aggregate_unit")
MESSAGES = ("error_message", "skip_message")
# Fields of a row that are no counters.
STOCK = {
    *("name", "family_index", "per_family_instance_index", "repetitions", "repetition_index"),
    *("threads", "iterations", "real_time", "cpu_time", "error_occurred", "skipped"),
    *TEXTS,
    *MESSAGES,
}
# A text under such a name is a broken counter, any other text a field that we do not know.
COUNTER_NAME = re.compile(
    r"_(ms|us|s|GBps|GB|per_s|per_second)$|^(GBps|spread|overlap|gpu_idle|efficiency|of_\w+)$"
)
# What Google Benchmark appends to a row's name for settings that are no arguments.
NAME_SETTINGS = {"iterations", "repeats", "min_time", "min_warmup_time", "warmup_time"}
NAME_FLAGS = {"manual_time", "real_time", "process_time"}
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
LIMIT = re.compile(r"limit: (\w+)")
CLOCK = re.compile(r"clock: (\w+)")
# Two machines may have the same GPU and as many cores.
HOST = ("cpu", "memory_GB", "driver", "cuda")
# Members of a spec that say how long a row ran, not what it is.
SAMPLING = ("steps", "warmup", "cooldown")
PLACE_COLUMNS = (
    *("run", "round", "repetition", "iterations", "runs"),
    *("simulated", "unsteady", "negative_control"),
)
TEXT_COLUMNS = (
    *("file", "machine", "setup", "implementation", "family", "row", "variant"),
    *("label", "limit", "clock", "error", "skipped"),
)


@dataclasses.dataclass
class Run:
    """One run of a program: what its rows have in common."""

    file: str
    context: dict
    specs: dict
    number: int = 0
    round: int = 0  # of interleave.py, from 1
    machine: str = ""  # GPU and cores, or CPU and cores: the same for measured and simulated
    setup: str = ""  # the machine and what tells this run from other ones of the machine

    @property
    def implementation(self):
        known = any(key.startswith("feedrate.") for key in self.context)
        return self.context.get(IMPLEMENTATION, BENCH) if known else PLAIN

    @property
    def simulated(self):
        return self.context.get(SIMULATED) == "true"

    def get(self, key, default=""):
        return self.context.get("feedrate." + key, default)

    def cores(self):
        text = self.get("cores_usable") or self.get("cores") or self.context.get("num_cpus", "")
        if self.simulated:
            found = re.search(r"(\d+) (?:cores|vCPU)", self.get("profile_gpu"))
            text = found[1] if found else ""
        return int(text) if str(text).isdigit() else 0


@dataclasses.dataclass
class Trace:
    """A timeline: lanes of complete events, ms from the first one's begin."""

    file: str
    title: str
    simulated: bool
    lanes: list  # of (name, [(begin_ms, end_ms, name, details)]) in the order of the tracks


@dataclasses.dataclass
class Results:
    rows: pandas.DataFrame
    aggregates: pandas.DataFrame
    runs: list
    traces: list
    notes: list

    def setups(self):
        """The set-ups in the order of the files, each with its runs."""
        found = {}
        for run in self.runs:
            found.setdefault(run.setup, []).append(run)
        return found


def good(rows):
    """The rows that have figures."""
    return rows[(rows["error"] == "") & (rows["skipped"] == "")]


def counters_of(rows):
    """The columns that are counters and hold something."""
    return [
        name
        for name in rows.columns[rows.notna().any()]
        if name not in PLACE_COLUMNS
        and name not in TEXT_COLUMNS
        and not name.startswith(("arg_", "spec_"))
    ]


def arguments_of(rows):
    return [name for name in rows.columns if name.startswith("arg_") and rows[name].notna().any()]


def medians(rows):
    """One line a row of a set-up: medians of its `runs` repetitions, and texts where all agree."""
    found = good(rows)
    if found.empty:
        return found.assign(runs=pandas.Series(dtype=int))

    keys = ["setup", "row"]
    plain = [
        name
        for name, kind in found.dtypes.items()
        if pandas.api.types.is_numeric_dtype(kind) and not pandas.api.types.is_bool_dtype(kind)
    ]
    texts = [name for name in found.columns if name not in plain and name not in keys]
    grouped = found.groupby(keys, sort=False)
    agreed = grouped[texts].first()
    agreed = agreed.where(grouped[texts].nunique() <= 1, "")
    agreed["limit"] = grouped["limit"].agg(lambda c: " or ".join(sorted(set(c) - {""})))
    for name in ("unsteady", "negative_control", "simulated"):
        agreed[name] = grouped[name].any()
    table = grouped[plain].median().join(agreed).join(grouped.size().rename("runs"))
    return with_bound(table.reset_index())


def with_bound(table):
    """Medians of rates and of bounds are of different repetitions: set side by side, a row could
    pass its bound. So the bound is the one that the shares of it speak of."""
    if {"steps_per_s", "of_limit", "limit_steps_per_s"} <= set(table.columns):
        known = (table["of_limit"] > 0) & table["steps_per_s"].notna()
        bound = table["steps_per_s"] / table["of_limit"].where(known)
        table["limit_steps_per_s"] = bound.fillna(table["limit_steps_per_s"])
    return table


# --- One file -------------------------------------------------------------------------------------


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def fail(place, problem):
    raise common.UsageError(f"{place}: {problem}")


def load(path):
    try:
        if os.path.getsize(path) == 0 and os.path.isfile(path):
            fail(path, "the file is empty")
        return common.read_json(path)
    except OSError as error:
        fail(path, f"cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        fail(path, "no text in UTF-8, so no JSON")
    except RecursionError:
        fail(path, "nested too deeply for a result file")
    except ValueError as error:
        fail(path, f"not strict JSON: {error}")


def files_of(paths):
    """Yields (path, named): a folder stands for the JSON files below it."""
    for path in paths:
        if not os.path.isdir(path):
            yield path, True
            continue
        found = list(common.files_of([path]))
        if not found:
            fail(path, "no .json file in this folder")
        yield from ((name, False) for name in found)


def argument_of(text):
    if not NUMBER.fullmatch(text):
        return text
    number = float(text)
    return int(number) if number.is_integer() else number


def parse_name(name):
    """'H2D/pinned/async/bytes:4096' -> ('H2D', 'pinned/async', {'bytes': 4096})."""
    family, *parts = name.split("/")
    variant, arguments = [], {}
    for part in parts:
        key, colon, value = part.partition(":")
        if colon and key.isidentifier() and value:
            if key not in NAME_SETTINGS:
                arguments[key] = argument_of(value)
        elif part not in NAME_FLAGS:
            variant.append(part)
    return family, "/".join(variant), arguments


def number_of(place, row, key, default=None):
    value = row.get(key, default)
    if value is None:
        fail(place, f"{key} is missing")
    if not is_number(value):
        fail(place, f"{key} is {json.dumps(value)}, not a number")
    try:
        return float(value)
    except OverflowError:
        fail(place, f"{key} is out of range")


def message_of(row, place):
    """(error, skipped) of a row that has no figures; ('', '') of one that has."""
    for key in MESSAGES:
        if not isinstance(row.get(key, ""), str):
            fail(place, f"{key} is {json.dumps(row[key])}, not a text")
    if row.get("error_occurred"):
        return row.get("error_message") or "an error without a message", ""
    if row.get("skipped"):
        reason = row.get("skip_message") or row.get("error_message")
        return "", reason or "skipped without a reason"
    return "", ""


def parse_row(place, row):
    """The tidy line of one row, without what it shares with its run."""
    for key in TEXTS:
        if not isinstance(row.get(key, ""), str):
            fail(place, f"{key} is {json.dumps(row[key])}, not a text")
    name = row.get("run_name") or row["name"]
    family, variant, arguments = parse_name(name)
    label = row.get("label", "")
    limit, clock = LIMIT.search(label), CLOCK.search(label)
    error, skipped = message_of(row, place)
    line = {
        "family": family,
        "row": name,
        "variant": variant,
        "label": label,
        "limit": limit[1] if limit else "",
        "clock": clock[1] if clock else "",
        "unsteady": "unsteady" in label,
        "negative_control": "negative control" in label,
        "error": error,
        "skipped": skipped,
        **{"arg_" + key: value for key, value in arguments.items()},
    }
    aggregate = row.get("aggregate_name")
    if "run_type" in row and row["run_type"] not in ("iteration", "aggregate"):
        fail(place, f"run_type is {json.dumps(row['run_type'])}, not 'iteration' or 'aggregate'")
    if aggregate or row.get("run_type") == "aggregate":
        line["aggregate"] = aggregate or "unnamed"
        line["aggregate_unit"] = row.get("aggregate_unit", "time")
    if error or skipped:
        return line
    if "cpu_coefficient" in row or "rms" in row:
        line.setdefault("aggregate", "complexity")
        return line
    unit = row.get("time_unit", "ns")
    if unit not in MS_PER_UNIT:
        fail(place, f"time_unit is {json.dumps(unit)}, not one of {', '.join(MS_PER_UNIT)}")
    scale = 1.0 if line.get("aggregate_unit") == "percentage" else MS_PER_UNIT[unit]
    line["real_time_ms"] = number_of(place, row, "real_time") * scale
    line["cpu_time_ms"] = number_of(place, row, "cpu_time", 0.0) * scale
    line["iterations"] = number_of(place, row, "iterations", 0)
    for key, value in row.items():
        if key in STOCK:
            continue
        if is_number(value):
            line[key] = number_of(place, row, key)
        elif COUNTER_NAME.search(key):
            fail(place, f"counter {key} is {json.dumps(value)}, not a number")
    return line


def parse_result(path, result):
    """Returns (context, specs, lines) of one result in Google Benchmark's shape."""
    if not isinstance(result, dict):
        fail(path, "no result file: not an object")
    context, rows = result.get("context"), result.get("benchmarks")
    if not isinstance(context, dict):
        fail(path, "'context' is missing or no object")
    if not isinstance(rows, list):
        fail(path, "'benchmarks' is missing or no list")
    for key, value in context.items():
        if key.startswith("feedrate.") and not isinstance(value, str):
            fail(path, f"context {key} is {json.dumps(value)}, not a text")
    specs = result.get("specs", {})
    if not isinstance(specs, dict) or not all(isinstance(s, dict) for s in specs.values()):
        fail(path, "'specs' is no object of objects")
    lines, seen = [], {}
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            fail(path, f"benchmarks[{number}] is no object")
        if not isinstance(row.get("name"), str) or not row["name"]:
            fail(path, f"benchmarks[{number}]: the name is missing, empty or no text")
        place = f"{path}: {row['name']}"
        line = parse_row(place, row)
        # Google Benchmark lets two families have one name; one row cannot stand twice.
        keys = ("name", "repetition_index", "aggregate_name")
        key = tuple(row.get(k) for k in (*keys, "family_index", "per_family_instance_index"))
        try:
            if key in seen:
                fail(place, f"stands twice (benchmarks[{seen[key]}] and benchmarks[{number}])")
            seen[key] = number
        except TypeError:
            fail(place, f"one of {', '.join(keys)} is neither text nor number")
        lines.append(line)
    skipped = result.get("skipped", [])
    if not isinstance(skipped, list):
        fail(path, "'skipped' is no list")
    for number, entry in enumerate(skipped):
        if not isinstance(entry, dict) or not all(
            isinstance(entry.get(key), str) and entry[key] for key in ("name", "reason")
        ):
            fail(path, f"skipped[{number}] needs a name and a reason, both texts")
        lines.append(
            parse_row(
                path, {"name": entry["name"], "skipped": True, "skip_message": entry["reason"]}
            )
        )
    return context, specs, lines


def parse_trace(path, value):
    events = value if isinstance(value, list) else value.get("traceEvents")
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        fail(path, "'traceEvents' is no list of objects")
    processes, threads, order, lanes = {}, {}, {}, {}
    for number, event in enumerate(events):
        place = f"{path}: traceEvents[{number}]"
        track = (event.get("pid", 0), event.get("tid", 0))
        if not all(isinstance(part, (int, str)) for part in track):
            fail(place, "pid or tid is neither a number nor a text")
        if event.get("ph") == "M":
            details = event.get("args")
            if not isinstance(details, dict):
                fail(place, "a metadata event without args")
            if event.get("name") == "thread_name":
                threads[track] = str(details.get("name", ""))
            elif event.get("name") == "process_name":
                processes[track[0]] = str(details.get("name", ""))
            elif event.get("name") == "thread_sort_index":
                order[track] = number_of(place, details, "sort_index")
        elif event.get("ph") == "X":
            begin = number_of(place, event, "ts") / 1e3
            length = number_of(place, event, "dur") / 1e3
            if length < 0:
                fail(place, f"dur is {event['dur']}, an event cannot end before it begins")
            details = event.get("args", {})
            lanes.setdefault(track, []).append(
                (begin, begin + length, str(event.get("name", "")), details)
            )
    if not lanes:
        fail(path, "the trace has no complete events (ph 'X')")
    known = list(threads)
    tracks = sorted(
        lanes, key=lambda t: (order.get(t, 0), known.index(t) if t in known else len(known))
    )
    words = value.get("otherData", {}) if isinstance(value, dict) else {}
    words = words if isinstance(words, dict) else {}
    simulated = words.get("simulated") in (True, "true") or any(
        "simulated" in name.lower() for name in processes.values()
    )
    found = []
    # Of several rows in one file, each may be a process of its own: one trace each.
    for process in dict.fromkeys(track[0] for track in tracks):
        own = [track for track in tracks if track[0] == process]
        zero = min(begin for track in own for begin, *_ in lanes[track])
        named = [
            (
                threads.get(track, f"track {track[1]}"),
                sorted(
                    ((b - zero, e - zero, name, details) for b, e, name, details in lanes[track]),
                    key=lambda event: (event[0], -event[1]),
                ),
            )
            for track in own
        ]
        title = processes.get(process) or os.path.basename(path)
        found.append(Trace(path, title, simulated, named))
    return found


# --- All files ------------------------------------------------------------------------------------


def machine_of(run):
    """GPU and cores as words that a simulated run of the machine's profile has as well."""
    gpu = run.get("profile_gpu").split(",")[0] if run.simulated else run.get("gpu")
    name = gpu or run.get("cpu") or run.context.get("host_name") or "unknown machine"
    cores = run.cores()
    device = run.get("device")
    if device == "cpu":
        name = run.get("cpu") or name
    if name == "unknown":
        name = "unknown processor"
    return f"{name}, {cores} cores" if cores else str(name)


def setup_key(run):
    """Rows of runs that agree in this are repetitions of each other."""
    return (
        run.machine,
        run.simulated,
        run.implementation,
        *(run.get(key) for key in ("workers", "window", "batch", "image", "git_revision")),
        *(run.get(key) for key in (("profile_source",) if run.simulated else HOST)),
        "" if run.implementation != PLAIN else str(run.context.get("executable")),
    )


def same_specs(run, others):
    def core(spec):
        return {key: value for key, value in spec.items() if key not in SAMPLING}

    for other in others:
        for name in run.specs.keys() & other.specs.keys():
            if core(run.specs[name]) != core(other.specs[name]):
                return False
    return True


def base_label(run):
    words = [run.machine]
    if run.simulated:
        words.append("simulated")
    if run.implementation == REFERENCE:
        words.append("PyTorch original")
    elif run.implementation == PUBLISHED:
        words.append("published")
    return ", ".join(words)


def distinctions(run):
    """What may tell two set-ups of one machine apart, the most telling first."""
    return {
        "workers": f"{run.get('workers')} workers" if run.get("workers") else "",
        "window": f"{run.get('window')} window" if run.get("window") else "",
        "shape": f"{run.get('batch')} x {run.get('image')}²" if run.get("batch") else "",
        "revision": f"at {run.get('git_revision')[:7]}" if run.get("git_revision") else "",
        "profile": run.get("profile") if run.simulated else "",
        "processor": run.get("cpu"),
        "memory": f"{run.get('memory_GB')} GB" if run.get("memory_GB") else "",
        "driver": f"driver {run.get('driver')}" if run.get("driver") else "",
        "program": str(run.context.get("executable", "")),
        "file": os.path.basename(run.file),
        "path": run.file,
    }


def name_setups(runs):
    groups = []  # of runs that belong together
    for run in runs:
        for group in groups:
            if setup_key(group[0]) == setup_key(run) and same_specs(run, group):
                group.append(run)
                break
        else:
            groups.append([run])
    by_base = {}
    for group in groups:
        by_base.setdefault(base_label(group[0]), []).append(group)
    for base, siblings in by_base.items():
        words = {id(group): [] for group in siblings}
        for key in distinctions(siblings[0][0]):
            if len({tuple(parts) for parts in words.values()}) == len(siblings):
                break
            values = [distinctions(group[0])[key] for group in siblings]
            if len(set(values)) > 1:
                for group, value in zip(siblings, values, strict=True):
                    words[id(group)] += [value] if value else []
        for number, group in enumerate(siblings):
            own = words[id(group)]
            if len(siblings) > 1 and [words[id(g)] for g in siblings].count(own) > 1:
                own = [*own, f"run {number + 1}"]
            for run in group:
                run.setup = ", ".join([base, *own])


# What our other scripts make from results, and may lie beside them: its keys.
MADE_FROM_RESULTS = {
    "a profile": {"make", "compute", "source"},
    "the effects of a factorial": {"effects", "interactions"},
}


def made_from_results(value):
    return next((what for what, keys in MADE_FROM_RESULTS.items() if keys <= value.keys()), None)


def parse_file(path, named, found):
    """Adds what a file holds to found: (runs with their lines, traces, notes)."""
    runs, traces, notes = found
    value = load(path)
    bare = isinstance(value, list) and any(isinstance(e, dict) and "ph" in e for e in value)
    if bare or (isinstance(value, dict) and "traceEvents" in value):
        traces += parse_trace(path, value)
    elif isinstance(value, dict) and (what := made_from_results(value)):
        notes.append(f"{path}: {what}, not a result: left out")
    elif isinstance(value, dict) and "rounds" in value:
        if not isinstance(value["rounds"], list):
            fail(path, "'rounds' is no list")
        for number, single in enumerate(value["rounds"]):
            entries = single.get("runs") if isinstance(single, dict) else None
            if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
                fail(path, f"rounds[{number}]: 'runs' is no list of objects")
            for entry in entries:
                program = entry.get("program", "a program")
                if entry.get("result") is None:
                    notes.append(f"{path}: round {number + 1}: {program} gave no result")
                    continue
                place = f"{path}: round {number + 1}, {program}"
                context, specs, lines = parse_result(place, entry["result"])
                runs.append((Run(path, context, specs, round=number + 1), lines))
        problems = value.get("problems", [])
        if not isinstance(problems, list):
            fail(path, "'problems' is no list")
        notes += [f"{path}: {problem}" for problem in problems]
    elif isinstance(value, dict) and ("benchmarks" in value or "context" in value):
        context, specs, lines = parse_result(path, value)
        runs.append((Run(path, context, specs), lines))
        if context.get("feedrate.interrupted") == "true":
            notes.append(f"{path}: the run was interrupted, it holds what had finished")
        if context.get("feedrate.warning"):
            notes.append(f"{path}: {context['feedrate.warning']}")
        if not lines:
            notes.append(f"{path}: no rows")
    elif named:
        what = "it has neither 'benchmarks' nor 'rounds' nor 'traceEvents'"
        what = "a list without events" if isinstance(value, list) else what
        fail(path, f"neither a result file nor a trace: {what}")
    else:
        notes.append(f"{path}: neither a result file nor a trace: left out")


def table_of(lines):
    table = pandas.DataFrame(lines)
    for name in TEXT_COLUMNS:
        table[name] = table[name].fillna("") if name in table else ""
    for name in ("unsteady", "negative_control", "simulated"):
        table[name] = table[name].fillna(False).astype(bool) if name in table else False
    for name in ("run", "round", "repetition", "iterations", "real_time_ms", "cpu_time_ms"):
        if name not in table:
            table[name] = pandas.Series(dtype=float)
    first = [
        *("file", "run", "round", "machine", "setup", "simulated", "implementation"),
        *("family", "row", "variant"),
        *sorted(name for name in table.columns if name.startswith("arg_")),
        *("repetition", "iterations", "real_time_ms", "cpu_time_ms"),
        *("label", "limit", "clock", "unsteady", "negative_control", "error", "skipped"),
    ]
    return table[[*first, *(name for name in table.columns if name not in first)]].copy()


def shape_of(run, row):
    """What ran, of the members that the pictures need. A row that is no loop has no spec."""
    spec = run.specs.get(row, {})
    values = {key: spec.get(key, run.get(key)) for key in ("batch", "image", "workers")}
    return {"spec_" + key: int(v) for key, v in values.items() if str(v).isdigit()}


def read(paths):
    found = ([], [], [])
    for path, named in files_of(paths):
        parse_file(path, named, found)
    with_lines, traces, notes = found
    runs = [run for run, _ in with_lines]
    for number, run in enumerate(runs):
        run.number = number
        run.machine = machine_of(run)
    name_setups(runs)
    rows, aggregates, repetitions = [], [], {}
    for run, lines in with_lines:
        shared = {
            "file": run.file,
            "run": run.number,
            "round": run.round,
            "machine": run.machine,
            "setup": run.setup,
            "simulated": run.simulated,
            "implementation": run.implementation,
        }
        for line in lines:
            if "aggregate" in line:
                aggregates.append({**shared, **line})
                continue
            key = (run.setup, line["row"])
            line["repetition"] = repetitions[key] = repetitions.get(key, -1) + 1
            rows.append({**shared, **line, **shape_of(run, line["row"])})
    return Results(table_of(rows), table_of(aggregates), runs, traces, notes)
