"""reference.py feeds in the published order, times the right window, writes what tools read."""

import argparse
import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SCRIPTS = os.path.join(ROOT, "scripts")
sys.path.insert(0, SCRIPTS)

import check_result  # noqa: E402
from children import default_signals  # noqa: E402
import common  # noqa: E402
import reference  # noqa: E402

HAS_TORCH = all(importlib.util.find_spec(name) for name in ("torch", "torchvision"))


def options_with(**changes):
    options = argparse.Namespace(
        warmup=2, steps=3, cooldown=1, window="steady", capture=False, batch=64, image=512,
        repetitions=1,
    )
    vars(options).update(changes)
    return options


class Tensor:
    """Stands for a batch of one tensor: logs when and how it is copied."""

    def __init__(self, number, log):
        self.number = number
        self._log = log

    def to(self, device, non_blocking):
        self._log.append(f"copy {self.number}{' async' if non_blocking else ''}")
        return self


class Device:
    """Stands for a GPU: logs what a schedule asks of it, and a clock that counts calls."""

    name = "device"

    def __init__(self, log):
        self.log = log
        self.compute_stream = "compute"
        self._now = 0

    def new_stream(self):
        return "copy"

    @contextlib.contextmanager
    def on(self, stream):
        self.log.append(f"on {stream}")
        yield
        self.log.append("off")

    def wait(self, waiter, other):
        self.log.append(f"{waiter} waits for {other}")

    def record(self, batch, stream):
        self.log.append(f"record {batch[0].number} on {stream}")

    def synchronize(self):
        self.log.append("synchronize")

    def mark(self):
        self._now += 10
        self.log.append("mark")
        return self._now

    def between_ms(self, first, second):
        return float(second - first)

    def profiler(self, start):
        self.log.append("profiler start" if start else "profiler stop")


class Trainer:
    def __init__(self, log):
        self._log = log

    def step(self, batch):
        self._log.append(f"step {batch[0].number}")


class Once:
    """A window of a few steps that measures nothing."""

    def __init__(self, steps):
        self._steps = steps

    def steps(self):
        return iter(range(self._steps))

    def step_launched(self):
        pass


def schedule_log(schedule, *more, steps=2):
    log = []

    def batches():
        number = 0
        while True:
            log.append(f"fetch {number}")
            yield [Tensor(number, log)]
            number += 1

    def no_ranges(name):
        return contextlib.nullcontext()

    schedule(batches(), Device(log), Trainer(log), Once(steps), no_ranges, *more)
    return log


class Schedules(unittest.TestCase):
    def test_serial_fetches_copies_and_steps_in_turn(self):
        self.assertEqual(
            schedule_log(reference.serial, False),
            ["fetch 0", "copy 0", "step 0", "fetch 1", "copy 1", "step 1"],
        )
        self.assertIn("copy 0 async", schedule_log(reference.serial, True))

    def test_two_streams_launches_a_step_before_it_fetches_the_next_batch(self):
        copy = ["on copy", "copy {} async", "off"]
        step = ["on compute", "compute waits for copy", "step {}", "off"]
        expected = []
        for line, number in (
            [("fetch {}", 0)]
            + [(line, 0) for line in copy + step]
            + [("fetch {}", 1)]
            + [(line, 1) for line in copy + step]
            + [("fetch {}", 2)]
            + [(line, 2) for line in copy]
        ):
            expected.append(line.format(number))
        self.assertEqual(schedule_log(reference.two_streams, "none"), expected)

    def test_the_prefetcher_copies_the_next_batch_before_it_hands_out_this_one(self):
        log = schedule_log(reference.prefetcher, "none")
        copy = ["on copy", "copy {} async", "off"]
        expected = ["fetch 0"] + [line.format(0) for line in copy]
        for number in (0, 1):
            expected += ["compute waits for copy", f"fetch {number + 1}"]
            expected += [line.format(number + 1) for line in copy] + [f"step {number}"]
        self.assertEqual(log, expected)

    def test_the_record_guard_records_each_batch_that_is_used(self):
        for schedule in (reference.two_streams, reference.prefetcher):
            log = schedule_log(schedule, "record", steps=3)
            for number in range(3):
                recorded = log.index(f"record {number} on compute")
                self.assertLess(recorded, log.index(f"step {number}"))
            self.assertNotIn("record", " ".join(schedule_log(schedule, "none")))


