"""Compare: verdicts that are right, exit statuses that CI can trust, and what it refuses."""

import copy
import json
import os
import subprocess
import sys
import unittest

import numpy

import example
import looking
import compare
import counters
import dashboard
import results

LADDER = [example.pipeline_rows]


def ladder(**options):
    return example.result(families=LADDER, repetitions=5, **options)


def run(base, new, *flags):
    with looking.folder_of(base=base, new=new) as folder:
        return looking.call(
            compare.main,
            os.path.join(folder, "base.json"),
            os.path.join(folder, "new.json"),
            *flags,
        )


def entries_of(base, new, **options):
    with looking.folder_of(base=base, new=new) as folder:
        rows = [
            results.read([os.path.join(folder, name)]).rows for name in ("base.json", "new.json")
        ]
    entries, remarks, failing = compare.compare(*rows, **options)
    return {(e["row"], e["counter"]): e for e in entries}, remarks, failing


def with_values(counter, values):
    """One row with these repetitions of a counter."""
    file = ladder()
    row = next(r for r in file["benchmarks"] if r["name"] == "Pipeline/pinned")
    file["benchmarks"] = [
        row | {counter: value, "repetition_index": k} for k, value in enumerate(values)
    ]
    return file


class Verdicts(unittest.TestCase):
    def verdict(self, base, new, counter="steps_per_s", **options):
        entries, *_ = entries_of(with_values(counter, base), with_values(counter, new), **options)
        return entries["Pipeline/pinned", counter]

    def test_direction(self):
        low, high = [10.0, 10.1, 10.2, 10.1, 10.0], [11.0, 11.1, 11.2, 11.1, 11.3]
        self.assertEqual(self.verdict(low, high)["verdict"], "better")
        self.assertEqual(self.verdict(high, low)["verdict"], "worse")
        self.assertEqual(self.verdict(low, high, "step_p95_ms")["verdict"], "worse")
        self.assertEqual(self.verdict(high, low, "step_p95_ms")["verdict"], "better")
        self.assertEqual(self.verdict(high, low, "spread")["verdict"], "changed")

    def test_same_and_untold(self):
        steady = [10.0, 10.01, 10.02, 10.01, 10.0]
        self.assertEqual(self.verdict(steady, steady)["verdict"], "same")
        noisy = [8.0, 12.0, 10.0, 9.0, 11.0]
        self.assertEqual(self.verdict(noisy, noisy[::-1])["verdict"], "can't tell")
        # Told apart by the test, but closer than anybody minds.
        slightly = [value * 1.004 for value in steady]
        self.assertEqual(self.verdict(steady, slightly)["verdict"], "same")
        self.assertEqual(self.verdict(steady, slightly, same_within=0.001)["verdict"], "better")

    def test_too_few_repetitions_tell_nothing(self):
        for count in (1, 2, 3):
            entry = self.verdict([10.0] * count, [5.0] * count)
            self.assertEqual(entry["verdict"], "can't tell", count)
        self.assertEqual(self.verdict([10.0] * 4, [5.0] * 4)["verdict"], "worse")

    def test_interval_holds_the_ratio(self):
        entry = self.verdict([10.0, 10.2, 9.9, 10.1, 10.0], [9.0, 9.3, 9.1, 9.2, 9.1])
        self.assertAlmostEqual(entry["ratio"], 0.91, places=2)
        self.assertLess(entry["low"], entry["ratio"])
        self.assertGreater(entry["high"], entry["ratio"])

    def test_zero(self):
        self.assertEqual(self.verdict([0.0] * 5, [0.0] * 5, "bad_batches")["verdict"], "same")
        self.assertEqual(self.verdict([0.0] * 5, [3.0] * 5, "bad_batches")["verdict"], "worse")
        self.assertEqual(self.verdict([3.0] * 5, [0.0] * 5, "bad_batches")["verdict"], "better")

    def test_a_time_that_is_nothing_of_the_step_is_the_same(self):
        entry = self.verdict([1e-9] * 5, [9e-9] * 5, "exposed_fetch_ms")
        self.assertEqual(entry["verdict"], "same")

    def test_simulated_figures_are_exact(self):
        entry = self.verdict([10.0], [9.0], exact=True)
        self.assertEqual((entry["verdict"], entry["low"], entry["high"]), ("worse", 0.9, 0.9))
        self.assertEqual(self.verdict([10.0], [10.0 + 1e-12], exact=True)["verdict"], "same")

    def test_no_false_alarm_beyond_the_margin(self):
        """The same program twice, many times over: --fail-above 5 % must not go off."""
        for seed in range(8):
            status, out, _ = run(ladder(seed=seed), ladder(seed=seed + 100), "--fail-above", "5%")
            self.assertEqual(status, 0, out)

    def test_u_test_is_scipys_for_each_line(self):
        from scipy import stats

        chance = numpy.random.default_rng(1)
        old, new = chance.normal(size=(6, 5)), chance.normal(0.5, size=(6, 5))
        new[0] = old[0]
        new[1, 0] = old[1, 0]
        expected = [stats.mannwhitneyu(a, b).pvalue for a, b in zip(old, new, strict=True)]
        numpy.testing.assert_allclose(compare.u_tests(old, new), expected)
        self.assertEqual(list(compare.u_tests(numpy.ones((1, 5)), numpy.ones((1, 5)))), [1.0])


