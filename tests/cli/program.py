"""The bench program, as its users call it. FEEDRATE_BENCH says where it is."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

BENCH = os.environ["FEEDRATE_BENCH"]
SOURCE = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT_S = 300

RUNGS = ["null", "baseline", "workers", "pinned", "streams", "prefetch", "direct", "direct_u8"]
PIPELINE = [f"Pipeline/{rung}" for rung in RUNGS]
# The rungs and the ceiling.
LADDER = [*PIPELINE, "Compute/resnet18", "Compute/resnet18_u8"]
LADDER_ROWS = "--benchmark_filter=^(Pipeline|Compute)/"
# Small enough for any host.
CPU = ["--device=cpu", "--batch=2", "--image=32", "--workers=2"]


def environment(**changes):
    """This one's, without what would change a run."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("BENCHMARK_", "NVTX_"))}
    return kept | changes


def bench(*args, env=None, **more):
    return subprocess.run(
        [BENCH, *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environment(**(env or {})),
        **more,
    )


def default_signals():
    """For a child that is to be interrupted: nohup and shells ignore signals for what they start,
    the tests perhaps, and what is ignored stays so."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def strict_json(text):
    """Parses JSON as the strictest reader would: no NaN, no key twice."""

    def refuse(constant):
        raise ValueError(f"{constant} is no JSON")

    def once(pairs):
        keys = [key for key, _ in pairs]
        if len(keys) != len(set(keys)):
            raise ValueError(f"a key stands twice in {keys}")
        return dict(pairs)

    return json.loads(text, parse_constant=refuse, object_pairs_hook=once)


def children(pid):
    """The processes whose parent is `pid`."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Case(unittest.TestCase):
    """A test with a folder of its own, where the result file is to lie."""

    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "result.json"

    def run_to_file(self, *args, status=0, **more):
        """Runs the program; the result file's content."""
        done = bench(*args, f"--benchmark_out={self.out}", **more)
        self.assertEqual(done.returncode, status, done.stderr + done.stdout)
        self.assertEqual(os.listdir(self.folder), [self.out.name], "nothing else may be left")
        return strict_json(self.out.read_text())

    def assert_sound(self, *expected):
        """The result file passes the checker."""
        command = [sys.executable, SOURCE / "scripts/check_result.py", self.out]
        command += [f"--expect={name}" for name in expected]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


def rows_of(result):
    return {row["name"]: row for row in result["benchmarks"]}
