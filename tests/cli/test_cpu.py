"""Runs on the cpu device: real threads, real worker processes, real signals."""

import os
import pty
import re
import resource
import select
import signal
import subprocess
import unittest

import program
from program import CPU, PIPELINE, Case, alive, children, rows_of, strict_json


class Ladder(Case):
    def test_every_rung_runs_and_no_batch_is_bad(self):
        rows = rows_of(
            self.run_to_file(*CPU, "--steps=4", "--warmup=1", "--benchmark_filter=Pipeline")
        )
        self.assertEqual(list(rows), PIPELINE)
        for row in rows.values():
            self.assertEqual(row["bad_batches"], 0)
        self.assert_sound(*PIPELINE)

    def test_batches_are_bad_where_nothing_guards_them_and_only_there(self):
        # The lag is step enough, and a short one.
        result = self.run_to_file(*CPU, "--step=null", "--steps=20", "--benchmark_filter=Guard")
        rows = rows_of(result)
        self.assertEqual(len(rows), 12, result["skipped"])
        for name, row in rows.items():
            if "/none" not in name:
                self.assertEqual(row["bad_batches"], 0, name)
            elif "/lag_ms:" in name:
                self.assertGreater(row["bad_batches"], 0, name)
        self.assert_sound("Guard/prefetcher/slots", "Guard/prefetcher/none")

    def test_sweeps_are_of_small_sizes(self):
        result = self.run_to_file(*CPU, "--steps=2", "--warmup=1", "--benchmark_filter=Size/direct")
        self.assertEqual(
            list(rows_of(result)),
            [f"BatchSize/direct/batch:{batch}" for batch in (2, 4, 8)]
            + [f"ImageSize/direct/image:{image}" for image in (32, 64, 96)],
        )
        self.assert_sound()

    def test_small_sizes_are_the_default_and_every_one_can_be_given(self):
        specs = self.run_to_file("--device=cpu", "--benchmark_filter=null", "--image=32")["specs"]
        spec = specs["Pipeline/null"]
        self.assertEqual((spec["batch"], spec["image"], spec["warmup"]), (4, 32, 3))

    def test_context_has_the_speed_of_the_cores(self):
        context = self.run_to_file(*CPU, "--benchmark_filter=null")["context"]
        for key in ("randn_1_thread_GBps", "randn_all_cores_GBps"):
            self.assertGreater(float(context[f"feedrate.{key}"]), 0)
        self.assertEqual(context["feedrate.simulated"], "false")


class Factors(Case):
    def test_transfers_overlap_and_staging_run_and_are_checked(self):
        result = self.run_to_file(
            *CPU,
            "--steps=3",
            "--benchmark_filter=/bytes:(4096|65536|24576|536870912)$|ratio:(1|10)$|^Staging",
        )
        self.assert_sound()
        rows = rows_of(result)
        skipped = {row["name"]: row["reason"] for row in result["skipped"]}
        batch = 2 * 3 * 32 * 32 * 4
        for family in ("H2D", "D2H"):
            for kind in ("pageable", "pinned", "tensor_copy"):
                for mode in ("blocking", "async"):
                    row = rows[f"{family}/{kind}/{mode}/bytes:{batch}"]
                    self.assertGreater(row["GBps"], 0)
                    self.assertGreater(row["of_pinned"], 0)
                    self.assertNotIn("of_link", row)
                    self.assertEqual(row["iterations"], 3)
            self.assertIn("too long", skipped[f"{family}/pinned/async/bytes:536870912"])
            self.assertIn("locks no pages", skipped[f"{family}/registered/async/bytes:4096"])
        self.assertGreater(rows[f"Duplex/both_at_once/bytes:{batch}"]["of_alone"], 0)
        self.assertIn("no link", skipped[f"Duplex/h2d_while_d2h/bytes:{batch}"])
        blocking = rows["Copy/pinned/blocking/busy/bytes:65536"]
        self.assertEqual(blocking["waits_for_stream"], 1)
        self.assertGreaterEqual(blocking["busy_ms"], 5)
        self.assertIn("too small", skipped["Overlap/spin/two_streams/ratio:1"])
        self.assertIn("too small", skipped["Overlap/step/one_stream/ratio:1"])
        self.assertGreater(rows["Staging/fill/fresh"]["faults"], 0)
        self.assertEqual(rows["Staging/fill/ring"]["faults"], 0)
        for name in ("pin_thread", "direct"):
            self.assertEqual(rows[f"Staging/feed/{name}"]["bad_batches"], 0)
        self.assertIn("locks no pages", skipped["Staging/lock/alloc"])