class Statuses(unittest.TestCase):
    def test_a_slower_rung_fails(self):
        base, new = ladder(), ladder(seed=2, slower=1.12)
        status, out, _ = run(base, new, "--fail-above", "5%")
        self.assertEqual(status, 1)
        self.assertRegex(out, r"FAILED: Pipeline/pinned: steps_per_s got worse by 9\.\d% to 1\d\.")
        self.assertEqual(out.count("FAILED"), 1)
        self.assertEqual(run(base, new)[0], 0)  # only with the flag
        self.assertEqual(run(base, new, "--fail-above", "20%")[0], 0)
        self.assertEqual(run(base, new, "--fail-above", "0.05")[0], 1)
        self.assertEqual(run(new, base, "--fail-above", "5%")[0], 0)

    def test_bad_batches_and_new_errors_fail(self):
        base, new = ladder(), ladder()
        for row in new["benchmarks"]:
            if row["name"] == "Pipeline/streams":
                row["bad_batches"] = 2.0
            if row["name"] == "Pipeline/direct":
                row |= {"error_occurred": True, "error_message": "out of memory"}
        status, out, _ = run(base, new, "--fail-above", "5%")
        self.assertEqual(status, 1)
        self.assertIn("Pipeline/streams: 2 bad batches, none before", out)
        self.assertIn("Pipeline/direct failed, and had figures before", out)
        self.assertIn("Pipeline/direct: failed in NEW: out of memory", out)

    def test_a_negative_control_may_be_bad(self):
        base = example.result(families=[example.guard_rows], repetitions=5)
        for row in base["benchmarks"]:
            row["bad_batches"] = 0.0
        new = example.result(families=[example.guard_rows], repetitions=5)
        self.assertEqual(run(base, new, "--fail-above", "5%")[0], 0)

    def test_missing_rows_are_named(self):
        new = ladder()
        new["benchmarks"] = [r for r in new["benchmarks"] if r["name"] != "Pipeline/direct"]
        _, out, _ = run(ladder(), new)
        self.assertIn("Pipeline/direct: not in NEW", out)

    def test_rows_that_are_gone_fail(self):
        new = ladder()
        gone, skipped = "Pipeline/direct", "Pipeline/prefetch"
        new["benchmarks"] = [r for r in new["benchmarks"] if r["name"] not in (gone, skipped)]
        new["skipped"].append({"name": skipped, "reason": "no memory"})
        status, out, _ = run(ladder(), new, "--fail-above", "5%")
        self.assertEqual(status, 1)
        self.assertIn(f"FAILED: {gone} is missing, and had figures before", out)
        self.assertIn(f"FAILED: {skipped} is skipped, and had figures before", out)
        self.assertEqual(out.count("FAILED"), 2)
        self.assertEqual(run(ladder(), new)[0], 0)  # only with the flag
        # New rows, and rows that had no figures before either, are no failure.
        self.assertEqual(run(new, ladder(), "--fail-above", "5%")[0], 0)
        self.assertEqual(run(new, new, "--fail-above", "5%")[0], 0)

    def test_missing_rows_stand_before_skipped_ones(self):
        base, new = ladder(), ladder()
        base["skipped"] = [{"name": f"A/{k}", "reason": "no"} for k in range(5)]
        new["benchmarks"] = [r for r in new["benchmarks"] if r["name"] != "Pipeline/direct"]
        lines = run(base, new)[1].splitlines()
        missing = lines.index("Pipeline/direct: not in NEW")
        skipped = [k for k, line in enumerate(lines) if "skipped in" in line]
        self.assertTrue(skipped)
        self.assertLess(missing, min(skipped))

    def test_one_figure_where_both_ends_are_one(self):
        base, new = ladder(simulated=True), ladder(simulated=True)
        for row in new["benchmarks"]:
            if row["name"] == "Pipeline/pinned":
                row["steps_per_s"] *= 0.9
        status, out, _ = run(base, new, "--fail-above", "5%")
        self.assertEqual(status, 1)
        self.assertIn("steps_per_s got worse by 10.0%, 5.0% is allowed", out)

    def test_what_cannot_be_written_is_not_what_got_worse(self):
        with looking.folder_of(base=ladder(), new=ladder()) as folder:
            files = [os.path.join(folder, name + ".json") for name in ("base", "new")]
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run(
                    [sys.executable, compare.__file__, *files, "--fail-above", "5%"],
                    stdout=full,
                    stderr=subprocess.PIPE,
                    text=True,
                )
        words = "compare: cannot write the output: No space left on device\n"
        self.assertEqual((done.returncode, done.stderr), (3, words))

    def test_output(self):
        with looking.folder_of(base=ladder(), new=ladder(slower=1.12, seed=2)) as folder:
            path = os.path.join(folder, "out.json")
            status, *_ = looking.call(
                compare.main,
                folder + "/base.json",
                folder + "/new.json",
                "-o",
                path,
                "--fail-above",
                "5%",
            )
            with open(path, encoding="utf-8") as file:
                written = json.load(file)
        self.assertEqual(status, 1)
        self.assertEqual(len(written["failed"]), 1)
        counted = {(entry["row"], entry["counter"]) for entry in written["counters"]}
        self.assertIn(("Pipeline/pinned", "pin_ms"), counted)


