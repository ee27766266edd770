"""The reader: recorded files become the right table, malformed ones one clear line."""

import copy
import json
import math
import os
import subprocess
import unittest

import example
import looking
import common
import effects
import make_profile
import results


def read(*names):
    return results.read([looking.data(name) for name in names])


def good_file():
    return {
        "context": {"date": "2026-01-01", "host_name": "h", "num_cpus": 4, "caches": []},
        "benchmarks": [
            {
                "name": "BM_x/8",
                "run_name": "BM_x/8",
                "run_type": "iteration",
                "repetitions": 1,
                "repetition_index": 0,
                "threads": 1,
                "iterations": 3,
                "real_time": 2e6,
                "cpu_time": 1e6,
                "time_unit": "ns",
                "GBps": 5.0,
            }
        ],
    }


class Recorded(unittest.TestCase):
    def test_bench(self):
        read_ = read("bench")
        rows = read_.rows
        self.assertEqual(len(rows), 15)
        self.assertEqual(sorted(rows[rows["row"] == "Pipeline/pinned"]["repetition"]), [0, 1, 2])
        self.assertEqual(set(rows["machine"]), {"NVIDIA H200, 16 cores"})
        self.assertFalse(rows["simulated"].any())
        source = {
            (row["name"], row["repetition_index"]): row
            for row in looking.loaded("bench")["benchmarks"]
            if row["run_type"] == "iteration"
        }
        for _, row in rows.iterrows():
            recorded = source[(row["row"], row["repetition"])]
            self.assertEqual(row["steps_per_s"], recorded["steps_per_s"])
            self.assertEqual(row["real_time_ms"], recorded["real_time"])
            self.assertEqual(row["limit"], recorded["label"].removeprefix("limit: "))
        self.assertEqual(set(rows[rows["row"] == "Pipeline/workers"]["spec_workers"]), {16})

    def test_aggregates_stand_apart(self):
        aggregates = read("bench").aggregates
        self.assertEqual(sorted(aggregates["aggregate"]), ["cv", "mean", "median", "stddev"])
        recorded = next(
            row
            for row in looking.loaded("bench")["benchmarks"]
            if row.get("aggregate_name") == "cv"
        )
        cv = aggregates[aggregates["aggregate"] == "cv"].iloc[0]
        self.assertEqual(cv["real_time_ms"], recorded["real_time"])  # a share, no time

    def test_interleaved(self):
        read_ = read("interleaved")
        self.assertEqual([run.round for run in read_.runs], [1, 1, 2])
        self.assertEqual(len(read_.setups()), 2)
        counts = read_.rows.groupby(["implementation", "row"]).size().to_dict()
        self.assertEqual(
            counts,
            {
                ("bench", "Pipeline/workers"): 1,
                ("bench", "Pipeline/pinned"): 1,
                ("reference", "Pipeline/workers"): 2,
                ("reference", "Pipeline/pinned"): 2,
            },
        )
        self.assertTrue(any("gave no result" in note for note in read_.notes))
        self.assertTrue(any("PyTorch original" in setup for setup in read_.setups()))

    def test_simulated_is_called_so(self):
        read_ = read("simulated")
        self.assertTrue(read_.rows["simulated"].all())
        self.assertEqual(list(read_.setups()), ["NVIDIA L40S, 8 cores, simulated"])

    def test_a_simulated_machine_has_the_name_of_the_measured_one(self):
        with looking.folder_of(a=example.result(), b=example.result(True)) as folder:
            rows = results.read([folder]).rows
        self.assertEqual(set(rows["machine"]), {"Example GPU, 16 cores"})
        self.assertEqual(rows["setup"].nunique(), 2)

    def test_skipped_rows_keep_their_reason(self):
        rows = read("skipped").rows
        skipped = rows[rows["skipped"] != ""]
        self.assertEqual(len(skipped), 3)
        self.assertIn("page-locked", skipped["skipped"].iloc[0])
        self.assertEqual(len(results.good(rows)), len(rows) - 3)

    def test_google_benchmark(self):
        read_ = read("google_benchmark")
        rows = read_.rows
        self.assertEqual(list(read_.setups()), ["demo, 2 cores"])
        self.assertEqual(set(rows["family"]), {"BM_memcpy", "BM_fails"})
        self.assertEqual(set(rows[rows["family"] == "BM_memcpy"]["variant"]), {"8", "4096"})
        failed = rows[rows["family"] == "BM_fails"]
        self.assertEqual(set(failed["error"]), {"no such device"})
        self.assertEqual(set(failed["variant"]), {""})  # real_time is a setting
        self.assertTrue(math.isnan(failed["real_time_ms"].iloc[0]))  # no record of 0 s
        first = looking.loaded("google_benchmark")["benchmarks"][0]
        self.assertAlmostEqual(rows["real_time_ms"].iloc[0], first["real_time"] / 1e6)
        self.assertEqual(rows["bytes_per_second"].iloc[0], first["bytes_per_second"])
        self.assertIn("BigO", set(read_.aggregates["aggregate"]))

    def test_all_at_once_and_folders(self):
        read_ = results.read(
            [looking.DATA.rstrip("/") + "/" + n + ".json" for n in looking.RECORDED]
        )
        self.assertEqual(read_.rows["file"].nunique(), 5)
        with looking.folder_of(
            a=looking.loaded("bench"), p={"make": 1, "compute": 1, "source": ""}, other={"what": 1}
        ) as folder:
            read_ = results.read([folder])
            self.assertEqual(read_.rows["file"].nunique(), 1)
            self.assertEqual(len(read_.notes), 2)
            with self.assertRaisesRegex(common.UsageError, "neither a result file"):
                results.read([os.path.join(folder, "other.json")])

    def test_the_published_results_of_the_repository(self):
        read_ = results.read([os.path.join(looking.ROOT, "results")])
        self.assertEqual(read_.rows[read_.rows["error"] != ""].shape[0], 0)
        self.assertGreaterEqual(read_.rows["machine"].nunique(), 2)


