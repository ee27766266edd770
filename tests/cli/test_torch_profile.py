"""--torch-profile: LibTorch's own trace of the measured steps of one row."""

import re
import signal
import unittest

import program
from program import CPU, Case, rows_of, strict_json
from test_cpu import Running

STEPS, WARMUP = 3, 2
MEASURED = [f"ProfilerStep#{n}" for n in range(WARMUP, WARMUP + STEPS)]
# As Holistic Trace Analysis 0.5.0 looks for it, line by line (hta/common/trace_file.py).
RANK = re.compile(r'"rank":\s+(\d+)')


class Profile(Case):
    def setUp(self):
        super().setUp()
        self.profile = self.folder / "profile.json"

    def profiled(self, row, *args):
        done = program.bench(
            *CPU,
            f"--benchmark_filter=^{row}$",
            f"--steps={STEPS}",
            f"--warmup={WARMUP}",
            f"--torch-profile={self.profile}",
            *args,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([file.name for file in self.folder.iterdir()], [self.profile.name])
        text = self.profile.read_text()
        return text, strict_json(text)

    def test_measured_steps_and_only_them_are_annotated(self):
        for row in ("Pipeline/streams", "Pipeline/baseline", "Compute/resnet18"):
            with self.subTest(row):
                _, trace = self.profiled(row)
                annotations = [
                    event
                    for event in trace["traceEvents"]
                    if event.get("cat") == "user_annotation"
                ]
                steps = [e for e in annotations if e["name"].startswith("ProfilerStep")]
                steps.sort(key=lambda event: event["ts"])
                self.assertEqual([event["name"] for event in steps], MEASURED)
                for one, next_one in zip(steps, steps[1:], strict=False):
                    self.assertLessEqual(one["ts"] + one["dur"], next_one["ts"] + 1)
                names = {"compute"}
                if row != "Compute/resnet18":
                    names |= {"get batch", "copy batch"}
                for name in names:
                    self.assertEqual(
                        sum(event["name"] == name for event in annotations), STEPS, name
                    )
                self.assertEqual(
                    {event["name"] for event in annotations}, {*MEASURED, *names}
                )

    def test_operators_of_the_step_are_there_whichever_thread_runs_it(self):
        _, trace = self.profiled("Pipeline/streams")
        operators = [e["name"] for e in trace["traceEvents"] if e.get("cat") == "cpu_op"]
        # ResNet-18's: twenty convolutions, each there and back.
        self.assertEqual(operators.count("aten::convolution"), 20 * STEPS)
        self.assertEqual(operators.count("aten::convolution_backward"), 20 * STEPS)

    def test_what_holistic_trace_analysis_looks_for(self):
        text, trace = self.profiled("Pipeline/streams")
        found = [match for match in map(RANK.search, text.splitlines()) if match]
        self.assertEqual([match.group(1) for match in found], ["0"])
        self.assertEqual(trace["distributedInfo"]["rank"], 0)
        self.assertEqual(trace["distributedInfo"]["world_size"], 1)
        for event in trace["traceEvents"]:
            if event["ph"] == "X":
                self.assertGreaterEqual(event["dur"], 0)
                self.assertIn("ts", event)
                # On a GPU's events, and above 0 there; hosts have none.
                self.assertGreater(event.get("args", {}).get("stream", 1), 0)

    def test_ranges_for_a_profiler_and_figures_come_with_it(self):
        out = self.folder / "result.json"
        done = program.bench(
            *CPU,
            "--benchmark_filter=^Pipeline/prefetch$",
            "--steps=3",
            f"--torch-profile={self.profile}",
            "--capture",
            f"--benchmark_out={out}",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("ProfilerStep#", self.profile.read_text())
        self.assertEqual(
            rows_of(strict_json(out.read_text()))["Pipeline/prefetch"]["bad_batches"], 0
        )


class Refused(Case):
    def refused(self, *args, word):
        profile = self.folder / "profile.json"
        done = program.bench(
            f"--torch-profile={profile}", *args, env={"CUDA_VISIBLE_DEVICES": ""}
        )
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("--torch_profile=", done.stderr)
        self.assertIn(word, done.stderr)
        self.assertFalse(profile.exists())

    def test_simulated_device(self):
        one = "--benchmark_filter=^Pipeline/streams$"
        self.refused("--device=sim", one, word="simulated")
        self.refused("--device=auto", one, word="simulated")

    def test_more_than_one_row_or_run(self):
        self.refused(*CPU, "--benchmark_filter=Pipeline/(streams|null)", word="chooses 2")
        self.refused(
            *CPU,
            "--benchmark_filter=Pipeline/streams",
            "--benchmark_repetitions=2",
            word="asks for 2",
        )

    def test_path_that_cannot_be_written(self):
        done = program.bench(
            *CPU, "--benchmark_filter=^Pipeline/null$", "--torch-profile=/none/profile.json"
        )
        self.assertEqual(done.returncode, 2)
        self.assertIn("--torch_profile=", done.stderr)


class Unfinished(Case):
    def test_row_that_is_no_training_loop(self):
        profile = self.folder / "profile.json"
        done = program.bench(
            *CPU,
            "--benchmark_filter=^H2D/pinned/async/bytes:4096$",
            "--steps=2",
            f"--torch-profile={profile}",
        )
        self.assertEqual(done.returncode, 2)
        self.assertIn("--torch_profile=", done.stderr)
        self.assertIn("is of training loops", done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertFalse(profile.exists())

    def test_interrupt_leaves_what_was_there(self):
        profile = self.folder / "profile.json"
        profile.write_text("an older profile")
        running = Running(
            self,
            *CPU,
            "--benchmark_filter=^Pipeline/streams$",
            "--steps=3000",
            "--warmup=1",
            f"--torch-profile={profile}",
        )
        running.wait_for(r"step \d+ of 3\d\d\d")
        running.process.send_signal(signal.SIGINT)
        running.finish()
        self.assertEqual(running.process.returncode, 130)
        self.assertEqual(profile.read_text(), "an older profile")
        self.assertEqual([file.name for file in self.folder.iterdir()], [profile.name])


if __name__ == "__main__":
    unittest.main()