class Refusals(unittest.TestCase):
    def refused(self, words, base, new, *flags):
        status, out, err = run(base, new, *flags)
        self.assertEqual((status, out), (2, ""))
        self.assertEqual(len(err.splitlines()), 1)
        self.assertIn(words, err)

    def test_simulated_with_measured(self):
        self.refused("is simulated and the other is measured", ladder(), ladder(simulated=True))
        self.refused("is simulated and the other is measured", ladder(simulated=True), ladder())
        status, out, _ = run(ladder(), ladder(simulated=True), "--force")
        self.assertEqual(status, 0)
        self.assertIn("simulated", out)
        self.assertEqual(run(ladder(simulated=True), ladder(simulated=True))[0], 0)

    def test_other_machines_are_named(self):
        new = ladder(gpu="Another GPU", cores=8)
        _, out, _ = run(ladder(), new)
        self.assertIn("different machine: gpu: Example GPU / Another GPU", out)
        self.assertIn("The machines differ", out)
        new = ladder(**{"feedrate.workers": "4", "feedrate.git_revision": "new"})
        _, out, _ = run(ladder(), new)
        self.assertIn("different workload: workers: 8 / 4", out)
        self.assertIn("different revision: 0123456789ab / new", out)
        self.assertNotIn("The machines differ", out)

    def test_several_setups(self):
        mixed = {
            "rounds": [
                {
                    "runs": [
                        {"program": "bench", "result": ladder()},
                        {"program": "bench", "result": ladder(**{"feedrate.workers": "4"})},
                    ]
                }
            ]
        }
        self.refused("holds 2 set-ups", mixed, ladder())

    def test_programs_of_an_interleaved_file(self):
        path = looking.data("interleaved")
        status, out, _ = looking.call(compare.main, path, path, "--base-program", "reference")
        self.assertEqual(status, 0)
        self.assertIn("different program: reference / bench", out)
        status, _, err = looking.call(compare.main, path, path, "--new-program", "other")
        self.assertEqual(status, 2)
        self.assertIn("there are: bench, reference", err)

    def test_usage(self):
        for share in ("x", "-1", "nan", "5%%", "2000%"):
            status, _, err = run(ladder(), ladder(), f"--fail-above={share}")
            self.assertEqual(status, 2, share)
            self.assertIn("is no share", err)
        for share, right in (("5", "write 5%, or 0.05,"), ("1.5", "write 1.5%, or 0.015,")):
            for flag in ("--fail-above", "--same-within"):
                self.refused(right, ladder(), ladder(), f"{flag}={share}")
        self.assertEqual(run(ladder(), ladder(), "--fail-above=1")[0], 0)
        self.assertEqual(run(ladder(), ladder(), "--fail-above=150%")[0], 0)
        self.refused("no rows to compare", {"context": {}, "benchmarks": []}, ladder())

    def test_a_file_to_compare_is_not_written(self):
        with looking.folder_of(base=ladder(), new=ladder()) as folder:
            base, new, link = (os.path.join(folder, n + ".json") for n in ("base", "new", "link"))
            os.symlink(new, link)
            before = os.stat(new)
            for output in (base, new, link):
                status, out, err = looking.call(compare.main, base, new, "-o", output)
                self.assertEqual((status, out, len(err.splitlines())), (2, "", 1), err)
                self.assertIn("is read and would be lost", err)
            self.assertEqual(os.stat(new), before)

    def test_recorded_files_compare_with_themselves(self):
        for name in ("bench", "simulated", "skipped", "google_benchmark"):
            path = looking.data(name)
            status, out, err = looking.call(compare.main, path, path, "--fail-above", "1%")
            # Three repetitions are too few for a gate, and nothing else is held against them.
            failed = [line for line in out.splitlines() if line.startswith("FAILED")]
            self.assertEqual(status, int(name in ("bench", "google_benchmark")), (name, out, err))
            self.assertEqual(len(failed), status)
            self.assertTrue(all("cannot be judged" in line for line in failed), failed)
            self.assertIn("0 better, 0 worse", out)

    def test_a_gate_that_cannot_judge_does_not_pass(self):
        once = example.result(families=LADDER, repetitions=1)
        half = copy.deepcopy(once)
        for row in half["benchmarks"]:
            row["steps_per_s"] /= 2
        self.assertEqual(run(once, half)[0], 0)
        status, out, _ = run(once, half, "--fail-above", "5%")
        self.assertEqual(status, 1)
        failed = [line for line in out.splitlines() if line.startswith("FAILED")]
        self.assertEqual(len(failed), 1, out)
        self.assertRegex(failed[0], r"\d+ rows cannot be judged, Pipeline/baseline for one: .*=5$")


