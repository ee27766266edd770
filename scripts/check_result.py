#!/usr/bin/env python3
"""Checks result files: strict JSON, Google Benchmark's schema, the promised counters, sums that
must add up. Prints one line a problem; exit status 1 if there is any, 2 for wrong usage."""

import sys

import common

# What the rows of a file must carry depends on who wrote it: context["feedrate.implementation"],
# and bench where the key is missing.
COUNTERS = {
    "bench": (
        "steps_per_s",
        "images_per_s",
        "step_p50_ms",
        "step_p95_ms",
        "h2d_GBps",
        "feed_GBps",
        "compute_ms",
        "exposed_copy_ms",
        "exposed_fetch_ms",
        "exposed_host_ms",
        "other_ms",
        "overlap",
        "gpu_idle",
        "limit_steps_per_s",
        "of_limit",
        "bad_batches",
        "check_ms",
    ),
    "reference": ("steps_per_s", "images_per_s"),
    "published": ("steps_per_s", "images_per_s"),
}
# The families that run the whole training loop, and what else some of them are about.
LOOPS = ("Pipeline", "Workers", "BatchSize", "ImageSize", "Order", "Factorial", "Guard")
MORE_COUNTERS = {"Guard": ("peak_device_GB",)}
# In the label of a row that is to have bad batches.
NEGATIVE_CONTROL = "negative control"
# The parts of a step. They add up to its wall time.
SPLIT = ("compute_ms", "exposed_copy_ms", "exposed_fetch_ms", "exposed_host_ms", "other_ms")
SHARES = ("overlap", "gpu_idle")
# Nothing is copied, so there is no rate and no overlap; no stage takes time, so no limit is finite.
NULL_ROW = "Pipeline/null"
NULL_MAY_LACK = ("h2d_GBps", "feed_GBps", "overlap", "limit_steps_per_s", "of_limit")
# Simulated, the null row takes no time at all, and nothing can be divided by it.
TIMELESS_MAY_LACK = ("steps_per_s", "images_per_s", "gpu_idle")

TEXT, COUNT, NUMBER, LIST = "a text", "a whole number", "a number", "a list"
CONTEXT = {
    "date": TEXT,
    "host_name": TEXT,
    "executable": TEXT,
    "num_cpus": COUNT,
    "caches": LIST,
    "library_build_type": TEXT,
    "feedrate.device": TEXT,
    "feedrate.simulated": TEXT,
    "feedrate.build_type": TEXT,
    "feedrate.git_revision": TEXT,
}
OUR_CONTEXT = "feedrate."  # keys that begin so are texts
IMPLEMENTATION = "feedrate.implementation"
SIMULATED = "feedrate.simulated"
ROW = {
    "name": TEXT,
    "run_name": TEXT,
    "run_type": TEXT,
    "threads": COUNT,
    "real_time": NUMBER,
    "cpu_time": NUMBER,
    "time_unit": TEXT,
}
ITERATION_ROW = {"repetitions": COUNT, "repetition_index": COUNT, "iterations": COUNT}
AGGREGATE_ROW = {"aggregate_name": TEXT}
# Google Benchmark's other fields that are no numbers; everything else of a row is one.
MORE_TEXTS = ("label", "aggregate_unit", "big_o", "error_message", "skip_message")
FLAGS = ("error_occurred", "skipped")
MS_PER_UNIT = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
NAME_BYTES = 200
TOLERANCE = 0.01


