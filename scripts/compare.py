#!/usr/bin/env python3
"""Compares two result files row by row and counter by counter.

    scripts/look.sh compare BASE NEW
    scripts/look.sh compare BASE NEW --fail-above 5%

For each row its headline counter (steps_per_s, GBps, …) is shown, and every other counter that
changed; --all shows all. The ratio is that of the medians, NEW over BASE, with its confidence
interval from the repetitions (bootstrap). The verdict: better or worse if a Mann-Whitney U test
tells the two apart and the interval leaves --same-within, same if the interval lies inside it, and
otherwise can't tell. A time of which less than --same-within of the row's time moved is the same.
Measured figures need at least 4 repetitions on each side, since with fewer no
such test can reach 5 %; simulated ones are exact.

Exit status: 0; 1 with --fail-above if a headline counter got worse by more than that (the whole
interval lies beyond), if it has too few repetitions to tell, if a batch is bad that was not, or if
a row that had figures fails, is skipped or is not there; 2 for wrong usage; 3 if something could
not be written.
"""

import math
import sys
import warnings

import common

try:
    import numpy
    from scipy import stats
except ImportError as error:
    common.missing(error)

import counters
import results

# The counter that a row is judged by: the first that it has.
HEADLINES = (
    *("steps_per_s", "GBps", "efficiency", "batches_per_s", "return_us", "fill_ms"),
    *("lock_ms_per_GiB", "items_per_second", "bytes_per_second", "real_time_ms"),
)
NULL_ROW = "Pipeline/null"
# They say what the headline counter says, or move with every run.
ECHOES = ("images_per_s", "items_per_second", "bytes_per_second", "real_time_ms", "cpu_time_ms")
# The training loop's CPU time is real on a simulated device too.
NEVER_EXACT = ("cpu_time_ms",)
ALPHA, RESAMPLES, SEED = 0.05, 999, 20260103
BETTER, WORSE, SAME, UNTOLD, CHANGED = "better", "worse", "same", "can't tell", "changed"
# What two runs should agree in, or the reader must know.
CONTEXT = (
    *("gpu", "cpu", "cores_usable", "device", "profile", "profile_source", "driver", "cuda"),
    *("libtorch", "torch", "build_type", "pcie_generation_max", "pcie_width_max"),
)
WORKLOAD = ("batch", "image", "workers", "window")


