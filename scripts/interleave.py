#!/usr/bin/env python3
"""Runs bench (C++) and reference.py (PyTorch) in turn, so that both see the same machine.

The speed of a shared machine moves from minute to minute: two runs that are compared must be
neighbours. Each round runs both programs over all rungs with the same workers, batch, image, steps
and window; who goes first alternates. Prints, for each rung, both medians, their spread, the ratio
C++ : PyTorch and a verdict. A run that fails is reported and the rest goes on; exit status 1 then.
"""

import contextlib
import os
import signal
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import common
from check_result import check_result, is_row
from reference import LOADER, ROWS, add_workload_flags, check_device_name, row_name

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH, REFERENCE = "bench", "reference"
PROGRAMS = (BENCH, REFERENCE)
COUNTER = "steps_per_s"
LOADER_COUNTER = "batches_per_s"
# One run of a program. The slowest rung of a round takes well under a minute.
TIMEOUT_S = 300


def command_of(program, rungs, steps, options, output):
    workload = []
    for flag in ("device", "workers", "batch", "image", "warmup", "window"):
        workload += [f"--{flag}={getattr(options, flag)}"]
    workload += [f"--steps={steps}"]
    if program == REFERENCE:
        script = os.path.join(HERE, "reference.py")
        chosen = [f"--rung={rung}" for rung in rungs]
        return [options.python, script, *chosen, *workload, f"--output={output}"]
    if LOADER in rungs:
        workload += [f"--sweep_workers={options.workers}:{options.workers}"]
    rows = "|".join(row_of(program, rung, options) for rung in rungs)
    return [
        options.bench,
        f"--benchmark_filter=^({rows})$",
        *workload,
        f"--benchmark_out={output}",
        "--benchmark_out_format=json",
    ]


def row_of(program, rung, options):
    if rung == LOADER and program == BENCH:
        return f"Loader/{options.loader_row}/workers:{options.workers}"
    return row_name(rung, options)


def counter_of(rung):
    return LOADER_COUNTER if rung == LOADER else COUNTER