class Table(unittest.TestCase):
    def test_names(self):
        cases = {
            "H2D/pinned/async/bytes:4096": ("H2D", "pinned/async", {"bytes": 4096}),
            "Order/two_streams/pop_first:1/sync_every:4": (
                "Order",
                "two_streams",
                {"pop_first": 1, "sync_every": 4},
            ),
            "Overlap/spin/two_streams/ratio:0.5/chunks:16": (
                "Overlap",
                "spin/two_streams",
                {"ratio": 0.5, "chunks": 16},
            ),
            "Factorial/memory:pinned/copy:async/sync_every:0": (
                "Factorial",
                "",
                {"memory": "pinned", "copy": "async", "sync_every": 0},
            ),
            "BM_x/8/iterations:5/manual_time": ("BM_x", "8", {}),
            "BM_x": ("BM_x", "", {}),
        }
        for name, expected in cases.items():
            self.assertEqual(results.parse_name(name), expected, name)

    def test_same_setup_in_two_files_gives_repetitions(self):
        with looking.folder_of(a=example.result(), b=example.result()) as folder:
            read_ = results.read([folder])
        self.assertEqual(len(read_.setups()), 1)
        rows = read_.rows[read_.rows["row"] == "Pipeline/pinned"]
        self.assertEqual(list(rows["repetition"]), [0, 1])

    def test_what_differs_makes_another_setup(self):
        base = example.result()
        for key, value in (
            ("workers", "4"),
            ("window", "published"),
            ("git_revision", "other"),
            ("cpu", "another"),
            ("driver", "1.2"),
        ):
            other = example.result(**{"feedrate." + key: value})
            with looking.folder_of(a=base, b=other) as folder:
                self.assertEqual(len(results.read([folder]).setups()), 2, key)
        other = copy.deepcopy(base)
        base["specs"] = {"Pipeline/pinned": {"dataset": "randn", "steps": 20}}
        other["specs"] = {"Pipeline/pinned": {"dataset": "randn", "steps": 30}}
        with looking.folder_of(a=base, b=other) as folder:
            self.assertEqual(len(results.read([folder]).setups()), 1)
        other["specs"]["Pipeline/pinned"]["dataset"] = "replay"
        with looking.folder_of(a=base, b=other) as folder:
            self.assertEqual(len(results.read([folder]).setups()), 2)

    def test_medians(self):
        rows = read("bench").rows
        table = results.medians(rows)
        pinned = table[table["row"] == "Pipeline/pinned"].iloc[0]
        rates = sorted(rows[rows["row"] == "Pipeline/pinned"]["steps_per_s"])
        self.assertEqual(pinned["steps_per_s"], rates[1])
        self.assertEqual(pinned["runs"], 3)
        self.assertEqual(pinned["limit"], "compute or pin")
        self.assertEqual(table[table["row"] == "Pipeline/baseline"]["limit"].iloc[0], "fetch")

    def test_medians_of_rows_without_figures(self):
        with looking.folder_of(
            a={"context": {}, "benchmarks": [], "skipped": [{"name": "A/b", "reason": "no"}]}
        ) as folder:
            read_ = results.read([folder])
        self.assertTrue(results.medians(read_.rows).empty)
        self.assertEqual(list(read_.rows["skipped"]), ["no"])

    def test_labels(self):
        file = good_file()
        file["benchmarks"][0]["label"] = "limit: pin, unsteady, negative control, clock: wall"
        with looking.folder_of(a=file) as folder:
            row = results.read([folder]).rows.iloc[0]
        self.assertEqual((row["limit"], row["clock"]), ("pin", "wall"))
        self.assertTrue(row["unsteady"] and row["negative_control"])


