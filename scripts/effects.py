#!/usr/bin/env python3
"""Main effects and two-way interactions of the Factorial rows, in ms a step.

    build/bench --benchmark_filter=Factorial --benchmark_repetitions=5 --benchmark_out=all.json
    scripts/effects.py all.json

Four factors of two levels, all 16 combinations; of several repetitions the median is taken. A main
effect is the mean step time at the second level less that at the first. An interaction is half the
difference between a factor's effects at the two levels of the other one: what the two bring
together beyond the sum of their main effects, and 0 if they do not know of each other. Negative is
faster. Per cents are of the grand mean."""

import itertools
import statistics
import sys

import common

FAMILY = "Factorial"
# The levels as they stand in the rows' names; the effect is that of going from first to second.
FACTORS = {
    "memory": ("pageable", "pinned"),
    "copy": ("blocking", "async"),
    "schedule": ("serial", "two_streams"),
    "sync_every": ("0", "1"),
}
MS_PER_UNIT = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
RERUN = f"run bench with --benchmark_filter={FAMILY}"


def row_name(levels):
    return "/".join([FAMILY, *(f"{factor}:{level}" for factor, level in levels.items())])


def combinations():
    """The signs (-1 first level, +1 second) of each combination with its row's name."""
    for signs in itertools.product((-1, 1), repeat=len(FACTORS)):
        levels = {
            factor: names[sign > 0]
            for (factor, names), sign in zip(FACTORS.items(), signs, strict=True)
        }
        yield dict(zip(FACTORS, signs, strict=True)), row_name(levels)


def step_ms(rows, name):
    """The median over repetitions, or what the file's own aggregate says it is."""
    mine = [row for row in rows if row["run_name"] == name and not row.get("error_occurred")]
    measured = [row for row in mine if row["run_type"] == "iteration"]
    measured = measured or [row for row in mine if row.get("aggregate_name") == "median"]
    for row in measured:
        if not row["real_time"] > 0:
            raise common.UsageError(f"{name}: real_time is {row['real_time']}, a step takes time")
    times = [row["real_time"] * MS_PER_UNIT[row["time_unit"]] for row in measured]
    return statistics.median(times) if times else None


def effects_of(result):
    rows = result["benchmarks"]
    table = [(signs, name, step_ms(rows, name)) for signs, name in combinations()]
    missing = [name for _, name, time in table if time is None]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise common.UsageError(f"no time for {missing[0]}{more}: {RERUN}")
    mean = statistics.fmean(time for _, _, time in table)

    def contrast(*factors):
        total = 0.0
        for signs, _, time in table:
            for factor in factors:
                time *= signs[factor]
            total += time
        ms = total / (len(table) / 2)
        return {"ms": ms, "percent": 100 * ms / mean}

    return {
        "context": {
            key: result["context"].get(f"feedrate.{key}", "unknown")
            for key in ("device", "simulated", "gpu", "git_revision")
        },
        "grand_mean_ms": mean,
        "effects": [
            {"factor": factor, "from": first, "to": second, **contrast(factor)}
            for factor, (first, second) in FACTORS.items()
        ],
        "interactions": [
            {"factors": list(pair), **contrast(*pair)}
            for pair in itertools.combinations(FACTORS, 2)
        ],
    }


def text_of(found):
    simulated = found["context"]["simulated"] == "true"
    lines = [
        f"{found['context']['device']}{', SIMULATED' if simulated else ''}: "
        f"a step takes {found['grand_mean_ms']:.3f} ms on average over all 16 combinations",
        "",
        f"{'effect on the step time':<44} {'ms':>10} {'%':>8}",
    ]

    def line(what, entry):
        lines.append(f"{what:<44} {entry['ms']:>+10.3f} {entry['percent']:>+8.1f}")

    for entry in found["effects"]:
        line(f"{entry['factor']}: {entry['from']} to {entry['to']}", entry)
    for entry in found["interactions"]:
        line(" x ".join(entry["factors"]), entry)
    return "\n".join(lines)


def main(arguments):
    parser = common.Parser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("result", help=f"result file of bench with the {FAMILY} rows")
    parser.add_argument("--json", metavar="FILE", help="writes them there as well")
    args = parser.parse_args(arguments)
    if args.json:
        common.check_writable(args.json, [args.result])
    what = f"a result file of bench with {FAMILY} rows"
    found = common.read_with(effects_of, args.result, what)
    if args.json:
        common.write_json(args.json, found)
    print(text_of(found))
    return 0


if __name__ == "__main__":
    sys.exit(common.run(main, "effects.py"))
