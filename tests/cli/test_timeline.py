"""--timeline: a whole trace in the Trace Event Format, with every step of the rows that ran."""

import os
import re
import signal
import unittest
from collections import Counter, defaultdict

import program
from program import CPU, RUNGS, Case, rows_of, strict_json
from test_cpu import Running

SIM = "--device=sim:l40s"
TRACKS = {
    "host": "host: training loop",
    "pin": "pin thread",
    "copy": "device: copy stream",
    "copy_shared": "device: copies on the one stream",
    "compute": "device: compute stream",
    "window": "measured window",
}
# Of chrome://tracing's reserved names; those of the published blue, red, yellow, green first.
COLOURS = {"rail_response", "terrible", "yellow", "good", "olive", "grey"}
PUBLISHED = {
    "batch": "rail_response",
    "get batch": "terrible",
    "copy batch": "yellow",
    "compute": "good",
}
NS = 1.5e-3  # µs: begins and lengths are rounded to text apart


class Row:
    """One row's events: its title, its tracks by number, intervals and flows."""

    def __init__(self, title):
        self.title = title
        self.tracks = {}
        self.intervals = defaultdict(list)  # by track's name
        self.flows = defaultdict(list)  # by id

    def named(self, track, name):
        return [event for event in self.intervals[track] if event["name"] == name]


class TraceCase(Case):
    def setUp(self):
        super().setUp()
        self.trace = self.folder / "trace.json"

    def traced(self, *args, status=0):
        """Runs bench; (rows of the trace by title, rows of the result file)."""
        done = program.bench(
            *args, f"--timeline={self.trace}", f"--benchmark_out={self.out}"
        )
        self.assertEqual(done.returncode, status, done.stderr)
        names = sorted(file.name for file in self.folder.iterdir())
        self.assertEqual(names, sorted([self.trace.name, self.out.name]))
        return self.read(), rows_of(strict_json(self.out.read_text()))

    def read(self):
        """The trace by title, once its schema has been checked."""
        trace = strict_json(self.trace.read_text())
        self.assertEqual(set(trace), {"displayTimeUnit", "traceEvents"})
        rows = {}
        last = defaultdict(lambda: -1.0)
        running = defaultdict(list)  # ends of intervals, by track
        for event in trace["traceEvents"]:
            self.assertIn(event["ph"], ("M", "X", "s", "t", "f"), event)
            for number in ("pid", "tid"):
                self.assertIs(type(event[number]), int, event)
            self.assertIs(type(event["name"]), str, event)
            pid = event["pid"]
            if event["ph"] == "M":
                self.metadata(rows, event)
                continue
            row = rows[pid]
            self.assertIn(event["tid"], row.tracks, "every track has a name")
            self.assertIn(type(event["ts"]), (int, float))
            self.assertGreaterEqual(event["ts"], last[pid], "events are in the order of time")
            last[pid] = event["ts"]
            ends = running[pid, event["tid"]]
            ends[:] = [end for end in ends if end > event["ts"] - NS]
            if event["ph"] == "X":
                self.assertGreater(event["dur"], 0, event)
                self.assertIn(event["cname"], COLOURS)
                self.assertEqual(event["cname"], PUBLISHED.get(event["name"], event["cname"]))
                row.intervals[row.tracks[event["tid"]]].append(event)
                ends.append(event["ts"] + event["dur"])
            else:
                self.assertTrue(ends, f"a station outside of any interval: {event}")
                row.flows[event["id"]].append(event)
        for row in rows.values():
            self.check_nesting(row)
            self.check_flows(row)
        titles = [row.title for row in rows.values()]
        self.assertEqual(len(titles), len(set(titles)))
        return {row.title: row for row in rows.values()}

    def metadata(self, rows, event):
        args = event["args"]
        if event["name"] == "process_name":
            self.assertNotIn(event["pid"], rows)
            rows[event["pid"]] = Row(args["name"])
        elif event["name"] == "thread_name":
            tracks = rows[event["pid"]].tracks
            self.assertNotIn(event["tid"], tracks)
            self.assertNotIn(args["name"], tracks.values())
            tracks[event["tid"]] = args["name"]
        else:
            self.assertEqual(event["name"], "thread_sort_index")
            self.assertIs(type(args["sort_index"]), int)

    def check_nesting(self, row):
        """A track's intervals are apart or within one another, longer ones first."""
        for track, events in row.intervals.items():
            around = []
            for event in events:
                end = event["ts"] + event["dur"]
                while around and around[-1] <= event["ts"] + NS:
                    around.pop()
                if around:
                    self.assertLessEqual(end, around[-1] + NS, (row.title, track, event))
                around.append(end)

    def check_flows(self, row):
        for name, stations in row.flows.items():
            phases = "".join(event["ph"] for event in stations)
            self.assertRegex(phases, r"^st*f$", name)
            self.assertEqual({(e["cat"], e["name"]) for e in stations}, {("batch", "batch")})
            self.assertEqual(stations[-1]["bp"], "e")


