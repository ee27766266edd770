"""Holistic Trace Analysis loads what bench --torch-profile writes."""

import logging
import os
import subprocess
import tempfile
import unittest

try:
    from hta.trace_analysis import TraceAnalysis

    logging.getLogger("hta").setLevel(logging.ERROR)
    missing = ""
except ImportError as error:
    missing = f"Holistic Trace Analysis cannot be imported: {error}"

BENCH = os.environ.get("FEEDRATE_BENCH", "")
STEPS, WARMUP = 3, 2


@unittest.skipIf(missing, missing)
@unittest.skipUnless(BENCH, "FEEDRATE_BENCH does not say where bench is")
class Loads(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.path = os.path.join(folder.name, "profile.json")
        subprocess.run(
            [
                BENCH,
                "--device=cpu",
                "--batch=2",
                "--image=32",
                "--workers=2",
                "--benchmark_filter=^Pipeline/baseline$",
                f"--steps={STEPS}",
                f"--warmup={WARMUP}",
                "--sync-every=1",
                f"--torch-profile={cls.path}",
            ],
            check=True,
            capture_output=True,
            timeout=300,
        )
        # Found in its folder, as one would open it.
        analysis = TraceAnalysis(trace_dir=cls.folder, include_last_profiler_step=True)
        cls.trace = analysis.t

    def test_rank_is_found(self):
        self.assertEqual(self.trace.trace_files, {0: self.path})
        self.assertEqual(self.trace.meta_data[0]["distributedInfo"]["world_size"], 1)

    def test_iterations_are_the_measured_steps(self):
        self.assertEqual(self.trace.get_iterations(0), [*range(WARMUP, WARMUP + STEPS)])

    def test_operators_fall_into_the_iterations(self):
        names = self.trace.symbol_table.get_sym_id_map()
        frame = self.trace.get_trace(0)
        # The loop waits for each step, so that each one's operators run in its turn.
        for name, each in (("aten::convolution", 20), ("compute", 1), ("copy batch", 1)):
            of_name = frame[frame["name"] == names[name]]
            counts = of_name["iteration"].value_counts().to_dict()
            self.assertEqual(counts, {n: each for n in range(WARMUP, WARMUP + STEPS)}, name)

    def test_no_event_of_a_host_has_a_stream(self):
        self.assertEqual(set(self.trace.get_trace(0)["stream"]), {-1})


if __name__ == "__main__":
    unittest.main()
