"""check_result.py accepts what DESIGN promises and names what breaks it."""

import copy
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SCRIPTS = os.path.join(ROOT, "scripts")
sys.path.insert(0, SCRIPTS)

import check_result  # noqa: E402
import common  # noqa: E402


def good_row():
    return {
        "name": "Pipeline/streams",
        "run_name": "Pipeline/streams",
        "run_type": "iteration",
        "repetitions": 1,
        "repetition_index": 0,
        "threads": 1,
        "iterations": 30,
        "real_time": 100.0,
        "cpu_time": 12.0,
        "time_unit": "ms",
        "items_per_second": 640.0,
        "bytes_per_second": 2e9,
        "steps_per_s": 10.0,
        "images_per_s": 640.0,
        "step_p50_ms": 100.0,
        "step_p95_ms": 101.0,
        "h2d_GBps": 55.0,
        "feed_GBps": 2.0,
        "compute_ms": 60.0,
        "exposed_copy_ms": 10.0,
        "exposed_fetch_ms": 20.0,
        "exposed_host_ms": 5.0,
        "other_ms": 5.0,
        "overlap": 0.9,
        "gpu_idle": 0.3,
        "limit_steps_per_s": 16.0,
        "of_limit": 0.625,
        "bad_batches": 0,
        "check_ms": 0.1,
    }


def good_result():
    return {
        "context": {
            "date": "2026-01-01T00:00:00+00:00",
            "host_name": "machine",
            "executable": "build/bench",
            "num_cpus": 16,
            "caches": [],
            "library_build_type": "release",
            "feedrate.device": "cuda:0",
            "feedrate.simulated": "false",
            "feedrate.build_type": "Release",
            "feedrate.git_revision": "0123456789ab",
        },
        "benchmarks": [good_row()],
        "skipped": [{"name": "Pipeline/direct", "reason": "no pinned memory"}],
    }


def problems_of(change=None, expected=(), row=None):
    result = good_result()
    if row is not None:
        result["benchmarks"][0].update(row)
    if change is not None:
        change(result)
    return list(check_result.check_result(result, expected))


class GoodFiles(unittest.TestCase):
    def test_a_complete_result_has_no_problem(self):
        self.assertEqual(problems_of(expected=["Pipeline/streams"]), [])

    def test_times_are_read_in_their_unit(self):
        self.assertEqual(problems_of(row={"real_time": 1e8, "time_unit": "ns"}), [])
        self.assertEqual(len(problems_of(row={"real_time": 1e8, "time_unit": "us"})), 2)

    def test_the_null_row_may_lack_what_it_cannot_have(self):
        def null(result):
            row = result["benchmarks"][0]
            row["name"] = row["run_name"] = "Pipeline/null"
            for key in check_result.NULL_MAY_LACK:
                del row[key]

        self.assertEqual(problems_of(null), [])

    def test_a_simulated_null_row_may_take_no_time(self):
        def null(result):
            row = result["benchmarks"][0]
            row["name"] = row["run_name"] = "Pipeline/null"
            row["real_time"] = 0.0
            row.update({key: 0.0 for key in check_result.SPLIT})
            for key in check_result.NULL_MAY_LACK + check_result.TIMELESS_MAY_LACK:
                del row[key]

        self.assertEqual(problems_of(null), [])

    def test_an_error_row_needs_no_counter(self):
        def fail(result):
            row = result["benchmarks"][0]
            for key in check_result.COUNTERS["bench"]:
                del row[key]
            row.update(error_occurred=True, error_message="no memory", real_time=0.0)

        self.assertEqual(problems_of(fail), [])

    def test_repetitions_share_a_name(self):
        def repeat(result):
            result["benchmarks"].append({**good_row(), "repetition_index": 1})

        self.assertEqual(problems_of(repeat), [])

    def test_rows_of_other_families_need_no_pipeline_counter(self):
        def other(result):
            row = result["benchmarks"][0]
            row["name"] = row["run_name"] = "H2D/pinned/bytes:4096"
            for key in check_result.COUNTERS["bench"]:
                del row[key]

        self.assertEqual(problems_of(other), [])

    def test_published_figures_need_only_rates(self):
        path = os.path.join(ROOT, "results", "l40s-g6e.2xlarge", "published.json")
        rungs = ("baseline", "workers", "pinned", "streams", "prefetch")
        expected = [f"Pipeline/{rung}" for rung in rungs]
        result = common.read_json(path)
        self.assertEqual(list(check_result.check_result(result, expected)), [])
        rates = [row["steps_per_s"] for row in result["benchmarks"]]
        self.assertEqual(rates, [2.97, 4.81, 5.91, 6.44, 6.44])