class Counters(unittest.TestCase):
    def test_directions(self):
        for name, direction in (
            ("steps_per_s", "more"),
            ("anything_ms", "less"),
            ("x_GBps", "more"),
            ("return_us", "less"),
            ("spread", "neither"),
            ("x", "neither"),
            ("bad_batches", "less"),
            ("y_per_s", "more"),
        ):
            self.assertEqual(counters.better(name), direction, name)

    def test_every_counter_of_the_recorded_files_has_a_meaning(self):
        for name in ("bench", "simulated", "skipped"):
            rows = results.read([looking.data(name)]).rows
            for counter in results.counters_of(rows):
                self.assertTrue(counters.meaning(counter), counter)

    def test_a_unit_goes_with_its_direction(self):
        """The table and the rule for unknown names must not contradict each other."""
        for name, (direction, _) in counters.COUNTERS.items():
            for pattern, by_name in counters.BY_NAME:
                if pattern.search(name) and direction != counters.NEITHER:
                    self.assertEqual(direction, by_name, name)
                    break


class Dashboard(unittest.TestCase):
    def written(self, file):
        with looking.folder_of(a=file) as folder:
            out = os.path.join(folder, "out.json")
            status, _, err = looking.call(dashboard.main, folder + "/a.json", "-o", out)
            self.assertEqual(status, 0, err)
            with open(out, encoding="utf-8") as written:
                return json.load(written)

    def test_entries(self):
        file = ladder()
        failed = copy.deepcopy(file["benchmarks"][-1])
        failed |= {
            "name": "Pipeline/x",
            "run_name": "Pipeline/x",
            "error_occurred": True,
            "error_message": "no",
            "real_time": 0.0,
        }
        file["benchmarks"].append(failed)
        entries = {entry["name"]: entry for entry in self.written(file)}
        self.assertEqual(len(entries), 8)
        self.assertNotIn("Pipeline/x", entries)
        rates = sorted(
            row["steps_per_s"] for row in file["benchmarks"] if row["name"] == "Pipeline/pinned"
        )
        pinned = entries["Pipeline/pinned"]
        self.assertEqual((pinned["value"], pinned["unit"]), (rates[2], "steps/s"))
        self.assertIn("repetitions: 5", pinned["extra"])

    def test_simulated_is_in_the_name(self):
        names = [entry["name"] for entry in self.written(looking.loaded("simulated"))]
        self.assertTrue(all(name.endswith("(simulated)") for name in names))
        self.assertFalse([name for name in names if "null" in name])

    def test_controls_are_no_records(self):
        names = [e["name"] for e in self.written(example.result(families=[example.guard_rows]))]
        self.assertFalse([name for name in names if name.endswith("none")])


if __name__ == "__main__":
    unittest.main()