class Running:
    """The program while it runs, with a terminal for its stderr."""

    def __init__(self, case, *args, preexec_fn=program.default_signals):
        self.terminal, child_end = pty.openpty()
        case.addCleanup(os.close, self.terminal)
        self.process = subprocess.Popen(
            [program.BENCH, *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=child_end,
            text=True,
            env=program.environment(),
            preexec_fn=preexec_fn,
        )
        os.close(child_end)
        case.addCleanup(self.process.stdout.close)
        case.addCleanup(self.process.wait)
        case.addCleanup(self.process.kill)
        self.shown = ""

    def read_terminal(self, timeout_s):
        """Adds what comes next to `shown`. False: nothing came, or nothing will."""
        if not select.select([self.terminal], [], [], timeout_s)[0]:
            return False
        try:
            text = os.read(self.terminal, 65536)
        except OSError:  # the other end is closed
            return False
        self.shown += text.decode()
        return bool(text)

    def wait_for(self, pattern):
        """Reads the terminal until `pattern` has been shown."""
        while not re.search(pattern, self.shown):
            if not self.read_terminal(program.TIMEOUT_S):
                raise AssertionError(f"{pattern} was never shown: {self.shown!r}")

    def finish(self):
        while self.read_terminal(0.1) or self.process.poll() is None:
            pass
        return self.process.communicate(timeout=program.TIMEOUT_S)[0]


class Interrupt(Case):
    def test_finished_rows_are_written_and_nothing_is_left_running(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number):
                running = Running(
                    self,
                    *CPU,
                    "--benchmark_filter=Pipeline/(null|workers)",
                    "--steps=3000",
                    f"--benchmark_out={self.out}",
                )
                running.wait_for(r"row 2 of 2  Pipeline/workers  step \d+ of 3\d\d\d")
                workers = children(running.process.pid)
                self.assertEqual(len(workers), 2)
                running.process.send_signal(number)
                table = running.finish()
                self.assertEqual(running.process.returncode, 130)
                self.assertNotIn("Pipeline/workers", table)
                self.assertFalse([pid for pid in workers if alive(pid)])
                result = strict_json(self.out.read_text())
                self.assertEqual(list(rows_of(result)), ["Pipeline/null"])
                self.assertEqual(result["context"]["feedrate.interrupted"], "true")
                self.assertEqual(os.listdir(self.folder), [self.out.name])
                self.assert_sound("Pipeline/null")

    def test_signals_that_nohup_and_shells_ignore_stay_ignored(self):
        def ignore():
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_IGN)

        row = "--benchmark_filter=Pipeline/workers"
        running = Running(
            self, *CPU, row, "--steps=200", f"--benchmark_out={self.out}", preexec_fn=ignore
        )
        running.wait_for(r"Pipeline/workers  step \d+ of")
        running.process.send_signal(signal.SIGHUP)
        running.process.send_signal(signal.SIGINT)
        running.finish()
        self.assertEqual(running.process.returncode, 0)
        result = strict_json(self.out.read_text())
        self.assertEqual(result["context"]["feedrate.interrupted"], "false")

    def test_finished_repetitions_are_written_without_aggregates(self):
        running = Running(
            self,
            *CPU,
            "--benchmark_filter=null",
            "--benchmark_repetitions=1000",
            f"--benchmark_out={self.out}",
        )
        running.wait_for(r"row \d\d+ of 1000 ")
        running.process.send_signal(signal.SIGINT)
        running.finish()
        self.assertEqual(running.process.returncode, 130)
        rows = strict_json(self.out.read_text())["benchmarks"]
        self.assertGreaterEqual(len(rows), 2)
        self.assertEqual([row["repetition_index"] for row in rows], [*range(len(rows))])

    def test_before_any_row_has_finished_the_old_file_stays(self):
        self.out.write_text("an older result")
        running = Running(
            self,
            *CPU,
            "--benchmark_filter=Pipeline/workers",
            "--steps=3000",
            f"--benchmark_out={self.out}",
        )
        running.wait_for(r"row 1 of 1 ")
        running.process.send_signal(signal.SIGINT)
        running.finish()
        self.assertEqual(running.process.returncode, 130)
        self.assertIn("interrupted before any row had finished", running.shown)
        self.assertEqual(self.out.read_text(), "an older result")

    def test_step_that_takes_too_long_is_not_waited_for(self):
        # A step of this size takes a host far longer than the program waits for it.
        running = Running(
            self,
            "--device=cpu",
            "--batch=16",
            "--image=512",
            "--workers=1",
            "--benchmark_filter=Pipeline/(null|baseline)",
            f"--benchmark_out={self.out}",
        )
        running.wait_for(r"row 2 of 2 ")
        running.process.send_signal(signal.SIGINT)
        running.finish()
        self.assertEqual(running.process.returncode, 130)
        result = strict_json(self.out.read_text())
        self.assertEqual(list(rows_of(result)), ["Pipeline/null"])
        self.assertEqual(result["context"]["feedrate.interrupted"], "true")