class Windows(unittest.TestCase):
    def run_window(self, **changes):
        log = []
        window = reference.Window(options_with(**changes), Device(log))
        for _ in window.steps():
            log.append("step")
            window.step_launched()
            log.append("fetch")
        return log, window

    def test_steady_marks_ends_and_never_synchronizes_between(self):
        log, window = self.run_window()
        step, marked = ["step", "fetch"], ["step", "mark", "fetch"]
        self.assertEqual(log, step + marked + marked * 3 + step)
        total_ms, _, steps_ms = window.results()
        self.assertEqual(total_ms, 30.0)
        self.assertEqual(steps_ms, [10.0, 10.0, 10.0])

    def test_published_synchronizes_around_the_measured_steps(self):
        log, window = self.run_window(window="published")
        step = ["step", "fetch"]
        self.assertEqual(log, step * 2 + ["synchronize"] + step * 3 + ["synchronize"] + step)
        total_ms, _, steps_ms = window.results()
        self.assertGreater(total_ms, 0.0)
        self.assertEqual(steps_ms, [])

    def test_capture_brackets_just_the_measured_steps(self):
        for kind in reference.WINDOWS:
            log, _ = self.run_window(window=kind, capture=True)
            start, stop = log.index("profiler start"), log.index("profiler stop")
            self.assertEqual(log[start - 1], "synchronize")
            self.assertEqual(log[stop - 1], "synchronize")
            self.assertEqual(log[start:stop].count("step"), 3)


class Rows(unittest.TestCase):
    def test_a_batch_is_the_published_number_of_bytes(self):
        self.assertEqual(reference.batch_bytes(options_with()), 201326592 + 512)

    def test_quantiles_lie_linearly_between_ranks(self):
        self.assertEqual(reference.quantile([4.0, 1.0, 3.0, 2.0], 0.5), 2.5)
        self.assertEqual(reference.quantile([1.0, 2.0, 3.0], 0.95), 2.9)
        self.assertEqual(reference.quantile([7.0], 0.95), 7.0)

    def test_rates_follow_from_the_window(self):
        options = options_with()
        row = reference.blank_row("streams", 3, 0, options)
        reference.timed_row(row, (300.0, 30.0, [90.0, 100.0, 110.0]), options)
        self.assertEqual(row["name"], "Pipeline/streams")
        self.assertEqual((row["iterations"], row["real_time"], row["cpu_time"]), (3, 100.0, 10.0))
        self.assertEqual((row["steps_per_s"], row["items_per_second"]), (10.0, 640.0))
        self.assertEqual(row["bytes_per_second"], 10.0 * (201326592 + 512))
        self.assertEqual(row["step_p50_ms"], 100.0)

    def test_the_step_alone_feeds_nothing(self):
        options = options_with()
        row = reference.blank_row("compute", 5, 0, options)
        reference.timed_row(row, (300.0, 30.0, []), options)
        self.assertEqual(row["name"], "Compute/resnet18")
        self.assertNotIn("bytes_per_second", row)

    def test_a_loader_alone_has_its_workers_in_its_name_and_counts_batches(self):
        options = options_with(workers=4)
        row = reference.blank_row("loader", 6, 0, options)
        reference.loader_row(row, (300.0, 30.0, 700.0), options)
        self.assertEqual(row["name"], "Loader/python/workers:4")
        self.assertEqual((row["batches_per_s"], row["items_per_second"]), (10.0, 640.0))
        self.assertEqual((row["real_time"], row["first_batch_ms"]), (100.0, 700.0))
        self.assertAlmostEqual(row["GBps"], 2.01327104)
        self.assertNotIn("steps_per_s", row)

    def test_rungs_run_once_each_in_the_order_of_the_experiment(self):
        options = reference.parse(["--rung=pinned", "--rung=baseline", "--rung=pinned"])
        self.assertEqual(options.rung, ["baseline", "pinned"])
        rungs = [rung for rung in reference.ROWS if rung != "loader"]
        self.assertEqual(reference.parse([]).rung, rungs)


class Devices(unittest.TestCase):
    def test_cuda_is_the_first_gpu(self):
        self.assertEqual(reference.parse([]).device, "cuda:0")
        self.assertEqual(reference.parse(["--device=cuda:3"]).device, "cuda:3")
        self.assertEqual(reference.parse(["--device=cpu"]).device, "cpu")


def run_reference(*flags):
    command = [sys.executable, os.path.join(SCRIPTS, "reference.py"), *flags]
    # One thread: the tests share their machine.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