def is_number(value):
    """A finite one: JSON's whole numbers have no end either."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and abs(value) <= sys.float_info.max


def is_a(kind, value):
    if kind == TEXT:
        return isinstance(value, str)
    if kind == LIST:
        return isinstance(value, list)
    return is_number(value) and (kind == NUMBER or (isinstance(value, int) and value >= 0))


def check_members(where, value, kinds):
    for key, kind in kinds.items():
        if key not in value:
            yield f"{where}: {key} is missing"
        elif not is_a(kind, value[key]):
            yield f"{where}: {key} is {value[key]!r}, not {kind}"


def check_context(context):
    yield from check_members("context", context, CONTEXT)
    for key, value in context.items():
        if key.startswith(OUR_CONTEXT) and key not in CONTEXT and not isinstance(value, str):
            yield f"context: {key} is {value!r}, not {TEXT}"
    if context.get(SIMULATED) not in (None, "true", "false"):
        yield f"context: {SIMULATED} is {context[SIMULATED]!r}, not 'true' or 'false'"
    if context.get(IMPLEMENTATION, "bench") not in COUNTERS:
        known = ", ".join(COUNTERS)
        yield f"context: {IMPLEMENTATION} is {context[IMPLEMENTATION]!r}, not one of {known}"


def check_name(where, name):
    if not name:
        yield f"{where}: the name is empty"
    if not name.isascii() or not name.isprintable():
        yield f"{where}: the name is not printable ASCII"
    if len(name.encode()) >= NAME_BYTES:
        yield f"{where}: the name has {len(name.encode())} bytes, not under {NAME_BYTES}"


def check_row(where, row, implementation):
    """One row. Yields problems; assumes nothing about its members."""
    problems = list(check_members(where, row, ROW))
    run_type = row.get("run_type")
    if run_type == "iteration":
        problems += check_members(where, row, ITERATION_ROW)
    elif run_type == "aggregate":
        problems += check_members(where, row, AGGREGATE_ROW)
    elif "run_type" in row:
        problems.append(f"{where}: run_type is {run_type!r}, not 'iteration' or 'aggregate'")
    if row.get("time_unit", "ms") not in MS_PER_UNIT:
        problems.append(f"{where}: time_unit is {row['time_unit']!r}, not one of ns, us, ms, s")
    if "skipped" in row:
        problems.append(f"{where}: a skipped row belongs into the list 'skipped'")
    problems += check_numbers(where, row)
    yield from problems
    if problems:
        return
    if row.get("error_occurred"):
        if not isinstance(row.get("error_message"), str) or not row["error_message"]:
            yield f"{where}: an error row without error_message"
        return
    if run_type == "iteration":
        yield from check_counters(where, row, implementation)


def check_numbers(where, row):
    """Counters have any name, so whatever is no field of another kind must be a number."""
    known = {**ROW, **ITERATION_ROW, **AGGREGATE_ROW}
    for key, value in row.items():
        if key in known or key in FLAGS:
            continue
        if key in MORE_TEXTS:
            if not isinstance(value, str):
                yield f"{where}: {key} is {value!r}, not {TEXT}"
        elif not is_number(value):
            yield f"{where}: counter {key} is {value!r}, not a finite number"


def check_counters(where, row, implementation):
    time_ms = row["real_time"] * MS_PER_UNIT[row["time_unit"]]
    is_null = is_row(row["name"], NULL_ROW)
    if time_ms < 0 or (time_ms == 0 and not is_null):
        yield f"{where}: real_time is {row['real_time']}"
        return
    if row["iterations"] < 1:
        yield f"{where}: iterations is {row['iterations']}"
    family = row["name"].partition("/")[0]
    if family not in LOOPS:
        return
    may_lack = NULL_MAY_LACK if is_null else ()
    if time_ms == 0:
        may_lack += TIMELESS_MAY_LACK
    counters = COUNTERS[implementation] + MORE_COUNTERS.get(family, ())
    for key in counters:
        if key not in row and key not in may_lack:
            yield f"{where}: counter {key} is missing"
    numbers = {key: value for key, value in row.items() if is_number(value)}
    yield from check_values(where, numbers, time_ms)
    yield from check_integrity(where, row, numbers.get("bad_batches", 0))


def check_values(where, numbers, time_ms):
    if all(key in numbers for key in SPLIT):
        total = sum(numbers[key] for key in SPLIT)
        if abs(total - time_ms) > TOLERANCE * time_ms:
            yield f"{where}: the parts add up to {total:.6g} ms, the step takes {time_ms:.6g} ms"
    for key in SPLIT:
        if numbers.get(key, 0) < 0:
            yield f"{where}: {key} is {numbers[key]:.6g}, a part cannot be negative"
    for key in SHARES:
        if not -1e-9 <= numbers.get(key, 0) <= 1 + 1e-9:
            yield f"{where}: {key} is {numbers[key]:.6g}, a share lies between 0 and 1"
    rate = numbers.get("steps_per_s")
    if rate is not None and abs(rate * time_ms - 1e3) > TOLERANCE * 1e3:
        yield f"{where}: steps_per_s is {rate:.6g}, but a step takes {time_ms:.6g} ms"


def check_integrity(where, row, bad):
    if NEGATIVE_CONTROL not in str(row.get("label", "")):
        if bad != 0:
            yield f"{where}: bad_batches is {bad:g}, not 0"
    elif bad == 0 and "/lag_ms:" in row["name"]:
        yield f"{where}: bad_batches is 0, though nothing guards them and each step lags"


def check_skipped(skipped, names):
    if not isinstance(skipped, list):
        yield "skipped is no list"
        return
    for number, entry in enumerate(skipped):
        where = f"skipped[{number}]"
        if not isinstance(entry, dict):
            yield f"{where} is no object"
            continue
        problems = list(check_members(where, entry, {"name": TEXT, "reason": TEXT}))
        yield from problems
        if problems:
            continue
        yield from check_name(where, entry["name"])
        if not entry["reason"]:
            yield f"{where}: {entry['name']} has no reason"
        if entry["name"] in names:
            yield f"{where}: {entry['name']} is a row as well"


def is_row(name, expected):
    """True for the row itself and for what Google Benchmark appends to its name."""
    return name == expected or name.startswith(expected + "/")


def check_result(result, expected=()):
    """Yields one line for each problem of a parsed file."""
    if not isinstance(result, dict):
        yield "the file is no object"
        return
    context, rows = result.get("context"), result.get("benchmarks")
    if not isinstance(context, dict):
        yield "context is no object"
        context = {}
    else:
        yield from check_context(context)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        yield "benchmarks is no list of objects"
        rows = []
    implementation = context.get(IMPLEMENTATION, "bench")
    if implementation not in COUNTERS:
        implementation = "bench"
    seen = set()
    for number, row in enumerate(rows):
        name = row.get("name")
        if not isinstance(name, str):
            yield f"benchmarks[{number}]: the name is missing or no text"
            continue
        where = name if name.isascii() and name else f"benchmarks[{number}]"
        yield from check_name(where, name)
        key = (name, row.get("repetition_index"), row.get("aggregate_name"))
        if key in seen:
            yield f"{where}: stands twice"
        seen.add(key)
        yield from check_row(where, row, implementation)
    names = {name for name, _, _ in seen}
    yield from check_skipped(result.get("skipped", []), names)
    for row in expected:
        if not any(is_row(name, row) for name in names):
            yield f"{row}: the row is missing"


def main(arguments):
    parser = common.Parser(description=__doc__, allow_abbrev=False)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument(
        "--expect", action="append", default=[], metavar="NAME", help="the row must be there"
    )
    options = parser.parse_args(arguments)
    bad = unread = False
    for path in options.files:
        problems = []
        try:
            problems = list(check_result(common.read_json(path), options.expect))
        except OSError as error:
            common.complain("check_result", f"{path} cannot be read: {error.strerror}")
            unread = True
        except (ValueError, RecursionError) as error:
            problems = [f"not strict JSON: {error}"]
        except TypeError as error:
            problems = [f"a value is of the wrong type: {error}"]
        for problem in problems:
            print(f"{path}: {problem}")
        bad = bad or bool(problems)
    return 2 if unread else 1 if bad else 0


if __name__ == "__main__":
    sys.exit(common.run(main, "check_result"))