class Descriptors(Case):
    def test_closed_standard_descriptors_are_nobody_elses(self):
        def close(fds):
            return lambda: [os.close(fd) for fd in fds]

        row = "--benchmark_filter=Pipeline/workers"
        for fds, status in (((0,), 0), ((1,), 1), ((0, 1), 1), ((2,), 0), ((0, 1, 2), 1)):
            with self.subTest(closed=fds):
                done = program.bench(
                    *CPU, row, "--steps=3", f"--benchmark_out={self.out}", preexec_fn=close(fds)
                )
                self.assertEqual(done.returncode, status, done)
                self.assertNotIn("worker:", done.stderr)
                if 1 in fds and 2 not in fds:
                    self.assertIn("standard output could not be written", done.stderr)
                rows = rows_of(strict_json(self.out.read_text()))
                self.assertEqual(list(rows), ["Pipeline/workers"])
                self.out.unlink()

    def test_rows_without_processes_run_where_those_with_them_lack_descriptors(self):
        done = program.bench(
            *CPU,
            "--benchmark_filter=Pipeline/(null|workers|direct)$",
            "--steps=3",
            "--workers=80",
            f"--benchmark_out={self.out}",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
        )
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("Too many open files: raise ulimit -n", done.stderr)
        result = strict_json(self.out.read_text())
        failed = {row["name"]: row.get("error_occurred", False) for row in result["benchmarks"]}
        self.assertEqual(
            failed, {"Pipeline/null": False, "Pipeline/workers": True, "Pipeline/direct": False}
        )


class Workers(Case):
    def test_killed_worker_is_an_error_row_and_the_next_row_runs(self):
        running = Running(
            self,
            *CPU,
            "--benchmark_filter=Pipeline/(workers|pinned)",
            "--steps=200",
            f"--benchmark_out={self.out}",
        )
        running.wait_for(r"Pipeline/workers  step \d+ of")
        killed = children(running.process.pid)[0]
        os.kill(killed, signal.SIGKILL)
        running.finish()
        self.assertEqual(running.process.returncode, 1)
        rows = rows_of(strict_json(self.out.read_text()))
        self.assertTrue(rows["Pipeline/workers"]["error_occurred"], "the kill came in time")
        self.assertIn("killed by signal 9", rows["Pipeline/workers"]["error_message"])
        self.assertNotIn("error_occurred", rows["Pipeline/pinned"])
        self.assertEqual(rows["Pipeline/pinned"]["bad_batches"], 0)

    def test_progress_line_is_erased_at_the_end(self):
        running = Running(self, *CPU, "--benchmark_filter=Pipeline/workers", "--steps=20")
        running.finish()
        self.assertRegex(running.shown, r"row 1 of 1  Pipeline/workers")
        self.assertTrue(running.shown.endswith("\r\x1b[K"))

    def test_no_progress_without_a_terminal(self):
        done = program.bench(*CPU, "--benchmark_filter=Pipeline/workers", "--steps=20")
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
