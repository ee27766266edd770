"""What other readers of Google Benchmark's JSON take from our files, by their own rules.

Each function below follows the source or the documentation that it names. The files are those of
results/, the recorded ones, and, if FEEDRATE_BENCH names a bench, what it writes now.
"""

import json
import math
import os
import re
import statistics
import subprocess
import tempfile
import unittest

import looking
import dashboard

# Files of these shapes are read by our scripts alone.
NOT_GOOGLE_BENCHMARK = ("interleaved.json", "profile.json", "truncated.json")


def strict(text):
    """As JSON.parse and serde_json read it: no NaN, no Infinity."""

    def refuse(word):
        raise ValueError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def github_action_benchmark(text):
    """benchmark-action/github-action-benchmark, src/extract.ts, extractGoogleCppResult: JSON.parse,
    then of every entry of `benchmarks` name, real_time, time_unit, iterations, cpu_time, threads.
    No result at all is an error there (extractResult)."""
    found = []
    for row in strict(text)["benchmarks"]:
        found.append(
            {
                "name": row["name"],
                "value": row["real_time"],
                "unit": row["time_unit"] + "/iter",
                "extra": f"iterations: {row['iterations']}\ncpu: {row['cpu_time']} "
                f"{row['time_unit']}\nthreads: {row['threads']}",
            }
        )
    if not found:
        raise ValueError("No benchmark result was found")
    return found


def github_action_custom(text):
    """The same file, extractCustomBenchmarkResult (customBiggerIsBetter): a list of objects with
    name, value and unit, and perhaps range and extra, both texts (interface BenchmarkResult)."""
    found = strict(text)
    for entry in found:
        if not isinstance(entry["name"], str) or not isinstance(entry["unit"], str):
            raise ValueError("name and unit are texts")
        if isinstance(entry["value"], bool) or not isinstance(entry["value"], (int, float)):
            raise ValueError("value is a number")
        for key in ("range", "extra"):
            if not isinstance(entry.get(key, ""), str):
                raise ValueError(f"{key} is a text")
    if not found:
        raise ValueError("No benchmark result was found")
    return found


# rust_decimal holds 96 bits: anything larger does not deserialise.
BENCHER_MOST = 2**96 - 1
BENCHER_NANOSECONDS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}


def bencher_cpp_google(text):
    """bencherdev/bencher, lib/bencher_adapter/src/adapters/cpp/google.rs: context.caches must be
    there and a list of objects; each benchmark needs a name (bencher_valid: 1 to 1024 bytes), a
    number real_time and a known time_unit. Of equal names the last one stays."""
    value = strict(text)
    caches = value["context"]["caches"]
    if not isinstance(caches, list) or not all(isinstance(cache, dict) for cache in caches):
        raise ValueError("caches is a list of objects")
    found = {}
    for row in value["benchmarks"]:
        name, time = row["name"], row["real_time"]
        if not 1 <= len(name.encode()) <= 1024:
            raise ValueError("a name has 1 to 1024 bytes")
        if isinstance(time, bool) or not isinstance(time, (int, float)):
            raise ValueError("real_time is a number")
        nanoseconds = time * BENCHER_NANOSECONDS[row["time_unit"]]
        if not abs(nanoseconds) <= BENCHER_MOST:
            raise ValueError("real_time does not fit")
        found[name] = nanoseconds
    return found


def conbench(text):
    """conbench/conbench, benchadapt/python/benchadapt/adapters/gbench.py: every row needs run_type;
    aggregates are left out; the others are grouped by name, and each row's keys become keyword
    arguments. The value is bytes_per_second, else items_per_second, else CPU time (real time if the
    name says /real_time); a group has the unit of its first row."""
    groups = {}
    for row in json.loads(text)["benchmarks"]:
        if row["run_type"] == "aggregate":
            continue
        if not all(key.isidentifier() for key in row):
            raise ValueError("a key that cannot be a keyword argument")
        for key in ("name", "real_time", "cpu_time", "time_unit"):
            row[key]
        time = row["real_time"] if "/real_time" in row["name"] else row["cpu_time"]
        value, unit = time, row["time_unit"]
        for key in ("items_per_second", "bytes_per_second"):
            if row.get(key):
                value, unit = row[key], key
        groups.setdefault(row["name"], []).append((value, unit))
    found = {}
    for name, runs in groups.items():
        units = {unit for _, unit in runs}
        if len(units) > 1:
            raise ValueError(f"{name}: repetitions with the units {units}")
        found[name] = ([value for value, _ in runs], runs[0][1])
    return found


def google_compare(text):
    """google/benchmark, tools/gbench/util.py and report.py: rows are matched by name; a row counts
    with time_unit, real_time and cpu_time; repetitions of one name share a time unit. The old time
    is divided by in calculate_change unless it is 0."""
    found = {}
    for row in json.loads(text)["benchmarks"]:
        if not all(key in row for key in ("time_unit", "real_time", "cpu_time")):
            continue
        found.setdefault(row["name"], []).append(row)
    for name, rows in found.items():
        if len({row["time_unit"] for row in rows}) > 1:
            raise ValueError(f"{name}: several time units, rows are dropped")
    return found


