#!/usr/bin/env python3
"""Makes a profile for --device=sim from a result file of bench.

    build/bench --benchmark_filter='Pipeline|Compute' --benchmark_out=all.json
    scripts/make_profile.py all.json -o profile.json
    build/bench --device=sim:profile.json

Every cost is read off the row that shows it best; of several repetitions the median is taken. The
file says of each value which row and counter it comes from. The profile has one cost of making a
batch, the loop's own (baseline): many workers at once take longer for each batch, which the
simulated device knows only beyond the machine's cores.
"""

import statistics
import sys

from common import Parser, UsageError, check_writable, read_with, run, write_json

MEASURED = "measured"


def values_of(rows, name, counter):
    return [
        row[counter]
        for row in rows
        if row["run_name"] == name and row["run_type"] == "iteration" and counter in row
    ]


def median(rows, name, counter):
    values = values_of(rows, name, counter)
    if not values:
        raise UsageError(
            f"no {counter} of {name}: run bench with --benchmark_filter='Pipeline|Compute' and no "
            "overrides of the rows' members"
        )
    return statistics.median(values)


def profile_of(result, name):
    context = result["context"]
    if context.get("feedrate.simulated") != "false":
        raise UsageError("simulated, or not feedrate's: a profile needs measured times")
    rows = result["benchmarks"]

    def cost(scaling, note, *parts):
        """The sum of (sign, row, counter)."""
        ms = sum(sign * median(rows, row, counter) for sign, row, counter in parts)
        return {
            "ms": round(max(ms, 0.0), 4),
            "origin": MEASURED,
            "scaling": scaling,
            "note": note,
        }

    baseline, workers, pinned = "Pipeline/baseline", "Pipeline/workers", "Pipeline/pinned"
    step = "Compute/resnet18"
    # A file without bytes says nothing of what they take: the profile has no such cost then.
    normalize = {}
    for row in ("Pipeline/direct_u8", "Compute/resnet18_u8"):  # the last one shows it best
        if values_of(rows, row, "normalize_ms"):
            note = f"normalize_ms of {row}"
            normalize["normalize"] = cost("pixels", note, (1, row, "normalize_ms"))
    gpu = context.get("feedrate.gpu", context["feedrate.cpu"])
    return {
        "name": name,
        "gpu": f"{gpu}, {context['feedrate.cores_usable']} cores",
        "source": f"measured by feedrate {context['feedrate.version']} "
        f"({context['feedrate.git_revision']}) on {context['date']}",
        "batch": int(context["feedrate.batch"]),
        "image": int(context["feedrate.image"]),
        "cores": int(context["feedrate.cores_usable"]),
        "device_memory_GB": float(
            context.get("feedrate.gpu_memory_GB", context["feedrate.memory_GB"])
        ),
        "make": cost("pixels", "baseline's make_ms", (1, baseline, "make_ms")),
        "handoff": {
            "ms": 0,
            "origin": "assumed",
            "scaling": "constant",
            "note": "too short to be told from the wait for a batch",
        },
        "pin": cost(
            "bytes",
            "pinned's pin_ms less the release of a shared batch",
            (1, pinned, "pin_ms"),
            (-1, workers, "host_ms"),
            (1, workers, "launch_ms"),
        ),
        "copy_pageable": cost("bytes", "workers' copy_ms", (1, workers, "copy_ms")),
        "copy_pinned": cost("bytes", "pinned's copy_ms", (1, pinned, "copy_ms")),
        "release_private": cost(
            "bytes",
            "baseline's host_ms less its launch_ms",
            (1, baseline, "host_ms"),
            (-1, baseline, "launch_ms"),
        ),
        "release_shared": cost(
            "bytes",
            "workers' host_ms less its launch_ms",
            (1, workers, "host_ms"),
            (-1, workers, "launch_ms"),
        ),
        "launch": cost("constant", "the step's launch_ms", (1, step, "launch_ms")),
        **normalize,
        "compute": cost(
            "pixels",
            "the step's step_ms less its check_ms",
            (1, step, "step_ms"),
            (-1, step, "check_ms"),
        ),
        "check": cost("bytes", "the step's check_ms", (1, step, "check_ms")),
    }


def main(arguments):
    parser = Parser(description=__doc__.split("\n")[0])
    parser.add_argument("result", help="result file of bench with the Pipeline and Compute rows")
    parser.add_argument("-o", "--output", required=True, help="the profile")
    parser.add_argument("--name", default="measured", help="the profile's name")
    args = parser.parse_args(arguments)
    check_writable(args.output, [args.result])
    what = "a result file of bench, with 'context' and 'benchmarks' as bench writes them"
    profile = read_with(lambda result: profile_of(result, args.name), args.result, what)
    write_json(args.output, profile)
    return 0


if __name__ == "__main__":
    sys.exit(run(main, "make_profile.py"))