class Malformed(unittest.TestCase):
    def assert_refused(self, words, value):
        with looking.folder_of(bad=value) as folder:
            path = os.path.join(folder, "bad.json")
            with self.assertRaises(common.UsageError) as caught:
                results.read([path])
        message = str(caught.exception)
        self.assertIn(words, message)
        self.assertIn("bad.json", message)
        self.assertNotIn("\n", message)

    def changed(self, **row):
        file = good_file()
        file["benchmarks"][0] |= row
        return file

    def without(self, key):
        file = good_file()
        del file["benchmarks"][0][key]
        return file

    def test_no_json(self):
        self.assert_refused("the file is empty", "")
        self.assert_refused("not strict JSON", "steps/s 3")
        self.assert_refused("not strict JSON", '{"context": {}, "benchmarks": [')
        self.assert_refused("NaN is no JSON", '{"context": {}, "benchmarks": [], "x": NaN}')
        self.assert_refused("Infinity is no JSON", '{"context": {}, "benchmarks": [Infinity]}')
        self.assert_refused("out of range", '{"context": {}, "benchmarks": [], "x": 1e999}')
        self.assert_refused("stands twice in one object", '{"context": {}, "context": {}}')
        self.assert_refused("nested too deeply", "[" * 100000)
        with self.assertRaisesRegex(common.UsageError, "not strict JSON"):
            results.read([looking.data("truncated")])

    def test_no_text(self):
        with looking.folder_of() as folder:
            path = os.path.join(folder, "bad.json")
            with open(path, "wb") as file:
                file.write(b"\xff\xfe{}")
            with self.assertRaisesRegex(common.UsageError, "UTF-8"):
                results.read([path])
            with self.assertRaisesRegex(common.UsageError, "cannot be read"):
                results.read([os.path.join(folder, "none.json")])
            os.unlink(path)
            with self.assertRaisesRegex(common.UsageError, "no .json file"):
                results.read([folder])

    def test_no_result(self):
        neither = "neither a result file nor a trace"
        self.assert_refused(neither, {"what": 1})
        self.assert_refused(neither, "3")
        self.assert_refused(neither, "[]")
        self.assert_refused(neither, "[1, {}]")
        self.assert_refused("no complete events", {"traceEvents": []})
        self.assert_refused("'benchmarks' is missing", {"context": {}})
        self.assert_refused("'context' is missing", {"benchmarks": []})
        self.assert_refused("'benchmarks' is missing or no list", {"context": {}, "benchmarks": {}})
        self.assert_refused("benchmarks[0] is no object", {"context": {}, "benchmarks": [3]})
        self.assert_refused("'specs'", good_file() | {"specs": [1]})
        self.assert_refused("'skipped'", good_file() | {"skipped": {}})
        self.assert_refused("skipped[0]", good_file() | {"skipped": [{"name": "x"}]})
        file = good_file()
        file["context"]["feedrate.cores"] = 4
        self.assert_refused("feedrate.cores", file)

    def test_rows(self):
        self.assert_refused("real_time is missing", self.without("real_time"))
        self.assert_refused("the name is missing", self.without("name"))
        self.assert_refused("the name is missing", self.changed(name=""))
        self.assert_refused("the name is missing", self.changed(name=3))
        self.assert_refused("real_time is", self.changed(real_time="2"))
        self.assert_refused("real_time is", self.changed(real_time=True))
        self.assert_refused("real_time is out of range", self.changed(real_time=10**400))
        self.assert_refused("time_unit", self.changed(time_unit="h"))
        self.assert_refused("label is", self.changed(label=3))
        self.assert_refused("run_type is", self.changed(run_type="guess"))
        self.assert_refused("counter GBps", self.changed(GBps="fast"))
        self.assert_refused("counter x_ms", self.changed(x_ms=None))
        self.assert_refused("error_message", self.changed(error_occurred=True, error_message=[]))
        self.assert_refused("neither text nor number", self.changed(repetition_index=[1]))
        twice = good_file()
        twice["benchmarks"] *= 2
        self.assert_refused("stands twice", twice)

    def test_rounds(self):
        self.assert_refused("'rounds' is no list", {"rounds": {}})
        self.assert_refused("rounds[0]", {"rounds": [{"runs": 3}]})
        self.assert_refused(
            "round 1, bench",
            {"rounds": [{"runs": [{"program": "bench", "result": {"context": {}}}]}]},
        )

    def test_tolerated(self):
        files = {
            "no run_type": self.without("run_type"),
            "no run_name": self.without("run_name"),
            "no repetition": self.without("repetition_index"),
            "an unknown text": self.changed(remark="hello"),
            "an unknown list": self.changed(perf=[1, 2]),
            "a newer skip": self.changed(skipped=True, skip_message="why"),
        }
        same_name = good_file()
        same_name["benchmarks"] = [
            copy.deepcopy(same_name["benchmarks"][0]) | {"family_index": k} for k in range(2)
        ]
        files["two families of one name"] = same_name
        for what, file in files.items():
            with looking.folder_of(a=file) as folder:
                rows = results.read([folder]).rows
            self.assertGreaterEqual(len(rows), 1, what)
        self.assertEqual(len(rows), 2)

    def test_interrupted_and_debug_builds_are_noted(self):
        file = example.result(**{"feedrate.interrupted": "true", "feedrate.warning": "debug build"})
        with looking.folder_of(a=file) as folder:
            notes = results.read([folder]).notes
        self.assertTrue(any("interrupted" in note for note in notes))
        self.assertTrue(any("debug build" in note for note in notes))