class BadUsage(unittest.TestCase):
    def test_one_line_and_status_2(self):
        for flags, part in (
            (["--rung=fast"], "invalid choice: 'fast'"),
            (["--device=tpu"], "unknown device 'tpu': use cuda, cuda:N or cpu"),
            (["--device=cuda:x"], "unknown device 'cuda:x'"),
            (["--batch=0"], "'0' is not a whole number from 1 to 65536"),
            (["--batch=-4"], "'-4' is not a whole number"),
            (["--image=big"], "'big' is not a whole number"),
            (["--steps=1.5"], "'1.5' is not a whole number"),
            (["--workers=1000000"], "'1000000' is not a whole number from 1 to 4096"),
            (["--warmup=0"], "'0' is not a whole number"),
            (["--window=long"], "invalid choice: 'long'"),
            (["--batch=65536", "--image=16384"], "at most 1099511627776 make sense"),
            (["--output=/nowhere/out.json"], "no folder '/nowhere'"),
            (["--record=/"], "it is a folder"),
            (["--step=3"], "unrecognized arguments: --step=3"),
        ):
            with self.subTest(flags):
                answer = run_reference(*flags)
                self.assertEqual(answer.returncode, 2)
                self.assertEqual(answer.stdout, "")
                self.assertEqual(len(answer.stderr.splitlines()), 1, answer.stderr)
                self.assertIn(part, answer.stderr)


@unittest.skipUnless(HAS_TORCH, "needs torch and torchvision")
class EndToEnd(unittest.TestCase):
    def test_every_rung_runs_on_the_cpu_and_its_file_is_sound(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            flags = ["--device=cpu", "--workers=1", "--batch=2", "--image=32", "--steps=2"]
            answer = run_reference(*flags, "--warmup=1", f"--output={path}")
            self.assertEqual(answer.returncode, 0, answer.stderr)
            self.assertEqual(os.listdir(folder), ["out.json"])
            result = common.read_json(path)
        rows = [row for rung, row in reference.ROWS.items() if rung != "loader"]
        self.assertEqual(list(check_result.check_result(result, rows)), [])
        self.assertEqual([row["name"] for row in result["benchmarks"]], rows)
        for row in result["benchmarks"]:
            self.assertEqual(row["iterations"], 2)
            self.assertIn("step_p95_ms", row)

    def test_the_loader_alone_runs_on_the_cpu_and_its_file_is_sound(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            flags = ["--device=cpu", "--rung=loader", "--workers=1", "--batch=2", "--image=32"]
            answer = run_reference(*flags, "--steps=4", f"--output={path}")
            self.assertEqual(answer.returncode, 0, answer.stderr)
            result = common.read_json(path)
        self.assertEqual(list(check_result.check_result(result, ["Loader/python"])), [])
        (row,) = result["benchmarks"]
        self.assertEqual((row["name"], row["iterations"]), ("Loader/python/workers:1", 4))
        self.assertGreater(row["first_batch_ms"], 0)
        self.assertGreater(row["batches_per_s"], 0)

    def test_a_rung_that_cannot_run_is_an_error_row_and_status_1(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            # Batch norm has nothing to normalise over.
            flags = ["--device=cpu", "--rung=baseline", "--batch=1", "--image=1", "--steps=1"]
            answer = run_reference(*flags, f"--output={path}")
            self.assertEqual(answer.returncode, 1)
            result = common.read_json(path)
        self.assertEqual(list(check_result.check_result(result)), [])
        row = result["benchmarks"][0]
        self.assertTrue(row["error_occurred"])
        self.assertIn("more than 1 value per channel", row["error_message"])

    def test_a_signal_ends_it_with_its_workers(self):
        for number, words in (
            (signal.SIGTERM, "interrupted by SIGTERM, nothing written"),
            (signal.SIGINT, "interrupted, nothing written"),
        ):
            with self.subTest(words), tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, os.path.join(SCRIPTS, "reference.py"), "--device=cpu"]
                command += ["--rung=loader", "--workers=2", "--batch=2", "--image=32"]
                command += ["--steps=1000000", f"--output={folder}/out.json"]
                process = subprocess.Popen(
                    command,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                    env={**os.environ, "OMP_NUM_THREADS": "1"},
                    preexec_fn=default_signals,
                )
                children = f"/proc/{process.pid}/task/{process.pid}/children"
                workers = []
                while len(workers) < 2 and process.poll() is None:
                    time.sleep(0.05)
                    with contextlib.suppress(OSError), open(children, encoding="utf-8") as file:
                        workers = file.read().split()
                process.send_signal(number)
                _, err = process.communicate(timeout=60)
                self.assertEqual((process.returncode, err), (128 + number, f"reference: {words}\n"))
                self.assertEqual(os.listdir(folder), [])
                self.assertFalse([pid for pid in workers if os.path.exists(f"/proc/{pid}")])

    def test_cuda_without_a_gpu_is_one_line_and_status_2(self):
        import torch

        if torch.cuda.is_available():
            self.skipTest("there is a GPU")
        answer = run_reference("--device=cuda")
        self.assertEqual(answer.returncode, 2)
        self.assertIn("PyTorch sees no GPU here", answer.stderr)


if __name__ == "__main__":
    unittest.main()
