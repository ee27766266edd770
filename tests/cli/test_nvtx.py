"""The ranges that a profiler is told: emitted, nested, balanced, with names and colours."""

import pathlib
import re
import unittest
from collections import namedtuple

import program
from program import CPU, Case, rows_of

INJECTION = pathlib.Path(program.BENCH).resolve().with_name("nvtx_injection.so")
BLUE, RED, YELLOW, GREEN = "ff0000ff", "ffff0000", "ffffff00", "ff008000"
COLOURS = {"batch": BLUE, "get batch": RED, "copy batch": YELLOW, "compute": GREEN}
STEPS, WARMUP, COOLDOWN = 4, 2, 1
TOTAL = WARMUP + STEPS + COOLDOWN

Event = namedtuple("Event", "kind thread domain range colour message")


@unittest.skipUnless(INJECTION.exists(), f"there is no {INJECTION}: built without NVTX3")
class Ranges(Case):
    def events_of(self, row, *args):
        """All events of domain feedrate, in order. Asserts that the row ran."""
        log = self.folder / "events"
        out = self.folder / "result.json"
        done = program.bench(
            *CPU,
            f"--benchmark_filter=^{row}$",
            f"--benchmark_out={out}",
            f"--steps={STEPS}",
            f"--warmup={WARMUP}",
            f"--cooldown={COOLDOWN}",
            *args,
            env={"NVTX_INJECTION64_PATH": str(INJECTION), "FEEDRATE_NVTX_LOG": str(log)},
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(row, rows_of(program.strict_json(out.read_text())))
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        events = [Event(*line.split("\t")) for line in lines]
        return [event for event in events if event.domain == "feedrate"]

    def tree_of(self, events):
        """(name, names of the ranges around it) of each nested range, as they begin, and
        (name, names around its start, names around its end) of each start/end range."""
        stacks, nested, open_ranges, spans = {}, [], {}, []
        for event in events:
            stack = stacks.setdefault(event.thread, [])
            around = tuple(stack)
            if event.kind == "push":
                nested.append((event.message, around))
                stack.append(event.message)
            elif event.kind == "pop":
                self.assertTrue(stack, "a pop without a push")
                stack.pop()
            elif event.kind == "start":
                self.assertNotIn(event.range, open_ranges)
                open_ranges[event.range] = (event.message, around)
            else:
                self.assertEqual(event.kind, "end")
                self.assertIn(event.range, open_ranges, "an end without a start")
                spans.append((*open_ranges.pop(event.range), around))
        self.assertFalse(open_ranges, "started and never ended")
        self.assertFalse([stack for stack in stacks.values() if stack], "pushed and never popped")
        return nested, spans

    def test_ranges_are_nested_and_balanced_as_each_schedule_turns(self):
        for row, first_fetch_outside in (
            ("Pipeline/baseline", False),
            ("Pipeline/workers", False),
            ("Pipeline/pinned", False),
            ("Pipeline/streams", True),
            ("Pipeline/prefetch", True),
        ):
            with self.subTest(row):
                nested, spans = self.tree_of(self.events_of(row, "--capture"))
                turns = [name for name, around in nested if name.startswith("batch ")]
                self.assertEqual(turns, [f"batch {n}" for n in range(TOTAL)])
                for name, around in nested:
                    if name.startswith("batch "):
                        self.assertEqual(around, ())
                # Batch 0 of the schedules that run ahead comes before their first turn, and in
                # the last one there is none left to fetch.
                fetched_in = [*range(TOTAL)]
                if first_fetch_outside:
                    fetched_in = [None, *fetched_in[:-1]]
                expected = [() if n is None else (f"batch {n}",) for n in fetched_in]
                for what in ("get batch", "copy batch"):
                    self.assertEqual([a for name, a in nested if name == what], expected, what)
                # compute begins and ends within its turn, on whichever thread.
                self.assertEqual(
                    spans,
                    [("compute", (f"batch {n}",), (f"batch {n}",)) for n in range(TOTAL)],
                )
                self.assertEqual(len(nested), 3 * TOTAL)

    def test_names_have_the_published_colours(self):
        events = self.events_of("Pipeline/streams", "--capture")
        seen = {
            (re.sub(r" \d+$", "", event.message), event.colour)
            for event in events
            if event.kind in ("push", "start")
        }
        self.assertEqual(seen, set(COLOURS.items()))

    def test_a_profiler_that_has_started_us_is_enough(self):
        self.assertTrue(self.events_of("Compute/resnet18"))

    def test_nothing_is_emitted_when_off(self):
        self.assertEqual(self.events_of("Pipeline/streams", "--trace=off"), [])
        self.assertEqual(self.events_of("Pipeline/streams", "--trace=off", "--capture"), [])


if __name__ == "__main__":
    unittest.main()
