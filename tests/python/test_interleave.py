"""interleave.py alternates the two programs, compares medians and survives failures."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SCRIPTS = os.path.join(ROOT, "scripts")
sys.path.insert(0, SCRIPTS)

import interleave  # noqa: E402
from children import default_signals  # noqa: E402

# Stands for a bench that hangs: notes itself and its worker.
HANGING = """#!/bin/sh
sleep 1000 &
echo $$ $! > "$NOTE.new"
mv "$NOTE.new" "$NOTE"
wait
"""

# Stands for bench, and for the Python that runs reference.py. Tells both by their flags, notes how
# it was called, and answers with the rate that RATES has for that program and rung.
STAND_IN = """#!{python}
import json, os, re, sys
if sys.argv[1:2] == ["-c"]:
    sys.exit()  # whether it imports torch
flags = dict(a.lstrip("-").split("=", 1) for a in sys.argv[1:] if a.startswith("--"))
asked = [a.split("=")[1] for a in sys.argv[1:] if a.startswith("--rung=")]
is_bench = "benchmark_out" in flags
program = "bench" if is_bench else "reference"
peer = "threads_fresh" if is_bench else "python"
names = dict(baseline="Pipeline/baseline", streams="Pipeline/streams",
             loader="Loader/" + peer + "/workers:" + flags["workers"])
if is_bench:
    asked = [r for r in names if re.search(flags["benchmark_filter"], names[r])]
    if "loader" in asked and flags["sweep_workers"] != flags["workers"] + ":" + flags["workers"]:
        asked.remove("loader")
with open(os.environ["CALLS"], "a") as calls:
    calls.write(json.dumps([program, asked, flags["steps"], flags["workers"]]) + "\\n")
count = sum(1 for line in open(os.environ["CALLS"]) if json.loads(line)[0] == program)
rates = json.loads(os.environ["RATES"])[program]
if rates == "die":
    sys.exit("no such luck")
rows = []
for rung in asked:
    rate = rates[rung]
    rate = rate[(count - 1) % len(rate)] if isinstance(rate, list) else rate
    name = names[rung]
    row = dict(name=name, run_name=name, run_type="iteration", repetitions=1, repetition_index=0,
               threads=1, iterations=3, cpu_time=1.0, time_unit="ms")
    if rate is None:
        row.update(error_occurred=True, error_message="no memory", real_time=0.0)
    else:
        row.update(real_time=1e3 / rate, images_per_s=rate)
        row["batches_per_s" if rung == "loader" else "steps_per_s"] = rate
    rows.append(row)
context = dict(date="", host_name="", executable="", num_cpus=1, caches=[], library_build_type="")
for key in ("device", "build_type", "git_revision"):
    context["feedrate." + key] = ""
context.update({{"feedrate.simulated": "false", "feedrate.implementation": "reference"}})
with open(flags["benchmark_out" if is_bench else "output"], "w") as file:
    json.dump(dict(context=context, benchmarks=rows), file)
