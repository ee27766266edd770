"""scripts/nsys.sh from end to end, a script standing in for nsys and the cpu device for a GPU."""

import os
import re
import subprocess
import sys
import textwrap
import unittest

import program
from program import CPU, Case, strict_json

# Runs what it is told to; its export is of the timeline beside the report, so that both sides agree
# but for kernels that are SHARE as long.
NSYS = '''\
#!{python}
import json, os, pathlib, sqlite3, subprocess, sys
command, arguments = sys.argv[1], sys.argv[2:]
flags = [a for a in arguments if a.startswith("--")]
output = next(a.split("=")[1] for a in flags if a.startswith("--output="))
if command == "profile":
    assert "--capture-range=cudaProfilerApi" in flags and "--capture-range-end=stop" in flags
    assert "--trace=cuda,nvtx,osrt" in flags
    first = next(i for i, a in enumerate(arguments) if not a.startswith("--"))
    pathlib.Path(output + ".nsys-rep").touch()
    sys.exit(subprocess.run(arguments[first:]).returncode)
assert command == "export" and "--type=sqlite" in flags
report = next(a for a in arguments if not a.startswith("--"))
timeline = pathlib.Path(report.removesuffix(".nsys-rep") + ".timeline.json").read_text()
pathlib.Path(output).unlink(missing_ok=True)
database = sqlite3.connect(output)
database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT)")
database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, copyKind INT)")
database.execute("CREATE TABLE NVTX_EVENTS "
                 "(start INT, end INT, eventType INT, text TEXT, textId INT, domainId INT)")
database.execute("INSERT INTO NVTX_EVENTS VALUES (0, NULL, 75, 'feedrate', NULL, 1)")
events = json.loads(timeline)["traceEvents"]
tracks = {{e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}}
window = next(e for e in events if e["name"] == "measured window" and e["ph"] == "X")
begin, end = window["ts"] * 1e3, (window["ts"] + window["dur"]) * 1e3
steps = window["args"]["steps"]
for n in range(steps):
    at = [begin + (end - begin) * part / steps for part in (n, n + 1)]
    database.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, NULL, 1)", (*at, f"batch {{n}}"))
for e in events:
    if e["ph"] != "X":
        continue
    a, b = max(begin, e["ts"] * 1e3), min(end, (e["ts"] + e["dur"]) * 1e3)
    if a >= b:
        continue
    if e["name"] == "compute":
        b = a + (b - a) * float(os.environ["SHARE"])
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?)", (a, b))
    elif tracks[e["tid"]].startswith("device: cop"):
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, 1)", (a, b))
database.commit()
'''


class Nsys(Case):
    def setUp(self):
        super().setUp()
        self.nsys = self.folder / "nsys"
        self.nsys.write_text(textwrap.dedent(NSYS).format(python=sys.executable))
        self.nsys.chmod(0o755)
        self.reports = self.folder / "reports"

    def call(self, *arguments, share=1):
        return subprocess.run(
            [program.SOURCE / "scripts/nsys.sh", *arguments, "--", *CPU, "--steps=3"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=program.TIMEOUT_S,
            env=program.environment(
                BENCH=program.BENCH,
                NSYS=str(self.nsys),
                NSYS_OUT=str(self.reports),
                SHARE=str(share),
            ),
        )

    def test_one_report_a_row_each_compared(self):
        done = self.call("Pipeline/streams", "Compute/resnet18")
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        kinds = ("json", "log", "nsys-rep", "sqlite", "timeline.json")
        self.assertEqual(
            sorted(os.listdir(self.reports)),
            sorted(f"{row}.{k}" for row in ("Compute-resnet18", "Pipeline-streams") for k in kinds),
        )
        for row in ("Pipeline/streams", "Compute/resnet18"):
            self.assertIn(f"{row}: 3 steps in ", done.stdout)
            result = strict_json((self.reports / f"{row.replace('/', '-')}.json").read_text())
            self.assertEqual([run["name"] for run in result["benchmarks"]], [row])
        self.assertEqual(len(re.findall(r"\+0\.0\d %|-0\.0\d %", done.stdout)), 3, done.stdout)

    def test_difference_is_status_1_and_the_other_rows_run(self):
        done = self.call("Pipeline/streams", "Compute/resnet18", share=0.8)
        self.assertEqual(done.returncode, 1, done.stderr + done.stdout)
        for row in ("Pipeline/streams", "Compute/resnet18"):
            self.assertRegex(done.stdout, rf"{row}: differs by [\d.]+, more than 5")

    def test_row_is_named_exactly(self):
        for row in ("Pipeline", "Pipeline/stream.", "Pipeline/(null|streams)"):
            done = self.call("Compute/resnet18", row)
            self.assertEqual(done.returncode, 2, row)
            self.assertIn(row, done.stderr)
            self.assertFalse(self.reports.exists(), "nothing may have run")


if __name__ == "__main__":
    unittest.main()
