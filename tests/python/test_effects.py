"""effects.py: known effects come out again; one line for what is no such file."""

import copy
import itertools
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "effects.py"

LEVELS = {
    "memory": ("pageable", "pinned"),
    "copy": ("blocking", "async"),
    "schedule": ("serial", "two_streams"),
    "sync_every": ("0", "1"),
}
MEAN = 100.0
EFFECTS = {"memory": -8.0, "copy": -4.0, "schedule": 0.0, "sync_every": 2.0}
INTERACTIONS = {("copy", "schedule"): -3.0, ("schedule", "sync_every"): 1.0}


def time_ms(signs):
    """The model that the effects are of: each adds half of itself at the second level."""
    total = MEAN + sum(signs[factor] * ms / 2 for factor, ms in EFFECTS.items())
    return total + sum(signs[a] * signs[b] * ms / 2 for (a, b), ms in INTERACTIONS.items())


def row(name, ms, **more):
    return {
        "name": name,
        "run_name": name,
        "run_type": "iteration",
        "real_time": ms,
        "time_unit": "ms",
        **more,
    }


def synthetic():
    rows = []
    for signs in itertools.product((-1, 1), repeat=4):
        signs = dict(zip(LEVELS, signs, strict=True))
        name = "/".join(
            ["Factorial", *(f"{f}:{levels[signs[f] > 0]}" for f, levels in LEVELS.items())]
        )
        rows.append(row(name, time_ms(signs)))
    return {
        "context": {"feedrate.device": "cuda:0", "feedrate.simulated": "false"},
        "benchmarks": [*rows, row("Pipeline/null", 0.01)],
    }