def ours():
    """Yields (name, text) of every file of Google Benchmark's shape."""
    for folder in (os.path.join(looking.ROOT, "results"), looking.DATA):
        for where, _, names in os.walk(folder):
            for name in sorted(names):
                if name.endswith(".json") and name not in NOT_GOOGLE_BENCHMARK:
                    with open(os.path.join(where, name), encoding="utf-8") as file:
                        text = file.read()
                    if "benchmarks" in json.loads(text) and name != "google_benchmark.json":
                        yield name, text
    bench = os.environ.get("FEEDRATE_BENCH")
    if bench:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "now.json")
            subprocess.run(
                [
                    bench,
                    "--device=sim:l40s",
                    "--benchmark_filter=Pipeline|Compute",
                    "--benchmark_repetitions=3",
                    f"--benchmark_out={path}",
                ],
                check=True,
                capture_output=True,
                timeout=120,
            )
            with open(path, encoding="utf-8") as file:
                yield "now.json", file.read()


class Readers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.files = dict(ours())

    def test_there_are_files(self):
        self.assertGreaterEqual(len(self.files), 5)

    def test_strict_json_and_stock_fields(self):
        for name, text in self.files.items():
            value = strict(text)
            self.assertIsInstance(value["context"]["caches"], list, name)
            for row in value["benchmarks"]:
                for key in ("real_time", "cpu_time"):
                    self.assertTrue(math.isfinite(row[key]), (name, row["name"], key))
                self.assertRegex(row["name"], r"^[\x21-\x7e]{1,199}$")
                self.assertNotIn("skipped", row)  # a record of 0 s to every dashboard

    def test_github_action_benchmark(self):
        for name, text in self.files.items():
            rows = json.loads(text)["benchmarks"]
            found = github_action_benchmark(text)
            self.assertEqual([e["value"] for e in found], [r["real_time"] for r in rows], name)
            self.assertEqual({e["unit"] for e in found}, {"ms/iter"}, name)
        with self.assertRaises(ValueError):
            github_action_benchmark('{"benchmarks": []}')
        with self.assertRaises(ValueError):
            github_action_benchmark('{"benchmarks": [NaN]}')
        with self.assertRaises(KeyError):
            github_action_benchmark('{"benchmarks": [{"name": "x"}]}')

    def test_github_action_bigger_is_better(self):
        for name in ("bench", "simulated", "interleaved", "skipped"):
            with tempfile.TemporaryDirectory() as folder:
                out = os.path.join(folder, "steps.json")
                looking.call(dashboard.main, looking.data(name), "-o", out)
                with open(out, encoding="utf-8") as file:
                    found = github_action_custom(file.read())
            names = [entry["name"] for entry in found]
            self.assertEqual(len(names), len(set(names)))  # its chart is drawn by name
            self.assertTrue(all(entry["value"] > 0 for entry in found), name)
        with self.assertRaises(KeyError):
            github_action_custom('[{"name": "x", "value": 1}]')

    def test_bencher(self):
        for name, text in self.files.items():
            found = bencher_cpp_google(text)
            rows = json.loads(text)["benchmarks"]
            self.assertEqual(set(found), {row["name"] for row in rows}, name)
            last = rows[-1]
            self.assertAlmostEqual(found[last["name"]], last["real_time"] * 1e6)
        with self.assertRaises(KeyError):
            bencher_cpp_google('{"context": {}, "benchmarks": []}')

    def test_conbench(self):
        for name, text in self.files.items():
            found = conbench(text)
            for row in json.loads(text)["benchmarks"]:
                # The floor and page-locking feed nothing: their times are what they are about.
                feeds_nothing = row["name"].startswith(("Pipeline/null", "Staging/lock/"))
                if row["run_type"] == "aggregate" or feeds_nothing:
                    continue
                values, unit = found[row["name"]]
                # Bytes where something is fed, else images: never a waiting loop's CPU time.
                self.assertIn(unit, ("bytes_per_second", "items_per_second"), (name, row["name"]))
                self.assertIn(row[unit], values)

    def test_google_compare(self):
        for name, text in self.files.items():
            found = google_compare(text)
            rows = json.loads(text)["benchmarks"]
            self.assertEqual(sum(map(len, found.values())), len(rows), name)
            for row_name, same in found.items():
                times = [row["real_time"] for row in same if row["run_type"] == "iteration"]
                if times and row_name != "Pipeline/null":
                    self.assertGreater(statistics.median(times), 0, (name, row_name))

    def test_rows_of_one_family_are_one_benchmark_to_conbench(self):
        """_parse_benchmark_name splits at the first slash; a `<` would split it once more."""
        for text in self.files.values():
            for row in json.loads(text)["benchmarks"]:
                self.assertTrue(re.match(r"[A-Za-z0-9]+/[^<]+$", row["name"]), row["name"])


if __name__ == "__main__":
    unittest.main()