sys.exit(1 if any("error_occurred" in row for row in rows) else 0)
"""


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.stand_in = os.path.join(self.folder, "stand_in")
        with open(self.stand_in, "w", encoding="utf-8") as file:
            file.write(STAND_IN.format(python=sys.executable))
        os.chmod(self.stand_in, 0o755)

    def run_with(self, rates, *flags):
        """Returns the process, what it wrote, and the calls that it made."""
        output = os.path.join(self.folder, "out.json")
        calls = os.path.join(self.folder, "calls")
        command = [sys.executable, os.path.join(SCRIPTS, "interleave.py"), f"--output={output}"]
        command += [f"--bench={self.stand_in}", f"--python={self.stand_in}", "--workers=3"]
        if not any(flag.startswith("--rung=") for flag in flags):
            command += ["--rung=baseline", "--rung=streams"]
        command += ["--device=cpu", *flags]
        environment = {**os.environ, "CALLS": calls, "RATES": json.dumps(rates)}
        process = subprocess.run(command, capture_output=True, text=True, env=environment)
        with open(output, encoding="utf-8") as file:
            result = json.load(file)
        with open(calls, encoding="utf-8") as file:
            return process, result, [json.loads(line) for line in file]

    def test_the_two_alternate_who_goes_first(self):
        rates = {"baseline": 2.0, "streams": 8.0}
        both = {"bench": rates, "reference": rates}
        process, result, calls = self.run_with(both, "--rounds=3", "--steps=7")
        self.assertEqual(process.returncode, 0, process.stderr)
        programs = [program for program, _, _, _ in calls]
        turn = ["bench", "reference"]
        self.assertEqual(programs, turn + turn[::-1] + turn)
        for _, rungs, steps, workers in calls:
            self.assertEqual((rungs, steps, workers), (["baseline", "streams"], "7", "3"))
        self.assertEqual(len(result["rounds"]), 3)
        self.assertEqual(result["problems"], [])
        self.assertIn("as fast", process.stdout)

    def test_rungs_with_steps_of_their_own_run_apart(self):
        rates = {"baseline": 2.0, "streams": 8.0}
        both = {"bench": rates, "reference": rates}
        _, _, calls = self.run_with(both, "--rounds=1", "--steps=30", "--steps-of=baseline=10")
        self.assertEqual(
            [(program, rungs, steps) for program, rungs, steps, _ in calls],
            [
                ("bench", ["baseline"], "10"),
                ("reference", ["baseline"], "10"),
                ("bench", ["streams"], "30"),
                ("reference", ["streams"], "30"),
            ],
        )

    def test_the_summary_has_medians_and_their_ratio(self):
        both = {
            "bench": {"baseline": [3.0, 2.0, 2.5], "streams": 6.0},
            "reference": {"baseline": [2.0, 2.0, 9.0], "streams": 8.0},
        }
        process, result, _ = self.run_with(both, "--rounds=3")
        baseline, streams = result["summary"]
        self.assertEqual(baseline["bench"]["median_steps_per_s"], 2.5)
        self.assertEqual(baseline["bench"]["min_steps_per_s"], 2.0)
        self.assertEqual(baseline["reference"]["max_steps_per_s"], 9.0)
        self.assertEqual(baseline["ratio"], 1.25)
        self.assertEqual(streams["verdict"], "SLOWER")
        self.assertEqual(process.returncode, 0)

    def test_a_loader_alone_is_compared_with_the_row_that_was_named(self):
        both = {"bench": {"loader": 9.0}, "reference": {"loader": 6.0}}
        process, result, calls = self.run_with(
            both, "--rounds=2", "--rung=loader", "--loader-row=threads_fresh"
        )
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertEqual({tuple(rungs) for _, rungs, _, _ in calls}, {("loader",)})
        (loader,) = result["summary"]
        self.assertEqual(loader["ratio"], 1.5)

    def test_an_error_row_is_reported_and_the_rest_compared(self):
        both = {
            "bench": {"baseline": 2.0, "streams": None},
            "reference": {"baseline": 2.0, "streams": 8.0},
        }
        process, result, _ = self.run_with(both, "--rounds=2")
        self.assertEqual(process.returncode, 1)
        self.assertIn("round 2: bench: Pipeline/streams: no memory", result["problems"])
        verdicts = [summary["verdict"] for summary in result["summary"]]
        self.assertEqual(verdicts, ["as fast", "not compared"])

    def test_a_program_that_dies_is_reported_in_its_own_words(self):
        both = {"bench": {"baseline": 2.0, "streams": 8.0}, "reference": "die"}
        process, result, calls = self.run_with(both, "--rounds=2")
        self.assertEqual(process.returncode, 1)
        self.assertEqual(len(calls), 4)
        words = "round 1: reference gave no result: ended with status 1: no such luck"
        self.assertIn(words, result["problems"])
        self.assertEqual(result["summary"][0]["runs"], [2, 0])


class Verdicts(unittest.TestCase):
    def verdict(self, bench, reference):
        return interleave.compare("streams", bench, reference)["verdict"]

    def test_faster_or_equal_is_as_fast(self):
        self.assertEqual(self.verdict([8.0, 8.0], [8.0, 8.0]), "as fast")
        self.assertEqual(self.verdict([8.1, 8.3], [8.0, 8.3]), "as fast")

    def test_faster_by_more_than_the_spread_is_faster(self):
        self.assertEqual(self.verdict([9.0, 9.0], [8.0, 8.0]), "faster")
        self.assertEqual(self.verdict([8.0, 8.1], [1.0, 1.01]), "faster")

    def test_slower_by_less_than_the_spread_is_within_it(self):
        self.assertEqual(self.verdict([7.9, 7.9, 7.9], [7.8, 8.0, 8.0]), "within the spread")
        self.assertEqual(self.verdict([7.7, 7.9, 7.9], [8.0, 8.0, 8.0]), "within the spread")

    def test_slower_by_more_than_the_spread_is_slower(self):
        self.assertEqual(self.verdict([7.0, 7.0, 7.1], [8.0, 8.0, 8.1]), "SLOWER")


def is_gone(process):
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


def wait_for(condition):
    for _ in range(1200):
        if condition():
            return True
        time.sleep(0.05)
    return False


class Process(unittest.TestCase):
    def test_a_signal_ends_the_run_with_all_that_it_started(self):
        for number, words in (
            (signal.SIGINT, "interrupted after 0 rounds"),
            (signal.SIGTERM, "interrupted by SIGTERM after 0 rounds"),
            (signal.SIGHUP, "interrupted by SIGHUP after 0 rounds"),
        ):
            with self.subTest(words), tempfile.TemporaryDirectory() as folder:
                bench, note = os.path.join(folder, "bench"), os.path.join(folder, "note")
                temporary = os.path.join(folder, "tmp")
                os.mkdir(temporary)
                with open(bench, "w", encoding="utf-8") as file:
                    file.write(HANGING)
                os.chmod(bench, 0o755)
                process = subprocess.Popen(
                    [sys.executable, os.path.join(SCRIPTS, "interleave.py"), f"--bench={bench}",
                     "--python=true", "--device=cpu"],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    env={**os.environ, "NOTE": note, "TMPDIR": temporary},
                    preexec_fn=default_signals,
                )
                self.assertTrue(wait_for(lambda note=note: os.path.exists(note)))
                process.send_signal(number)
                process.send_signal(number)  # as `timeout` does: its child, then the group
                out, err = process.communicate(timeout=60)
                self.assertEqual((process.returncode, out), (128 + number, ""), err)
                self.assertEqual(err, f"interleave: {words}\n")
                self.assertEqual(os.listdir(temporary), [])
                with open(note, encoding="utf-8") as file:
                    started = file.read().split()
                self.assertTrue(wait_for(lambda s=started: all(map(is_gone, s))), started)

    def test_a_run_that_hangs_is_ended_with_its_workers(self):
        with tempfile.TemporaryDirectory() as folder:
            note = os.path.join(folder, "worker")
            command = ["sh", "-c", f"sleep 1000 & echo $! > {note}; wait"]
            self.assertEqual(interleave.run(command, 1), "stopped after 1 s")
            with open(note, encoding="utf-8") as file:
                worker = int(file.read())
        self.assertTrue(is_gone(worker))

    def test_a_crash_is_named(self):
        command = ["sh", "-c", "echo about to fall >&2; kill -SEGV $$"]
        failure = interleave.run(command, 60)
        self.assertEqual(failure, "ended by SIGSEGV, last words: about to fall")

    def test_a_good_run_has_no_failure(self):
        self.assertIsNone(interleave.run(["true"], 60))


class BadUsage(unittest.TestCase):
    def test_a_python_without_torch_is_found_before_anything_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            programs = {}
            for name, line in (
                ("bench", 'touch "$(dirname "$0")/ran"'),
                ("python", "echo 'ModuleNotFoundError: no torch' >&2; exit 1"),
            ):
                programs[name] = os.path.join(folder, name)
                with open(programs[name], "w", encoding="utf-8") as file:
                    file.write(f"#!/bin/sh\n{line}\n")
                os.chmod(programs[name], 0o755)
            flags = [f"--{name}={path}" for name, path in programs.items()]
            command = [sys.executable, os.path.join(SCRIPTS, "interleave.py"), *flags]
            answer = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual((answer.returncode, answer.stdout), (2, ""))
            self.assertEqual(len(answer.stderr.splitlines()), 1, answer.stderr)
            self.assertIn("does not import torch", answer.stderr)
            self.assertIn("ModuleNotFoundError: no torch", answer.stderr)
            self.assertFalse(os.path.exists(os.path.join(folder, "ran")))
            # Nor is a program overwritten by the result.
            answer = subprocess.run(
                [*command, f"--output={programs['bench']}"], capture_output=True, text=True
            )
            self.assertEqual(answer.returncode, 2)
            self.assertIn("is read and would be lost", answer.stderr)

    def test_bench_is_the_repositorys_wherever_one_stands(self):
        with tempfile.TemporaryDirectory() as folder:
            scripts, build = (os.path.join(folder, "repository", n) for n in ("scripts", "build"))
            shutil.copytree(SCRIPTS, scripts)
            os.mkdir(build)
            shutil.copy("/bin/true", os.path.join(build, "bench"))
            answer = subprocess.run(
                [sys.executable, os.path.join(scripts, "interleave.py"), "--python=false"],
                capture_output=True,
                text=True,
                cwd=folder,
            )
            self.assertEqual(answer.returncode, 2)
            self.assertIn("does not import torch", answer.stderr)

    def test_one_line_and_status_2(self):
        here = f"--bench={sys.executable}"
        for flags, part in (
            (["--bench=/nowhere/bench"], "'/nowhere/bench' is no program"),
            ([here, "--rounds=0"], "'0' is not a whole number from 1"),
            ([here, "--steps-of=baseline"], "'baseline' is not like baseline=10"),
            ([here, "--steps-of=nothing=3"], "'nothing=3' is not like baseline=10"),
            ([here, "--device=tpu"], "unknown device 'tpu'"),
            ([here, "--output=/nowhere/out.json"], "no folder '/nowhere'"),
        ):
            with self.subTest(flags):
                command = [sys.executable, os.path.join(SCRIPTS, "interleave.py"), *flags]
                answer = subprocess.run(command, capture_output=True, text=True)
                self.assertEqual(answer.returncode, 2)
                self.assertEqual(len(answer.stderr.splitlines()), 1)
                self.assertIn(part, answer.stderr)


if __name__ == "__main__":
    unittest.main()
