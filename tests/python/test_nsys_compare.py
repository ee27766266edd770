"""nsys_compare.py on reports that are made here, so that the answers are known."""

import contextlib
import io
import json
import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import common  # noqa: E402
import nsys_compare  # noqa: E402

ROW = "Pipeline/streams"
MS = 1_000_000
BASE = 7_000_000_000  # nsys counts from the begin of its session, we from our first record
# A window of 40 ms with two steps. Copies: 4 ms that a kernel hides whole, and 8 ms of which
# kernels hide 2; both begin or end outside of what is merged. Kernels: 9 + 9 + 2 = 20 ms merged.
COPIES = [(2, 6), (20, 28)]
KERNELS = [(1, 6), (4, 10), (12, 20), (19, 21), (27, 29)]
COPY_MS, COMPUTE_MS = 12 / 2, 20 / 2
OVERLAP, IDLE = (4 + 2) / 12, 1 - (20 + 12 - 6) / 40


class Base(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.paths = [self.folder / name for name in ("r.sqlite", "r.json", "r.timeline.json")]

    def write_report(self, **tables):
        """`tables`: rows of (begin, end, …) in ms of the window, by table."""
        path = self.paths[0]
        path.unlink(missing_ok=True)
        connection = sqlite3.connect(path)
        columns = {
            "CUPTI_ACTIVITY_KIND_MEMCPY": "start INT, end INT, copyKind INT",
            "NVTX_EVENTS": "start INT, end INT, eventType INT, text TEXT, textId INT, domainId INT",
        }
        for name, rows in tables.items():
            connection.execute(f"CREATE TABLE {name} ({columns.get(name, 'start INT, end INT')})")
            for begin, end, *rest in rows:
                values = [BASE + begin * MS, None if end is None else BASE + end * MS, *rest]
                marks = ",".join("?" * len(values))
                connection.execute(f"INSERT INTO {name} VALUES ({marks})", values)
        connection.execute("CREATE TABLE StringIds (id INT, value TEXT)")
        connection.executemany("INSERT INTO StringIds VALUES (?, ?)", [(5, "compute")])
        connection.commit()
        connection.close()

    def write_ours(self, copies, computes, window=(0, 40), row=ROW, **counters):
        name = {"ph": "M", "pid": 3, "tid": 0}
        tracks = {1: "measured window", 4: "device: copy stream", 5: "device: compute stream"}
        events = [{**name, "name": "process_name", "args": {"name": f"{row} on cuda:0"}}]
        for tid, track in tracks.items():
            events.append({**name, "tid": tid, "name": "thread_name", "args": {"name": track}})

        def interval(tid, what, begin, end):
            events.append(
                {
                    "ph": "X",
                    "pid": 3,
                    "tid": tid,
                    "name": what,
                    "ts": 1e3 * begin,
                    "dur": 1e3 * (end - begin),
                }
            )

        interval(1, "measured window", *window)
        for begin, end in copies:
            interval(4, "copy batch", begin, end)
        for begin, end in computes:
            interval(5, "compute", begin, end)
            interval(5, "check", end - 0.001, end)
        self.paths[2].write_text(json.dumps({"traceEvents": events}))
        run = {"name": row, "iterations": 2, "copy_ms": 6.25, "overlap": 0.5} | counters
        self.paths[1].write_text(json.dumps({"benchmarks": [run]}))

    def ranges(self, steps=2, domain=1):
        return [
            (-1, None, 75, "feedrate", None, domain),
            (-1, None, 75, "another", None, domain + 1),
            *((0, 20, 59, f"batch {n}", None, domain) for n in range(steps)),
            (0, 40, 60, None, 5, domain),
            (-500, 500, 59, "batch of another domain", None, domain + 1),
            (3, None, 34, "a mark", None, domain),
        ]

    def whole_report(self, **changes):
        return {
            "CUPTI_ACTIVITY_KIND_MEMCPY": [(*copy, 1) for copy in COPIES],
            "CUPTI_ACTIVITY_KIND_KERNEL": KERNELS,
            "NVTX_EVENTS": self.ranges(),
        } | changes

    def figures(self):
        activity = nsys_compare.read_report(str(self.paths[0]))
        steps, _ = nsys_compare.read_counters(str(self.paths[1]), ROW)
        activity.steps = steps
        return activity.figures()

    def call(self, *more):
        out, err = io.StringIO(), io.StringIO()
        before, sys.argv = sys.argv, ["nsys_compare.py", *map(str, self.paths), ROW, *more]
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = common.run(nsys_compare.main, "nsys_compare.py")
        finally:
            sys.argv = before
        return status, out.getvalue(), err.getvalue()


class Intervals(unittest.TestCase):
    def test_overlapping_ones_count_once_and_edges_are_cut(self):
        merged = nsys_compare.merged([(8, 12), (-5, 3), (2, 4), (11, 11), (30, 31)], (0, 10))
        self.assertEqual(merged, [(0, 4), (8, 10)])
        self.assertEqual(nsys_compare.covered(merged), 6)

    def test_common_part(self):
        some, others = [(0, 4), (6, 9), (20, 21)], [(1, 2), (3, 7), (8, 30)]
        self.assertEqual(nsys_compare.common_part(some, others), 1 + 1 + 1 + 1 + 1)
        self.assertEqual(nsys_compare.common_part(some, []), 0)


class Figures(Base):
    def setUp(self):
        super().setUp()
        self.write_ours(COPIES, KERNELS)

    def test_of_nsys(self):
        self.write_report(**self.whole_report())
        figures = self.figures()
        self.assertAlmostEqual(figures["copy ms"], COPY_MS)
        self.assertAlmostEqual(figures["compute ms"], COMPUTE_MS)
        self.assertAlmostEqual(figures["overlap"], OVERLAP)
        self.assertAlmostEqual(figures["gpu idle"], IDLE)

    def test_graphs_memsets_and_copies_within_the_device_compute(self):
        self.write_report(
            **self.whole_report(
                CUPTI_ACTIVITY_KIND_KERNEL=KERNELS[:2],
                CUPTI_ACTIVITY_KIND_GRAPH_TRACE=[KERNELS[2]],
                CUPTI_ACTIVITY_KIND_MEMSET=[KERNELS[3]],
                CUPTI_ACTIVITY_KIND_MEMCPY=[*((*c, 1) for c in COPIES), (*KERNELS[4], 8)],
            )
        )
        self.assertAlmostEqual(self.figures()["compute ms"], COMPUTE_MS)
        self.assertAlmostEqual(self.figures()["copy ms"], COPY_MS)

    def test_copies_to_the_host_are_neither_but_busy(self):
        copies = [*((*c, 1) for c in COPIES), (30, 32, 2)]
        self.write_report(**self.whole_report(CUPTI_ACTIVITY_KIND_MEMCPY=copies))
        figures = self.figures()
        self.assertAlmostEqual(figures["copy ms"], COPY_MS)
        self.assertAlmostEqual(figures["gpu idle"], IDLE - 2 / 40)

    def test_tables_of_what_never_happened_are_missing(self):
        self.write_report(
            CUPTI_ACTIVITY_KIND_KERNEL=KERNELS, NVTX_EVENTS=self.ranges()
        )
        figures = self.figures()
        self.assertIsNone(figures["copy ms"])
        self.assertIsNone(figures["overlap"])
        self.assertAlmostEqual(figures["gpu idle"], 1 - 20 / 40)

    def test_without_ranges_the_window_is_from_the_first_to_the_last_activity(self):
        self.write_report(
            CUPTI_ACTIVITY_KIND_KERNEL=KERNELS,
            CUPTI_ACTIVITY_KIND_MEMCPY=[(*copy, 1) for copy in COPIES],
        )
        self.assertAlmostEqual(self.figures()["gpu idle"], 1 - 26 / 28)

    def test_of_our_stamps_across_the_windows_edges(self):
        self.write_ours([(-3, 2), (38, 50)], [(-1, 4), (10, 41)])
        ours = nsys_compare.read_timeline(str(self.paths[2]), ROW)
        ours.steps = 2
        figures = ours.figures()
        self.assertAlmostEqual(figures["copy ms"], (2 + 2) / 2)
        self.assertAlmostEqual(figures["compute ms"], (4 + 30) / 2)
        self.assertAlmostEqual(figures["overlap"], 1)
        self.assertAlmostEqual(figures["gpu idle"], 6 / 40)


class Program(Base):
    def test_same_on_both_sides(self):
        self.write_report(**self.whole_report())
        self.write_ours(COPIES, KERNELS)
        status, out, err = self.call()
        self.assertEqual((status, err), (0, ""))
        self.assertIn(f"{ROW}: 2 steps in 40.0 ms", out)
        self.assertRegex(out, r"copy ms +6\.000 +6\.000 +\+0\.00 % +6\.250\n")
        self.assertRegex(out, r"compute ms +10\.000 +10\.000 +\+0\.00 % +-\n")
        self.assertRegex(out, r"overlap +0\.5000 +0\.5000 +\+0\.00 points +0\.5000\n")
        self.assertRegex(out, r"gpu idle +0\.3500 +0\.3500 +\+0\.00 points +-\n")

    def test_limit(self):
        self.write_report(**self.whole_report())
        self.write_ours(COPIES, [*KERNELS[:-1], (27, 30)])  # 5 % longer, 2.5 points less idle
        status, out, _ = self.call("--limit", "6")
        self.assertEqual(status, 0, out)
        self.assertRegex(out, r"compute ms .* \+5\.00 %")
        self.assertRegex(out, r"gpu idle .* -2\.50 points")
        self.assertEqual(self.call("--limit=4.9")[0], 1)

    def test_share_that_is_wrong_is_noticed_though_times_agree(self):
        self.write_report(**self.whole_report())
        self.write_ours([(2, 6), (31, 39)], KERNELS)
        status, out, _ = self.call()
        self.assertEqual(status, 1)
        self.assertRegex(out, r"copy ms .* \+0\.00 %")
        self.assertIn("more than 5", out)

    def test_figure_that_one_side_lacks_is_a_difference(self):
        self.write_report(CUPTI_ACTIVITY_KIND_KERNEL=KERNELS, NVTX_EVENTS=self.ranges())
        self.write_ours(COPIES, KERNELS)
        self.assertEqual(self.call()[0], 1)
        self.write_ours([], KERNELS)
        self.assertEqual(self.call()[0], 0)

    def refused(self, *words, arguments=()):
        status, out, err = self.call(*arguments)
        self.assertEqual((status, out), (2, ""), err)
        self.assertEqual(err.count("\n"), 1, err)
        for word in words:
            self.assertIn(word, err)

    def test_files_that_do_not_belong_together(self):
        self.write_report(**self.whole_report(NVTX_EVENTS=self.ranges(steps=3)))
        self.write_ours(COPIES, KERNELS)
        self.refused("3 steps", "2")
        self.write_ours(COPIES, KERNELS, row="Pipeline/workers")
        self.refused("no run of Pipeline/streams")
        self.write_ours(COPIES, KERNELS, error_occurred=True)
        self.refused("no run of")

    def test_bad_files(self):
        self.write_ours(COPIES, KERNELS)
        self.refused("no such file")
        self.paths[0].write_text("not a database, though long enough to be read as one" * 9)
        self.refused("no SQLite export")
        self.write_report(NVTX_EVENTS=self.ranges())
        self.refused("no activity of a GPU")
        self.write_report(**self.whole_report())
        self.paths[2].write_text("[]")
        self.refused("no trace")
        self.paths[2].write_text("{")
        self.refused("timeline.json")

    def test_bad_usage(self):
        self.write_report(**self.whole_report())
        self.write_ours(COPIES, KERNELS)
        self.refused("--limit", arguments=["--limit=0"])
        self.refused("--limit", arguments=["--limit=nan"])
        self.refused("unrecognized", arguments=["more"])


class Script(unittest.TestCase):
    """nsys.sh where there is no nsys, and with bad usage."""

    def call(self, *arguments, **env):
        return subprocess.run(
            [SCRIPTS / "nsys.sh", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            env=os.environ | env,
        )

    def refused(self, word, *arguments, **env):
        done = self.call(*arguments, **env)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(word, done.stderr)

    def test_bad_usage(self):
        self.refused("usage: scripts/nsys.sh ROW")
        self.refused("rows come first", "--device=cpu", ROW)
        self.refused("is not there", ROW, BENCH="/none/bench")

    def test_help(self):
        for flag in ("--help", "-h"):
            done = self.call(flag, BENCH="/none/bench")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("scripts/nsys.sh ROW", done.stdout)
            self.assertNotIn("set -euo", done.stdout)

    def test_without_nsys_it_says_where_to_get_it(self):
        self.refused("NSYS=/none/nsys is no program", ROW, BENCH="/bin/true", NSYS="/none/nsys")


if __name__ == "__main__":
    unittest.main()