def percent(words):
    bare = words.removesuffix("%")
    try:
        value = float(bare) / (100 if words.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if 1 < value < 100 and bare == words:
        raise common.UsageError(
            f"'{words}' would be {value:.0%}: write {words}%, or {value / 100:g}, for {value:g} %"
        )
    if not 0 <= value < 10:
        raise common.UsageError(f"'{words}' is no share: 5% or 0.05, say")
    return value


def load(path, program):
    """The rows of the one set-up that the file holds, and its runs."""
    read = results.read([path])
    if read.rows.empty:
        raise common.UsageError(f"{path}: no rows to compare")
    there = list(dict.fromkeys(run.implementation for run in read.runs))
    if program is None:
        program = results.BENCH if results.BENCH in there else there[0]
    if program not in there:
        raise common.UsageError(f"{path}: no rows of '{program}', there are: {', '.join(there)}")
    runs = [run for run in read.runs if run.implementation == program]
    setups = list(dict.fromkeys(run.setup for run in runs))
    if len(setups) > 1:
        raise common.UsageError(
            f"{path}: holds {len(setups)} set-ups, compare one with one: {'; '.join(setups)}"
        )
    rows = read.rows[read.rows["implementation"] == program]
    return rows, runs


def differences(base, new):
    """Lines about what else differs between the two runs."""
    for keys, what in ((CONTEXT, "machine"), (WORKLOAD, "workload")):
        for key in keys:
            old, now = base.get(key), new.get(key)
            if old and now and old.lower() != now.lower():
                yield what, f"{key}: {old} / {now}"
    if base.implementation != new.implementation:
        yield "program", f"{base.implementation} / {new.implementation}"
    if base.get("git_revision") != new.get("git_revision"):
        yield "revision", f"{base.get('git_revision')} / {new.get('git_revision')}"


def ratio_of_medians(old, new, axis=-1):
    with numpy.errstate(divide="ignore", invalid="ignore"):
        return numpy.median(new, axis=axis) / numpy.median(old, axis=axis)


def intervals(old, new):
    """The ratio's confidence interval for each line of two arrays (counters, repetitions)."""
    if old.shape[1] < 2 or new.shape[1] < 2:
        nothing = numpy.full(len(old), math.nan)
        return nothing, nothing
    with warnings.catch_warnings():
        # A counter that never moves has an interval of one point, which scipy warns about.
        warnings.simplefilter("ignore")
        found = stats.bootstrap(
            (old, new),
            ratio_of_medians,
            n_resamples=RESAMPLES,
            vectorized=True,
            axis=-1,
            confidence_level=1 - ALPHA,
            method="percentile",
            random_state=numpy.random.default_rng(SEED),
        ).confidence_interval
    return found.low, found.high


def u_tests(old, new):
    """The p-value for each line of two arrays."""
    both = numpy.sort(numpy.concatenate([old, new], axis=1), axis=1)
    tied = (both[:, 1:] == both[:, :-1]).any(axis=1)
    constant = both[:, 0] == both[:, -1]
    p_values = numpy.ones(len(old))
    # scipy takes the exact distribution only if no line at all has a tie.
    for which in (tied & ~constant, ~tied):
        if which.any():
            found = stats.mannwhitneyu(old[which], new[which], alternative="two-sided", axis=1)
            p_values[which] = found.pvalue
    return p_values


def enough(old, new):
    """Whether so many repetitions could be told apart at all."""
    return 2 / math.comb(old + new, old) < ALPHA


def compared(old, new, told):
    """The figures of one counter; told is (low, high, p), or None if the figures are exact."""
    before, after = float(numpy.median(old)), float(numpy.median(new))
    ratio = 1.0 if before == after else after / before if before else math.inf
    entry = {"base": before, "new": after, "ratio": ratio, "repetitions": [len(old), len(new)]}
    if told is None:
        return entry | {"low": ratio, "high": ratio, "p": math.nan, "enough": True}
    low, high, p_value = map(float, told)
    if before == 0:
        low = high = ratio
    return entry | {"low": low, "high": high, "p": p_value, "enough": enough(len(old), len(new))}


def judge(counter, entry, same_within):
    low, high = entry["low"], entry["high"]
    if not entry["enough"] or math.isnan(low):
        return UNTOLD
    if 1 - same_within <= low and high <= 1 + same_within:
        return SAME
    exact = math.isnan(entry["p"])
    if not exact and (entry["p"] >= ALPHA or low <= 1 <= high):
        return UNTOLD
    direction = counters.better(counter)
    if direction == counters.NEITHER:
        return CHANGED
    return BETTER if (entry["ratio"] > 1) == (direction == counters.MORE) else WORSE


def worsening(entry):
    """(least, most) by which the counter got worse, as shares, with confidence."""
    low, high = entry["low"], entry["high"]
    if math.isnan(low):
        low = high = entry["ratio"]
    if counters.better(entry["counter"]) == counters.MORE:
        return 1 - high, 1 - low
    return low - 1, high - 1


def headline_of(names):
    return next((name for name in HEADLINES if name in names), None)


def compare_row(name, old, new, exact, same_within):
    """One entry a counter of a row that both files have."""
    shared = [
        counter
        for counter in results.counters_of(old)
        if counter in new and new[counter].notna().any() and not (exact and counter in NEVER_EXACT)
    ]
    shared = counters.in_order(shared)
    head = headline_of(shared)
    entries = []
    time_ms = float(old["real_time_ms"].median())
    # Repetitions that lack a counter are rare: those counters go one by one.
    groups = {}
    for counter in shared:
        a, b = old[counter].dropna().to_numpy(float), new[counter].dropna().to_numpy(float)
        groups.setdefault((len(a), len(b)), []).append((counter, a, b))
    for members in groups.values():
        a = numpy.array([values for _, values, _ in members])
        b = numpy.array([values for *_, values in members])
        told = [None] * len(a) if exact else list(zip(*intervals(a, b), u_tests(a, b), strict=True))
        for place, (counter, x, y) in enumerate(members):
            entry = {"row": name, "counter": counter, "headline": counter == head}
            entry |= compared(x, y, told[place])
            moved = abs(entry["new"] - entry["base"])
            if counter.endswith("_ms") and moved < same_within * time_ms:
                entry["verdict"] = SAME
            else:
                entry["verdict"] = judge(counter, entry, same_within)
            entries.append(entry)
    return sorted(entries, key=lambda entry: shared.index(entry["counter"]))


MISSING, FAILED, SKIPPED = "not in", "failed in", "skipped in"


def compare(old, new, exact=False, same_within=0.01):
    """Returns (entries, lines about rows that cannot be compared, what befell rows that had
    figures and have none now)."""
    good_old, good_new = results.good(old), results.good(new)
    # What is missing on one side stands first: of the skipped there may be hundreds.
    entries, remarks, lost = [], {MISSING: [], FAILED: [], SKIPPED: []}, []
    before, after = dict(list(good_old.groupby("row"))), dict(list(good_new.groupby("row")))
    for name in dict.fromkeys([*old["row"], *new["row"]]):
        a, b = before.get(name, good_old.iloc[:0]), after.get(name, good_new.iloc[:0])
        if len(a) and len(b):
            entries += compare_row(name, a, b, exact, same_within)
            continue
        for rows, good_rows, which in ((old, a, "BASE"), (new, b, "NEW")):
            if len(good_rows):
                continue
            mine = rows[rows["row"] == name]
            kind, reason = MISSING, ""
            if len(mine):
                # Of repetitions, an error says more than a skip.
                errors = [error for error in mine["error"] if error]
                kind = FAILED if errors else SKIPPED
                reason = ": " + (errors[0] if errors else mine["skipped"].iloc[0])
            remarks[kind].append(f"{name}: {kind} {which}{reason}")
            if which == "NEW" and len(a):
                befell = {MISSING: "is missing", FAILED: "failed", SKIPPED: "is skipped"}[kind]
                lost.append(f"{name} {befell}, and had figures before")
    return entries, [line for lines in remarks.values() for line in lines], lost


def failures(entries, lost, new, above):
    """Lines about what --fail-above does not let pass."""
    controls = set(new[new["negative_control"]]["row"])
    yield from lost
    judged = [entry for entry in entries if entry["headline"] and entry["row"] != NULL_ROW]
    unjudged = [e["row"] for e in judged if e["verdict"] == UNTOLD and not e["enough"]]
    if unjudged:
        yield (
            f"{len(unjudged)} rows cannot be judged, {unjudged[0]} for one: fewer than 4 "
            "repetitions, run both with --benchmark_repetitions=5"
        )
    for entry in entries:
        if entry["counter"] == "bad_batches" and entry["row"] not in controls:
            if entry["base"] == 0 and entry["new"] > 0:
                yield f"{entry['row']}: {entry['new']:.4g} bad batches, none before"
    for entry in judged:
        shares = worsening(entry)
        if entry["verdict"] == WORSE and shares[0] > above:
            by = " to ".join(dict.fromkeys(f"{share:.1%}" for share in shares))
            yield (
                f"{entry['row']}: {entry['counter']} got worse by {by}, {above:.1%} is allowed"
            )


# --- What is printed ------------------------------------------------------------------------------


def shown(value):
    return f"{value:.4g}" if abs(value) < 1e5 else f"{value:.3e}"


def lines_of(entries, everything):
    heads = ("row", "counter", "base", "new", "ratio", "95 % interval", "n", "p", "verdict")
    table = [heads]
    for entry in entries:
        changed = entry["verdict"] in (BETTER, WORSE) and entry["counter"] not in ECHOES
        if not (everything or entry["headline"] or changed):
            continue
        interval = "-"
        if not math.isnan(entry["low"]):
            interval = f"{entry['low']:.4f} to {entry['high']:.4f}"
        table.append(
            (
                entry["row"],
                entry["counter"],
                shown(entry["base"]),
                shown(entry["new"]),
                f"{entry['ratio']:.4f}",
                interval,
                "{}/{}".format(*entry["repetitions"]),
                "-" if math.isnan(entry["p"]) else f"{entry['p']:.3f}",
                entry["verdict"],
            )
        )
    widths = [max(len(line[place]) for line in table) for place in range(len(heads))]
    right = {2, 3, 4, 5, 6, 7}
    for line in table:
        yield "  ".join(
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()


def plain(value):
    """JSON knows no infinity."""
    return value if not isinstance(value, float) or math.isfinite(value) else None


FAIL_ABOVE = (
    "exit status 1 if a row got worse by more, e.g. 5%%, has no figures any more, or has too few "
    "repetitions to tell"
)


def parse(arguments):
    parser = common.Parser(
        description=__doc__.split("\n")[0],
        epilog=" ".join(__doc__.split("\n\n")[-1].split()),
        allow_abbrev=False,
    )
    parser.add_argument("base", metavar="BASE", help="the result file to compare with")
    parser.add_argument("new", metavar="NEW", help="the result file to judge")
    parser.add_argument("--fail-above", metavar="SHARE", help=FAIL_ABOVE)
    parser.add_argument("--same-within", metavar="SHARE", default="1%", help="default: 1%%")
    parser.add_argument("--all", action="store_true", help="show every counter")
    parser.add_argument("--force", action="store_true", help="compare simulated with measured")
    parser.add_argument("--base-program", metavar="NAME", help="of interleave.py's: bench or …")
    parser.add_argument("--new-program", metavar="NAME", help="the same for NEW")
    parser.add_argument("-o", "--output", metavar="FILE", help="all of it as JSON")
    options = parser.parse_args(arguments)
    options.same_within = percent(options.same_within)
    if options.fail_above is not None:
        options.fail_above = percent(options.fail_above)
    if options.output:
        common.check_writable(options.output, [options.base, options.new])
    return options


def main(arguments):
    options = parse(arguments)
    old, old_runs = load(options.base, options.base_program)
    new, new_runs = load(options.new, options.new_program)
    base_run, new_run = old_runs[0], new_runs[0]
    if base_run.simulated != new_run.simulated and not options.force:
        raise common.UsageError(
            f"{options.base if base_run.simulated else options.new} is simulated and the other is "
            "measured: the difference says how good the profile is, not what changed. --force "
            "compares them"
        )
    print(f"BASE {options.base}: {base_run.setup}")
    print(f"NEW  {options.new}: {new_run.setup}")
    differing = list(differences(base_run, new_run))
    for what, line in differing:
        print(f"different {what}: {line}")
    if any(what == "machine" for what, _ in differing):
        print("The machines differ: the ratios say so too, not only what changed in the program.")
    exact = base_run.simulated and new_run.simulated
    entries, remarks, lost = compare(old, new, exact, options.same_within)
    if not entries and not remarks:
        raise common.UsageError("the files have no row in common")
    for line in lines_of(entries, options.all):
        print(line)
    for remark in remarks:
        print(remark)
    heads = [entry for entry in entries if entry["headline"]]
    count = {
        word: sum(entry["verdict"] == word for entry in heads)
        for word in (BETTER, WORSE, SAME, UNTOLD)
    }
    tally = ", ".join(f"{number} {word}" for word, number in count.items())
    print(f"{len(heads)} rows by their headline counter: {tally}")
    if exact:
        print("Both are simulated: figures are exact, no time was measured.")
    elif any(min(entry["repetitions"]) < 4 for entry in heads):
        print("Fewer than 4 repetitions: run both with --benchmark_repetitions=5 or more to tell.")
    elif len(heads) > 20:
        print(f"Of {len(heads)} rows about {len(heads) * ALPHA:.0f} would differ by chance.")
    problems = []
    if options.fail_above is not None:
        problems = list(failures(entries, lost, new, options.fail_above))
        for problem in problems:
            print(f"FAILED: {problem}")
    if options.output:
        common.write_json(
            options.output,
            {
                "base": options.base,
                "new": options.new,
                "different": [{"what": what, "values": line} for what, line in differing],
                "counters": [{key: plain(v) for key, v in entry.items()} for entry in entries],
                "remarks": remarks,
                "failed": problems,
            },
        )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(common.run(main, "compare"))