class Effects(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.given = pathlib.Path(folder.name) / "given.json"
        self.out = pathlib.Path(folder.name) / "effects.json"

    def run_on(self, result, *arguments):
        self.given.write_text(result if isinstance(result, str) else json.dumps(result))
        return subprocess.run(
            [sys.executable, SCRIPT, self.given, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
        )

    def effects_of(self, result):
        done = self.run_on(result, "--json", self.out)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(self.out.read_text())

    def assert_known(self, found):
        self.assertAlmostEqual(found["grand_mean_ms"], MEAN)
        self.assertEqual([entry["factor"] for entry in found["effects"]], list(LEVELS))
        for entry in found["effects"]:
            self.assertEqual((entry["from"], entry["to"]), LEVELS[entry["factor"]])
            self.assertAlmostEqual(entry["ms"], EFFECTS[entry["factor"]])
            self.assertAlmostEqual(entry["percent"], EFFECTS[entry["factor"]] / MEAN * 100)
        self.assertEqual(len(found["interactions"]), 6)
        for entry in found["interactions"]:
            known = INTERACTIONS.get(tuple(entry["factors"]), 0)
            self.assertAlmostEqual(entry["ms"], known, msg=entry["factors"])
            self.assertAlmostEqual(entry["percent"], known / MEAN * 100)

    def test_known_effects_come_out_again(self):
        self.assert_known(self.effects_of(synthetic()))

    def test_units_are_read(self):
        result = synthetic()
        for entry in result["benchmarks"]:
            entry.update(real_time=entry["real_time"] * 1e3, time_unit="us")
        self.assert_known(self.effects_of(result))

    def test_the_median_of_repetitions_counts_and_failed_ones_do_not(self):
        result = synthetic()
        for entry in copy.deepcopy(result["benchmarks"]):
            result["benchmarks"].append({**entry, "real_time": entry["real_time"] / 3})
            result["benchmarks"].append({**entry, "real_time": entry["real_time"] * 9})
            result["benchmarks"].append({**entry, "real_time": 0, "error_occurred": True})
        self.assert_known(self.effects_of(result))

    def test_a_file_of_aggregates_has_the_median_itself(self):
        result = synthetic()
        for entry in copy.deepcopy(result["benchmarks"]):
            mean = {**entry, "run_type": "aggregate", "aggregate_name": "mean", "real_time": 1}
            result["benchmarks"].append(mean)
        for entry in result["benchmarks"][:17]:
            entry.update(run_type="aggregate", aggregate_name="median")
            entry["name"] += "_median"
        self.assert_known(self.effects_of(result))

    def test_the_table_shows_them(self):
        done = self.run_on(synthetic())
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"\Acuda:0: a step takes 100\.000 ms")
        self.assertRegex(done.stdout, r"(?m)^memory: pageable to pinned +-8\.000 +-8\.0$")
        self.assertRegex(done.stdout, r"(?m)^copy x schedule +-3\.000 +-3\.0$")
        self.assertRegex(done.stdout, r"(?m)^memory x copy +[+-]0\.000 +[+-]0\.0$")
        self.assertNotIn("SIMULATED", done.stdout)
        self.assertFalse(self.out.exists())

    def test_simulated_is_said(self):
        result = synthetic()
        result["context"] = {"feedrate.device": "sim:l40s", "feedrate.simulated": "true"}
        self.assertIn("sim:l40s, SIMULATED", self.run_on(result).stdout)

    def test_a_missing_row_is_one_line_that_names_it(self):
        result = synthetic()
        gone = result["benchmarks"].pop(5)
        failed = result["benchmarks"][7]
        failed.update(error_occurred=True, real_time=0)
        done = self.run_on(result, "--json", self.out)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn(gone["name"] + " and 1 more", done.stderr)
        self.assertIn("--benchmark_filter=Factorial", done.stderr)
        self.assertFalse(self.out.exists())

    def test_a_time_that_is_none_is_refused(self):
        for time in (0, -3.5):
            result = synthetic()
            result["benchmarks"][3]["real_time"] = time
            done = self.run_on(result, "--json", self.out)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertIn(f"{result['benchmarks'][3]['name']}: real_time is {time}", done.stderr)
            self.assertIn(str(self.given), done.stderr)
            self.assertFalse(self.out.exists())

    def test_the_file_that_is_read_is_not_written(self):
        text = json.dumps(synthetic())
        link, hard = (self.out.with_name(name) for name in ("link.json", "hard.json"))
        self.given.write_text(text)
        link.symlink_to(self.given)
        os.link(self.given, hard)
        for output in (self.given, link, hard):
            done = self.run_on(text, "--json", output)
            self.assertEqual((done.returncode, done.stdout), (2, ""), output)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertIn("is read and would be lost", done.stderr)
            self.assertEqual(self.given.read_text(), text)
            self.assertTrue(link.is_symlink())

    def test_what_is_no_file_is_not_replaced(self):
        pipe, nothing = (self.out.with_name(name) for name in ("pipe", "nothing"))
        os.mkfifo(pipe)
        nothing.symlink_to(self.out.with_name("gone"))
        for output, says in ((pipe, "no regular file"), (nothing, "a link to nothing")):
            done = self.run_on(json.dumps(synthetic()), "--json", output)
            self.assertEqual((done.returncode, done.stdout), (2, ""), output)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertIn(says, done.stderr)
        self.assertTrue(pipe.is_fifo() and nothing.is_symlink())

    def test_a_link_is_followed_and_stays(self):
        self.out.write_text("older")
        link = self.out.with_name("link.json")
        link.symlink_to(self.out.name)
        done = self.run_on(json.dumps(synthetic()), "--json", link)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(link.is_symlink())
        self.assertIn("effects", json.loads(self.out.read_text()))

    @unittest.skipIf(os.geteuid() == 0, "root may write any file")
    def test_a_file_that_may_not_be_written_is_not_replaced(self):
        self.out.write_text("older")
        self.out.chmod(0o444)
        done = self.run_on(json.dumps(synthetic()), "--json", self.out)
        self.assertEqual((done.returncode, self.out.read_text()), (2, "older"))

    def test_what_does_not_fit_is_one_line_and_the_older_file_stays(self):
        self.given.write_text(json.dumps(synthetic()))
        self.out.write_text("older")
        done = subprocess.run(
            [sys.executable, SCRIPT, self.given, "--json", self.out],
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
        )
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertEqual(done.stderr, f"effects.py: cannot write '{self.out}': File too large\n")
        self.assertEqual(self.out.read_text(), "older")
        self.assertEqual(sorted(p.name for p in self.out.parent.iterdir()),
                         ["effects.json", "given.json"])

    def test_a_full_device_for_the_output_is_one_line(self):
        self.given.write_text(json.dumps(synthetic()))
        for arguments in ([self.given], ["--help"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run(
                    [sys.executable, SCRIPT, *arguments],
                    stdout=full,
                    stderr=subprocess.PIPE,
                    text=True,
                    check=False,
                )
            words = "effects.py: cannot write the output: No space left on device\n"
            self.assertEqual((done.returncode, done.stderr), (3, words))

    def test_what_is_no_result_file_is_one_line(self):
        zeros = synthetic()
        for entry in zeros["benchmarks"]:
            entry["real_time"] = 0
        for text in ("[]", "{", "null", '{"context": {}, "benchmarks": 3}', "[" * 100_000, zeros,
                     '{"context": {}, "benchmarks": [{"run_name": 1}]}'):
            with self.subTest(str(text)[:40]):
                done = self.run_on(text)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_a_file_that_is_not_there_is_one_line(self):
        done = subprocess.run(
            [sys.executable, SCRIPT, self.out], capture_output=True, text=True, check=False
        )
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"\Aeffects\.py: .* cannot be read: [^\n]+\n\Z")

    def test_a_place_that_cannot_be_written_is_one_line(self):
        done = self.run_on(synthetic(), "--json", self.out / "there")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("cannot write", done.stderr)


if __name__ == "__main__":
    unittest.main()
