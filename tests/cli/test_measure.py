"""scripts/measure.sh: all families of a machine, one file each, and what follows from them."""

import json
import os
import signal
import subprocess
import unittest

import program
from program import CPU, Case

SCRIPT = program.SOURCE / "scripts/measure.sh"
FAMILIES = ["ladder", "factors", "factorial", "workers", "batch", "image"]
SIM = "--device=sim:l40s"


class Measure(Case):
    def setUp(self):
        super().setUp()
        self.results = self.folder / "one machine"

    def call(self, *arguments):
        return subprocess.run(
            [SCRIPT, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=program.TIMEOUT_S,
            env=program.environment(BENCH=program.BENCH),
        )

    def files(self):
        return sorted(os.listdir(self.results))

    def inodes(self):
        return {file: (self.results / file).stat().st_ino for file in self.files()}

    def result(self, name):
        return program.strict_json((self.results / f"{name}.json").read_text())

    def names(self, name):
        result = self.result(name)
        return [row["name"] for row in result["benchmarks"] + result["skipped"]]

    def test_every_row_is_in_one_file(self):
        done = self.call(self.results, SIM)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.files(), sorted(f"{name}.json" for name in [*FAMILIES, "effects"]))
        measured = [row for name in FAMILIES for row in self.names(name)]
        listed = program.bench(SIM, "--benchmark_list_tests").stdout.splitlines()
        self.assertEqual(sorted(measured), sorted(listed))
        self.assertEqual(len(self.result("effects")["effects"]), 4)

    def test_what_is_there_whole_is_not_measured_again(self):
        self.assertEqual(self.call(self.results, SIM).returncode, 0)
        before = self.inodes()
        cut_off = self.result("workers")
        cut_off["context"]["feedrate.interrupted"] = "true"
        (self.results / "workers.json").write_text(json.dumps(cut_off, indent=2))
        older = self.result("batch")
        older["context"]["feedrate.git_revision"] = "0123456789ab"
        (self.results / "batch.json").write_text(json.dumps(older, indent=2))
        done = self.call(self.results, SIM)
        self.assertEqual(done.returncode, 0, done.stderr)
        again = {file for file, inode in self.inodes().items() if before[file] != inode}
        self.assertEqual(again, {"workers.json", "batch.json", "effects.json"})
        self.assertEqual(self.result("workers")["context"]["feedrate.interrupted"], "false")
        self.assertIn("ladder.json is there", done.stderr)

    def test_failed_rows_are_told_at_the_end_and_the_rest_is_measured(self):
        done = self.call(self.results, SIM, "--batch=20000")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertLess({f"{name}.json" for name in FAMILIES}, {*self.files(), "effects.json"})

    def test_wrong_usage(self):
        for arguments, says in (
            ([], "usage"),
            (["--device=sim"], "usage"),
            ([self.results, "--benchmark_filter=Pipeline"], "is set here"),
            ([self.results, "--benchmark-out=x.json"], "is set here"),
            ([self.results, "--no-such-flag"], "unknown flag"),
            (["/proc/none"], "cannot be written"),
        ):
            with self.subTest(arguments=arguments):
                done = self.call(*arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(says, done.stderr)
                self.assertFalse(self.results.exists() and self.files())

    def start(self):
        """Until its first row has run."""
        running = subprocess.Popen(
            [SCRIPT, self.results, *CPU, "--steps=300"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=program.environment(BENCH=program.BENCH),
            start_new_session=True,
            preexec_fn=program.default_signals,
        )
        self.addCleanup(running.stdout.close)
        self.addCleanup(running.wait)
        for line in running.stdout:
            if line.startswith("Pipeline/null"):
                break
        return running

    def test_interrupt_ends_it_all(self):
        running = self.start()
        os.killpg(running.pid, signal.SIGINT)
        running.communicate(timeout=program.TIMEOUT_S)
        self.assertEqual(running.returncode, 130)
        self.assertEqual(self.files(), ["ladder.json"])
        self.assertEqual(self.result("ladder")["context"]["feedrate.interrupted"], "true")

    def test_termination_leaves_no_child(self):
        running = self.start()
        os.kill(running.pid, signal.SIGTERM)
        # The output ends when the last process that has it has ended.
        running.communicate(timeout=program.TIMEOUT_S)
        self.assertEqual(running.returncode, -signal.SIGTERM)
        self.assertEqual(self.files(), ["ladder.json"])
        self.assertEqual(self.result("ladder")["context"]["feedrate.interrupted"], "true")


if __name__ == "__main__":
    unittest.main()