def run(command, timeout_s):
    """Runs to the end or to the limit, workers included. Returns None, or how it failed."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # so that its workers can be ended with it
        text=True,
        errors="replace",
    )
    try:
        _, words = process.communicate(timeout=timeout_s)
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            return f"stopped after {timeout_s} s"
        raise
    if process.returncode == 0:
        return None
    lines = [line for line in words.splitlines() if line.strip()]
    last = lines[-1] if lines else "no message"
    if process.returncode < 0:
        return f"ended by {signal.Signals(-process.returncode).name}, last words: {last}"
    return f"ended with status {process.returncode}: {last}"


def run_program(program, rungs, steps, options):
    """One process over some rungs. Returns its result file, parsed, or None, and the problems."""
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "result.json")
        failure = run(command_of(program, rungs, steps, options, output), options.timeout)
        try:
            result = common.read_json(output)
            rows = [row for row in result["benchmarks"] if row["name"]]
        except (OSError, ValueError) as error:
            return None, [f"{program} gave no result: {failure or error}"]
        except (KeyError, TypeError):
            return None, [f"{program} gave no result: its result file has no rows"]
    problems = list(check_result(result, [row_of(program, rung, options) for rung in rungs]))
    problems += [
        f"{row['name']}: {row.get('error_message')}" for row in rows if row.get("error_occurred")
    ]
    if failure and not problems:
        problems = [failure]
    return result, [f"{program}: {problem}" for problem in problems]


def groups_of(options):
    """Rungs with the same number of steps run in one process."""
    groups = {}
    for rung in options.rung:
        groups.setdefault(options.steps_of.get(rung, options.steps), []).append(rung)
    return groups


def run_round(number, options):
    order = PROGRAMS if number % 2 == 0 else PROGRAMS[::-1]
    runs, problems = [], []
    for steps, rungs in groups_of(options).items():
        for program in order:
            started = time.monotonic()
            result, found = run_program(program, rungs, steps, options)
            took_s = time.monotonic() - started
            runs.append({"program": program, "rungs": rungs, "took_s": took_s, "result": result})
            problems += [f"round {number + 1}: {problem}" for problem in found]
            say(
                f"round {number + 1} of {options.rounds}: {program} {', '.join(rungs)}: "
                f"{took_s:.0f} s{f', FAILED: {found[0]}' if found else ''}"
            )
    return {"round": number + 1, "order": list(order), "runs": runs}, problems


def rates_of(rounds, program, rung, options):
    """The rate of each run of a rung: steps/s, of a loader alone batches/s.

    A file's other faults are reported, but cost no figure.
    """
    entries = [entry for single in rounds for entry in single["runs"]]
    rows = [
        row
        for entry in entries
        if entry["program"] == program
        for row in rows_of(entry["result"])
        if is_row(row["name"], row_of(program, rung, options))
    ]
    counter = counter_of(rung)
    return [row[counter] for row in rows if row.get(counter, 0) > 0]


def rows_of(result):
    return result["benchmarks"] if result else []


def spread_of(rates):
    return (max(rates) - min(rates)) / statistics.median(rates)


def compare(rung, bench, reference):
    """One line of the summary. A program without a good run leaves its side and the ratio out."""
    summary = {"rung": rung, "row": ROWS[rung], "runs": [len(bench), len(reference)]}
    for program, rates in ((BENCH, bench), (REFERENCE, reference)):
        if rates:
            summary[program] = {
                "median_steps_per_s": statistics.median(rates),
                "min_steps_per_s": min(rates),
                "max_steps_per_s": max(rates),
            }
    if not bench or not reference:
        return {**summary, "verdict": "not compared"}
    ratio = statistics.median(bench) / statistics.median(reference)
    spread = max(spread_of(bench), spread_of(reference))
    if min(len(bench), len(reference)) < 2:
        verdict = "one run tells nothing"
    elif ratio > 1.0 + spread:
        verdict = "faster"
    elif ratio >= 1.0:
        verdict = "as fast"
    else:
        verdict = "within the spread" if 1.0 - ratio <= spread else "SLOWER"
    return {**summary, "ratio": ratio, "spread": spread, "verdict": verdict}


def summarize(rounds, options):
    return [
        compare(rung, *(rates_of(rounds, program, rung, options) for program in PROGRAMS))
        for rung in options.rung
    ]


def side(summary, program):
    if program not in summary:
        return f"{'-':>28}"
    numbers = summary[program]
    bounds = f"({numbers['min_steps_per_s']:.2f}..{numbers['max_steps_per_s']:.2f})"
    return f"{numbers['median_steps_per_s']:10.3f} {bounds:>17}"


def print_table(summaries):
    heads = f"{'bench: steps/s':>28}  {'reference: steps/s':>28}"
    print(f"{'rung':<10} {heads}  {'ratio':>6}  {'spread':>6}  verdict")
    for summary in summaries:
        numbers = f"{'-':>6}  {'-':>6}"
        if "ratio" in summary:
            numbers = f"{summary['ratio']:6.3f}  {summary['spread']:6.1%}"
        sides = "  ".join(side(summary, program) for program in PROGRAMS)
        print(f"{summary['rung']:<10} {sides}  {numbers}  {summary['verdict']}")


def say(text):
    print(f"interleave: {text}", file=sys.stderr, flush=True)


def parse(arguments):
    parser = common.Parser(
        description="Runs bench and reference.py in turn and compares them.", allow_abbrev=False
    )
    built = os.path.join(os.path.dirname(HERE), "build", "bench")
    parser.add_argument("--bench", default=built, metavar="PATH", help="default: build/bench")
    parser.add_argument(
        "--python", default=sys.executable, metavar="PATH", help="one that imports torch"
    )
    parser.add_argument("--rounds", type=common.whole_number(1, 1000), default=5)
    parser.add_argument(
        "--rung", action="append", choices=tuple(ROWS), help="repeatable (default: the five)"
    )
    add_workload_flags(parser)
    parser.add_argument(
        "--loader-row",
        default="processes_fresh",
        metavar="VARIANT",
        help="which of bench's Loader rows rung loader is compared with (default processes_fresh)",
    )
    parser.add_argument(
        "--steps-of",
        action="append",
        default=[],
        metavar="RUNG=N",
        help="steps of one rung, repeatable",
    )
    parser.add_argument(
        "--timeout", type=common.whole_number(1, 86400), default=TIMEOUT_S, help="s, one process"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write every round and the summary")
    options = parser.parse_args(arguments)
    check_device_name(options.device)
    default = [rung for rung, row in ROWS.items() if row.startswith("Pipeline/")]
    options.rung = [rung for rung in ROWS if rung in (options.rung or default)]
    options.steps_of = dict(steps_of(text) for text in options.steps_of)
    if not os.access(options.bench, os.X_OK) or os.path.isdir(options.bench):
        raise common.UsageError(f"'{options.bench}' is no program: build it, or name it by --bench")
    options.bench = os.path.abspath(options.bench)
    python = shutil.which(options.python)
    if python is None:
        raise common.UsageError(f"'{options.python}' is no program: name a Python by --python")
    if options.output:
        common.check_writable(options.output, [options.bench, python])
    check_torch(options)
    return options


def check_torch(options):
    """Else every run of the reference would fail for it, each after one of bench."""
    failure = run([options.python, "-c", "import torch"], options.timeout)
    if failure:
        raise common.UsageError(
            f"'{options.python}' does not import torch: name a Python that does by --python "
            f"({failure})"
        )


def steps_of(text):
    rung, _, steps = text.partition("=")
    if rung not in ROWS or not steps.isdecimal() or int(steps) < 1:
        raise common.UsageError(f"--steps-of: '{text}' is not like baseline=10")
    return rung, int(steps)


def main(arguments):
    options = parse(arguments)
    settings = {key: value for key, value in vars(options).items() if key not in ("output",)}
    settings.update(bench=os.path.basename(options.bench), python=os.path.basename(options.python))
    rounds, problems = [], []
    try:
        for number in range(options.rounds):
            single, found = run_round(number, options)
            rounds.append(single)
            problems += found
            if not any(run["result"] for run in single["runs"]):
                say("nothing gave a result, so there are no more rounds")
                break
            if options.output:  # after each round: what is measured is not lost if time runs out
                whole = {"settings": settings, "rounds": rounds, "problems": problems}
                common.write_json(options.output, {**whole, "summary": summarize(rounds, options)})
    except common.Interrupted as end:
        done = f" after {len(rounds)} round{'s' * (len(rounds) != 1)}"
        raise common.Interrupted(end.number, done) from None
    print_table(summarize(rounds, options))
    for problem in problems:
        say(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(common.run(main, "interleave"))