class BadFiles(unittest.TestCase):
    def one(self, part, change=None, **more):
        problems = problems_of(change, **more)
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(part, problems[0])

    def test_each_promised_counter_is_missed(self):
        for key in check_result.COUNTERS["bench"]:
            with self.subTest(key):
                self.one(f"counter {key} is missing", lambda r, k=key: r["benchmarks"][0].pop(k))

    def test_each_stock_member_is_missed(self):
        for key in (*check_result.ROW, *check_result.ITERATION_ROW):
            if key == "name":
                continue
            with self.subTest(key):
                self.one(f"{key} is missing", lambda r, k=key: r["benchmarks"][0].pop(k))

    def test_each_context_member_is_missed(self):
        for key in check_result.CONTEXT:
            with self.subTest(key):
                self.one(f"{key} is missing", lambda r, k=key: r["context"].pop(k))

    def test_our_context_is_text(self):
        self.one("feedrate.cores is 16", lambda r: r["context"].update({"feedrate.cores": 16}))
        self.one("not 'true'", lambda r: r["context"].update({"feedrate.simulated": "no"}))

    def test_a_row_without_a_name_is_named_by_its_number(self):
        self.one("benchmarks[0]: the name is missing", lambda r: r["benchmarks"][0].pop("name"))

    def test_the_split_must_add_up_within_one_percent(self):
        self.assertEqual(problems_of(row={"other_ms": 5.9}), [])
        self.one("add up to 101.1 ms", row={"other_ms": 6.1})

    def test_a_part_cannot_be_negative(self):
        self.one("other_ms is -1", row={"other_ms": -1.0, "compute_ms": 66.0})

    def test_a_share_lies_between_0_and_1(self):
        self.one("overlap is 1.2", row={"overlap": 1.2})
        self.one("gpu_idle is -0.1", row={"gpu_idle": -0.1})

    def test_the_rate_must_fit_the_time(self):
        self.one("steps_per_s is 10.2", row={"steps_per_s": 10.2})

    def test_bad_batches_are_a_problem(self):
        self.one("bad_batches is 3", row={"bad_batches": 3})

    def test_every_loop_has_a_loops_counters(self):
        for family in check_result.LOOPS:
            with self.subTest(family):
                name = f"{family}/streams"
                more = {key: 1 for key in check_result.MORE_COUNTERS.get(family, ())}
                self.assertEqual(problems_of(row={"name": name, **more}), [])
                for key in ("overlap", *more):
                    self.one(
                        f"counter {key} is missing",
                        lambda r, k=key: r["benchmarks"][0].pop(k),
                        row={"name": name, **more},
                    )

    def test_a_negative_control_may_have_bad_batches_and_with_a_lag_must(self):
        row = {
            "name": "Guard/prefetcher/none",
            "label": "negative control, limit: compute",
            "peak_device_GB": 0.6,
        }
        for bad in (0, 38):
            self.assertEqual(problems_of(row={**row, "bad_batches": bad}), [])
        row["name"] += "/lag_ms:50"
        self.assertEqual(problems_of(row={**row, "bad_batches": 38}), [])
        self.one("nothing guards them", row={**row, "bad_batches": 0})
        self.one("bad_batches is 38", row={**row, "bad_batches": 38, "label": "limit: compute"})

    def test_a_counter_is_a_number(self):
        self.one("counter overlap is 'all'", row={"overlap": "all"})
        for value in ("x", None, True, [1.0], {}, math.inf, math.nan, 10**400):
            self.one("counter step_ms is", row={"step_ms": value})
            self.one("counter GBps is", row={"name": "H2D/pinned", "GBps": value})
        self.one("real_time is inf", row={"real_time": math.inf})
        self.one("label is 3", row={"label": 3})

    def test_google_benchmarks_texts_are_no_counters(self):
        texts = {"label": "limit: pin", "aggregate_unit": "time", "big_o": "N"}
        self.assertEqual(problems_of(row=texts), [])

    def test_a_row_takes_time(self):
        self.one("real_time is 0", row={"real_time": 0})

    def test_names_are_short_printable_ascii_and_unique(self):
        self.one("not printable ASCII", row={"name": "Pipeline/str\u00e9ams"})
        self.one("not printable ASCII", row={"name": "Pipeline/streams\n"})
        self.one("not under 200", row={"name": "Pipeline/" + "x" * 191})
        self.assertEqual(problems_of(row={"name": "Pipeline/" + "x" * 190}), [])
        self.one("stands twice", lambda r: r["benchmarks"].append(copy.deepcopy(good_row())))

    def test_an_error_row_says_why(self):
        self.one("error_message", row={"error_occurred": True})

    def test_a_skipped_row_belongs_into_its_list(self):
        self.one("belongs into the list", row={"skipped": True})
        self.one("is a row as well", lambda r: r["skipped"][0].update(name="Pipeline/streams"))
        self.one("has no reason", lambda r: r["skipped"][0].update(reason=""))
        self.one("skipped is no list", lambda r: r.update(skipped={}))

    def test_an_expected_row_is_missed(self):
        self.one("Pipeline/pinned: the row is missing", expected=["Pipeline/pinned"])

    def test_what_is_no_result_at_all(self):
        self.assertEqual(list(check_result.check_result([])), ["the file is no object"])
        self.assertEqual(
            list(check_result.check_result({})),
            ["context is no object", "benchmarks is no list of objects"],
        )