class Simulated(TraceCase):
    def test_every_rung_has_its_tracks_steps_and_flows(self):
        rows, results = self.traced(SIM, "--benchmark_filter=^(Pipeline|Compute)/")
        self.assertEqual(list(rows), [f"{name} on sim:l40s (simulated)" for name in results])
        self.assertLessEqual({f"Pipeline/{rung}" for rung in RUNGS}, set(results))
        for name, counters in results.items():
            with self.subTest(name):
                row = rows[f"{name} on sim:l40s (simulated)"]
                rung = name.partition("/")[2]
                loops = name.startswith("Pipeline/")
                fed = loops and rung != "null"
                workers = 8 if fed and rung != "baseline" else 0
                expected = {TRACKS["window"], TRACKS["host"], TRACKS["compute"]}
                expected |= {f"worker {n}" for n in range(workers)}
                if fed:
                    two = rung in ("streams", "prefetch", "direct", "direct_u8")
                    expected.add(TRACKS["copy" if two else "copy_shared"])
                if rung in ("pinned", "streams", "prefetch"):
                    expected.add(TRACKS["pin"])
                self.assertEqual(set(row.tracks.values()), expected)
                self.check_steps(row, counters, fed)

    def check_steps(self, row, counters, fed):
        if counters["real_time"] == 0:  # the floor costs nothing here
            self.assertFalse(row.intervals)
            return
        (window,) = row.intervals[TRACKS["window"]]
        steps = window["args"]["steps"]
        self.assertEqual(steps, counters["iterations"])
        self.assertAlmostEqual(window["dur"] * 1e-3 / steps, counters["real_time"], places=3)
        turns = row.named(TRACKS["host"], "batch")
        self.assertEqual([event["args"]["step"] for event in turns], [*range(len(turns))])
        computes = row.named(TRACKS["compute"], "compute")
        measured = [event for event in computes if event["args"]["measured"]]
        begin, end = window["ts"], window["ts"] + window["dur"]
        busy = sum(
            max(0, min(end, e["ts"] + e["dur"]) - max(begin, e["ts"])) for e in computes
        )
        self.assertEqual(len(measured), steps)
        self.assertEqual(len(computes), len(turns))
        self.assertAlmostEqual(busy * 1e-3 / steps / counters["compute_ms"], 1, delta=0.01)
        if not fed:
            self.assertFalse(row.flows)
            return
        copies = [
            event
            for track in (TRACKS["copy"], TRACKS["copy_shared"])
            for event in row.named(track, "copy batch")
            if event["args"]["measured"]
        ]
        self.assertEqual(len(copies), steps)
        mean = sum(event["dur"] for event in copies) * 1e-3 / steps
        self.assertAlmostEqual(mean / counters["copy_ms"], 1, delta=0.01)
        self.check_every_batch_flows(row, len(turns))

    def check_every_batch_flows(self, row, batches):
        """From who made it by way of whoever had it to its step."""
        self.assertEqual(len(row.flows), batches)
        makers = Counter(
            track for track in row.intervals for _ in row.named(track, "make batch")
        )
        self.assertEqual(sum(makers.values()), batches)
        for stations in row.flows.values():
            way = [row.tracks[event["tid"]] for event in stations]
            self.assertIn(way[0], makers)
            self.assertEqual(way[-1], TRACKS["compute"])
            self.assertEqual(TRACKS["pin"] in way, TRACKS["pin"] in row.tracks.values())
            self.assertTrue(way[-2].startswith("device: cop"), way)

    def test_repetitions_are_told_apart(self):
        rows, _ = self.traced(
            SIM, "--benchmark_filter=^Pipeline/(streams|null)$", "--benchmark_repetitions=3"
        )
        self.assertEqual(
            sorted(rows),
            sorted(
                f"Pipeline/{rung}, repetition {n} of 3 on sim:l40s (simulated)"
                for rung in ("null", "streams")
                for n in (1, 2, 3)
            ),
        )

    def test_two_runs_give_the_same_trace(self):
        self.traced(SIM, "--benchmark_filter=^Pipeline/streams$")
        first = self.trace.read_text()
        self.traced(SIM, "--benchmark_filter=^Pipeline/streams$")
        self.assertEqual(self.trace.read_text(), first)

    def test_parts_of_a_step_lie_within_it(self):
        rows, _ = self.traced(SIM, "--benchmark_filter=^Pipeline/direct_u8$")
        (row,) = rows.values()
        computes = row.named(TRACKS["compute"], "compute")
        parts = row.named(TRACKS["compute"], "normalize")
        self.assertEqual([e["ts"] for e in parts], [e["ts"] for e in computes])

    def test_rows_without_steps_are_refused_before_anything_runs(self):
        done = program.bench(
            SIM, "--benchmark_filter=^H2D/pinned/async/bytes:4096$", f"--timeline={self.trace}"
        )
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"\Abench: --timeline=.*: is of training loops[^\n]*\n\Z")
        self.assertEqual(done.stdout, "")
        self.assertFalse(self.trace.exists())

    def test_loops_that_did_not_run_leave_no_file_and_say_so(self):
        row = "--benchmark_filter=^Pipeline/pinned$"
        done = program.bench(SIM, row, "--loader=libtorch", f"--timeline={self.trace}")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--timeline: no training loop ran to its end", done.stderr)
        self.assertFalse(self.trace.exists())

    def test_no_other_file_may_have_its_name(self):
        done = program.bench(
            SIM, f"--timeline={self.trace}", f"--benchmark_out={self.folder}/./trace.json"
        )
        self.assertEqual(done.returncode, 2)
        self.assertIn("--timeline", done.stderr)
        self.assertFalse(self.trace.exists())

    def test_path_that_cannot_be_written_is_wrong_usage(self):
        done = program.bench(SIM, f"--timeline={self.folder}/none/trace.json")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--timeline=", done.stderr)