class Traces(unittest.TestCase):
    def test_lanes_in_their_order(self):
        with looking.folder_of(t=example.trace(steps=5)) as folder:
            (trace,) = results.read([folder]).traces
        self.assertEqual(
            [name for name, _ in trace.lanes], ["host", "copy stream", "compute stream"]
        )
        self.assertEqual([len(events) for _, events in trace.lanes], [20, 5, 5])
        self.assertTrue(trace.simulated)
        self.assertEqual(trace.lanes[0][1][0][:3], (0.0, 59.5, "batch 0"))

    def test_one_process_a_row(self):
        first, second = example.trace(), example.trace(simulated=False)
        for event in second["traceEvents"]:
            event["pid"] = 2
            if "ts" in event:
                event["ts"] += 1e9
        both = {"traceEvents": first["traceEvents"] + second["traceEvents"]}
        with looking.folder_of(t=both) as folder:
            traces = results.read([folder]).traces
        self.assertEqual(len(traces), 2)
        self.assertEqual(traces[1].lanes[0][1][0][0], 0.0)

    @unittest.skipUnless(os.environ.get("FEEDRATE_BENCH"), "no bench to ask: FEEDRATE_BENCH")
    def test_what_bench_writes(self):
        with looking.folder_of() as folder:
            command = [os.environ["FEEDRATE_BENCH"], "--device=sim:l40s", "--workers=2"]
            command += ["--benchmark_filter=Pipeline/(streams|direct)$"]
            command += [f"--timeline={folder}/t.json", f"--benchmark_out={folder}/r.json"]
            subprocess.run(command, check=True, capture_output=True, timeout=120)
            read_ = results.read([folder])
        self.assertEqual(len(read_.traces), 2)
        for trace in read_.traces:
            lanes = dict(trace.lanes)
            self.assertTrue(trace.simulated)
            self.assertTrue({"device: copy stream", "device: compute stream"} <= set(lanes))
            self.assertEqual({e[2] for e in lanes["device: compute stream"]}, {"compute"})
            self.assertTrue(any("training loop" in name for name in lanes))
        self.assertEqual(len(results.good(read_.rows)), 2)

    @unittest.skipUnless(os.environ.get("FEEDRATE_BENCH"), "no bench to ask: FEEDRATE_BENCH")
    def test_bench_takes_the_normalisation_of_a_measured_profile(self):
        measured = os.path.join(looking.ROOT, "results", "h200-16c", "suite.json")
        with looking.folder_of() as folder:
            profile, written = (os.path.join(folder, name) for name in ("p.json", "r.json"))
            self.assertEqual(looking.call(make_profile.main, measured, "-o", profile)[0], 0)
            command = [os.environ["FEEDRATE_BENCH"], f"--device=sim:{profile}", "--workers=4"]
            command += ["--benchmark_filter=Pipeline/direct", f"--benchmark_out={written}"]
            subprocess.run(command, check=True, capture_output=True, timeout=120)
            rows = {row["name"]: row for row in common.read_json(written)["benchmarks"]}
            cost = common.read_json(profile)["normalize"]["ms"]
        longer = rows["Pipeline/direct_u8"]["step_ms"] - rows["Pipeline/direct"]["step_ms"]
        # The check of bytes is shorter by less than a tenth of a millisecond.
        self.assertAlmostEqual(longer, cost, delta=0.1)

    def test_what_is_made_from_results_may_lie_beside_them(self):
        factors = os.path.join(looking.ROOT, "results", "h200-16c", "factorial.json")
        suite = os.path.join(looking.ROOT, "results", "h200-16c", "suite.json")
        with looking.folder_of(r=common.read_json(factors)) as folder:
            alone = len(results.read([folder]).rows)
            made = (os.path.join(folder, name) for name in ("effects.json", "profile.json"))
            self.assertEqual(looking.call(effects.main, factors, "--json", next(made))[0], 0)
            self.assertEqual(looking.call(make_profile.main, suite, "-o", next(made))[0], 0)
            read_ = results.read([folder])
        self.assertEqual(len(read_.rows), alone)
        self.assertEqual(sum("not a result: left out" in note for note in read_.notes), 2)

    def test_malformed(self):
        cases = {
            "no complete events": {"traceEvents": []},
            "'traceEvents' is no list": {"traceEvents": 3},
            "dur is missing": {"traceEvents": [{"ph": "X", "ts": 1, "name": "a"}]},
            "ts is": {"traceEvents": [{"ph": "X", "ts": "1", "dur": 1}]},
            "before it begins": {"traceEvents": [{"ph": "X", "ts": 1, "dur": -1}]},
            "without args": {"traceEvents": [{"ph": "M", "name": "thread_name"}]},
            "pid or tid": {"traceEvents": [{"ph": "X", "pid": [], "ts": 1, "dur": 1}]},
        }
        for words, value in cases.items():
            with looking.folder_of(t=value) as folder:
                with self.assertRaises(common.UsageError, msg=words) as caught:
                    results.read([os.path.join(folder, "t.json")])
            self.assertIn(words, str(caught.exception))

    def test_a_bare_list_is_a_trace_too(self):
        with looking.folder_of(t=json.dumps(example.trace()["traceEvents"])) as folder:
            self.assertEqual(len(results.read([folder]).traces), 1)


if __name__ == "__main__":
    unittest.main()
