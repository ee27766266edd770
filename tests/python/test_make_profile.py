"""make_profile.py: a profile from a result file, one line for what is none."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "make_profile.py"
RESULTS = ROOT / "results" / "h200-16c"


def run(*arguments):
    return subprocess.run(
        [sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True, check=False
    )


class MakeProfile(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name) / "profile.json"
        self.given = pathlib.Path(folder.name) / "given.json"

    def test_makes_the_recorded_profile_of_the_recorded_result(self):
        run_of = run(RESULTS / "suite.json", "--name", "h200-16c", "-o", self.out)
        self.assertEqual((run_of.returncode, run_of.stderr), (0, ""))
        made = json.loads(self.out.read_text())
        self.assertEqual(made, json.loads((RESULTS / "profile.json").read_text()))

    def test_takes_the_median_of_repetitions(self):
        result = json.loads((RESULTS / "pipeline-compute.json").read_text())
        steps = [row for row in result["benchmarks"] if row["name"] == "Compute/resnet18"]
        step = steps[0]
        others = [row for row in result["benchmarks"] if row not in steps]
        repeated = [{**step, "launch_ms": step["launch_ms"] * factor} for factor in (100, 1, 10)]
        result["benchmarks"] = [*others, *repeated]
        self.given.write_text(json.dumps(result))
        self.assertEqual(run(self.given, "-o", self.out).returncode, 0)
        launch = json.loads(self.out.read_text())["launch"]["ms"]
        self.assertAlmostEqual(launch, step["launch_ms"] * 10, places=3)

    def test_normalisation_is_a_cost_where_a_row_shows_it(self):
        result = json.loads((RESULTS / "suite.json").read_text())
        step, flow = "Compute/resnet18_u8", "Pipeline/direct_u8"
        others = [row for row in result["benchmarks"] if row["name"] not in (step, flow)]
        (one,) = [row for row in result["benchmarks"] if row["name"] == flow]
        both = [one, {**one, "name": step, "run_name": step, "normalize_ms": 0.5}]
        shown = {row["name"]: row["normalize_ms"] for row in both}
        for there, name in ((both, step), (both[:1], flow), ([], None)):
            rows = others + there
            self.given.write_text(json.dumps({**result, "benchmarks": rows}))
            self.assertEqual(run(self.given, "-o", self.out).returncode, 0)
            profile = json.loads(self.out.read_text())
            if name is None:
                self.assertNotIn("normalize", profile)
                continue
            self.assertEqual(profile["normalize"]["ms"], round(shown[name], 4))
            self.assertEqual(profile["normalize"]["scaling"], "pixels")
            self.assertIn(name, profile["normalize"]["note"])

    def test_the_result_itself_is_not_written(self):
        text = (RESULTS / "pipeline-compute.json").read_text()
        self.given.write_text(text)
        run_of = run(self.given, "-o", self.given)
        self.assertEqual((run_of.returncode, len(run_of.stderr.splitlines())), (2, 1))
        self.assertEqual(self.given.read_text(), text)

    def test_says_in_one_line_what_is_no_result_file(self):
        published = ROOT / "results" / "l40s-g6e.2xlarge" / "published.json"
        rows = json.loads((RESULTS / "pipeline-compute.json").read_text())
        flow = [row for row in rows["benchmarks"] if not row["name"].startswith("Compute/")]
        rows["benchmarks"] = flow  # without the ceiling
        for text in ("[]", '{"context": {}, "benchmarks": []}', '{"context": [], "benchmarks": []}',
                     "{", "[" * 100_000, "null", published.read_text(), json.dumps(rows)):
            with self.subTest(text[:40]):
                self.given.write_text(text)
                run_of = run(self.given, "-o", self.out)
                self.assertEqual(run_of.returncode, 2, run_of.stderr)
                self.assertEqual(len(run_of.stderr.splitlines()), 1, run_of.stderr)
                self.assertIn(str(self.given), run_of.stderr)
                self.assertFalse(self.out.exists())


if __name__ == "__main__":
    unittest.main()