class Real(TraceCase):
    def test_every_rung(self):
        rows, results = self.traced(
            *CPU, "--steps=4", "--warmup=2", "--benchmark_filter=^(Pipeline|Compute)/"
        )
        self.assertEqual(list(rows), [f"{name} on cpu" for name in results])
        for name in ("workers", "pinned", "streams", "prefetch", "direct"):
            row = rows[f"Pipeline/{name} on cpu"]
            (window,) = row.intervals[TRACKS["window"]]
            self.assertEqual(window["args"]["steps"], 4)
            computes = row.named(TRACKS["compute"], "compute")
            self.assertEqual(sum(event["args"]["measured"] for event in computes), 4)
            self.assertEqual(len(row.flows), len(computes))
            checks = row.named(TRACKS["compute"], "check")
            self.assertEqual(len(checks), len(computes))
            workers = {n for n in row.tracks.values() if re.fullmatch(r"worker \d+", n)}
            self.assertLessEqual(workers, {"worker 0", "worker 1"})
            begin, end = window["ts"], window["ts"] + window["dur"]
            busy = sum(
                max(0, min(end, e["ts"] + e["dur"]) - max(begin, e["ts"])) for e in computes
            )
            counted = results[f"Pipeline/{name}"]["compute_ms"]
            self.assertAlmostEqual(busy * 1e-3 / 4 / counted, 1, delta=0.01)

    def interrupted(self, *args, until):
        running = Running(self, *CPU, *args, f"--timeline={self.trace}")
        running.wait_for(until)
        running.process.send_signal(signal.SIGINT)
        running.finish()
        self.assertEqual(running.process.returncode, 130)
        return running

    def test_interrupt_leaves_the_rows_that_ran(self):
        self.interrupted(
            "--benchmark_filter=^Pipeline/(null|workers)$",
            "--steps=3000",
            until=r"row 2 of 2  Pipeline/workers  step \d+ of",
        )
        self.assertEqual(list(self.read()), ["Pipeline/null on cpu"])
        self.assertEqual([file.name for file in self.folder.iterdir()], [self.trace.name])

    def test_interrupt_before_any_row_leaves_what_was_there(self):
        self.trace.write_text("an older trace")
        self.interrupted(
            "--benchmark_filter=^Pipeline/workers$", "--steps=3000", until=r"step \d+ of 3\d\d\d"
        )
        self.assertEqual(self.trace.read_text(), "an older trace")

    def test_row_that_fails_is_left_out(self):
        running = Running(
            self,
            *CPU,
            "--benchmark_filter=^Pipeline/(workers|pinned)$",
            "--steps=40",
            f"--timeline={self.trace}",
        )
        running.wait_for(r"Pipeline/workers  step \d+ of")
        os.kill(program.children(running.process.pid)[0], signal.SIGKILL)
        running.finish()
        self.assertEqual(running.process.returncode, 1)
        self.assertEqual(list(self.read()), ["Pipeline/pinned on cpu"])


if __name__ == "__main__":
    unittest.main()