class CommandLine(unittest.TestCase):
    def run_on(self, *texts, flags=()):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for number, text in enumerate(texts):
                paths.append(os.path.join(folder, f"{number}.json"))
                with open(paths[-1], "w", encoding="utf-8") as file:
                    file.write(text)
            command = [sys.executable, os.path.join(SCRIPTS, "check_result.py"), *paths, *flags]
            return subprocess.run(command, capture_output=True, text=True)

    def test_good_files_are_silent(self):
        text = json.dumps(good_result())
        answer = self.run_on(text, text)
        self.assertEqual((answer.returncode, answer.stdout, answer.stderr), (0, "", ""))

    def test_what_strict_json_forbids_is_one_line(self):
        nan = json.dumps({**good_result(), "extra": math.nan})
        broken = {
            nan: "NaN",
            '{"a": -Infinity}': "-Infinity",
            '{"a": 1e999}': "1e999",
            '{"a": 1, "a": 2}': '"a" stands twice',
            '{"a": "\x01"}': "control character",
            "": "Expecting value",
            json.dumps(good_result())[:-9]: "not strict JSON",
        }
        for text, part in broken.items():
            with self.subTest(part):
                answer = self.run_on(text)
                self.assertEqual(answer.returncode, 1)
                self.assertEqual(len(answer.stdout.splitlines()), 1)
                self.assertIn(part, answer.stdout)

    def test_one_bad_file_among_good_ones_is_enough(self):
        answer = self.run_on(json.dumps(good_result()), "[]")
        self.assertEqual(answer.returncode, 1)
        self.assertIn("1.json: the file is no object", answer.stdout)

    def test_a_file_that_is_not_there_is_wrong_usage_and_the_others_are_checked(self):
        answer = self.run_on("[]", flags=["/nowhere/result.json"])
        self.assertEqual(answer.returncode, 2)
        self.assertIn("cannot be read", answer.stderr)
        self.assertIn("the file is no object", answer.stdout)

    def test_wrong_usage_is_one_line_and_status_2(self):
        for flags in ([], ["--bogus", "x"], ["x", "--expect"]):
            answer = self.run_on(flags=flags)
            self.assertEqual(answer.returncode, 2)
            self.assertEqual(len(answer.stderr.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
