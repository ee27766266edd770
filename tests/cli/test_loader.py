"""The Loader rows: each loader alone, simulated and on the cpu device."""

import collections

from program import CPU, Case, bench, rows_of

SIM = "--device=sim:l40s"
LOADER = "--benchmark_filter=^Loader/"
SIMULATED = ("threads_fresh", "threads_ring", "threads_pinned")
SIMULATED += ("processes_fresh", "processes_ring", "processes_pinned")
VARIANTS = (*SIMULATED, "libtorch", "libtorch_shared_generator", "libtorch_intra_op")
CORES = 8  # of the l40s profile


def name(variant, workers):
    return f"Loader/{variant}/workers:{workers}"


class Names(Case):
    def listed(self, *args):
        done = bench(*args, "--benchmark_list_tests")
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()

    def test_workers_are_powers_of_two_up_to_twice_the_cores(self):
        names = self.listed(SIM, LOADER)
        counts = (1, 2, 4, CORES, 2 * CORES)
        expected = [name("randn_in_cache", w) for w in counts] + ["Loader/inline"]
        # More workers of a shared generator would show nothing new, in minutes.
        expected += [
            name(variant, w)
            for variant in VARIANTS
            for w in counts
            if w <= {"libtorch_shared_generator": 2, "libtorch_intra_op": CORES}.get(variant, w)
        ]
        self.assertEqual(names, expected)

    def test_bounds_come_by_flag(self):
        names = self.listed(SIM, "--benchmark_filter=Loader/threads_fresh", "--sweep_workers=3:12")
        self.assertEqual(names, [name("threads_fresh", w) for w in (3, 4, 8, 12)])

    def test_names_are_unique_and_a_family_matches_its_own_rows_alone(self):
        names = self.listed(SIM)
        self.assertEqual([n for n, count in collections.Counter(names).items() if count > 1], [])
        self.assertEqual(
            [n for n in names if n.startswith("Loader/")],
            self.listed(SIM, "--benchmark_filter=Loader"),
        )


class Simulated(Case):
    def test_rates_follow_from_the_profile(self):
        result = self.run_to_file(SIM, LOADER)
        rows = rows_of(result)
        make_ms = 248.2  # EXPERIMENTS: F of the L40S
        for variant in SIMULATED:
            one = rows[name(variant, 1)]
            self.assertAlmostEqual(one["batches_per_s"] * make_ms / 1e3, 1, delta=0.01)
            self.assertEqual(one["scaling"], 1)
            self.assertAlmostEqual(rows[name(variant, 4)]["scaling"], 1, delta=0.01)
            self.assertAlmostEqual(one["first_batch_ms"], make_ms, delta=2.5)
            self.assertEqual(one["spread"], 0)
            # More workers than cores share them.
            cores, twice = (rows[name(variant, w)]["batches_per_s"] for w in (CORES, 2 * CORES))
            self.assertAlmostEqual(twice / cores, 1, delta=0.01)
        # A shared batch's munmap, 37.4 ms, is the loop's: that many batches and no more.
        unmapping = rows[name("processes_fresh", CORES)]["batches_per_s"]
        self.assertAlmostEqual(unmapping * 37.4e-3, 1, delta=0.01)
        ring = rows[name("processes_ring", CORES)]["batches_per_s"]
        self.assertAlmostEqual(ring * make_ms / CORES / 1e3, 1, delta=0.01)
        self.assertLess(rows["Loader/inline"]["batches_per_s"], 1e3 / make_ms)
        for row in rows.values():
            self.assertNotIn("cpu_s_per_batch", row, "nothing was computed")
            self.assertNotIn("of_in_cache", row, "nothing was computed")
            self.assertNotIn("bytes_per_second", row, "nothing was copied")
            self.assertAlmostEqual(row["images_per_s"] / row["items_per_second"], 1)

    def test_what_has_no_model_is_skipped_with_a_reason(self):
        skipped = {row["name"]: row["reason"] for row in self.run_to_file(SIM, LOADER)["skipped"]}
        for variant in (*VARIANTS[len(SIMULATED) :], "randn_in_cache"):
            self.assertIn("simulated device", skipped[name(variant, 1)])
        self.assertEqual({n.split("/")[1] for n in skipped} & set(SIMULATED), set())


class Cpu(Case):
    def test_every_loader_alone(self):
        result = self.run_to_file(*CPU, LOADER, "--sweep_workers=1:2")
        self.assertEqual(result["skipped"], [])
        rows = rows_of(result)
        variants = (*VARIANTS, "randn_in_cache")
        expected = {name(variant, w) for variant in variants for w in (1, 2)} | {"Loader/inline"}
        self.assertEqual(set(rows), expected)
        batch_bytes = 2 * (3 * 32 * 32 * 4 + 8)
        for row in rows.values():
            self.assertAlmostEqual(row["batches_per_s"] * row["real_time"] / 1e3, 1)
            self.assertAlmostEqual(row["images_per_s"] / row["batches_per_s"], 2)
            self.assertAlmostEqual(row["GBps"] * 1e9 / row["batches_per_s"] / batch_bytes, 1)
            self.assertGreaterEqual(row["spread"], 0)
            self.assertNotIn("bytes_per_second", row)
            if "randn_in_cache" in row["name"]:
                self.assertNotIn("of_in_cache", row)
                continue
            self.assertGreater(row["first_batch_ms"], 0)
            self.assertGreater(row["cpu_s_per_batch"], 0)
            self.assertGreaterEqual(row["faults_per_batch"], 0)
            if "shared_generator" in row["name"]:
                self.assertNotIn("of_in_cache", row, "its workers wait for each other")
            else:
                self.assertGreater(row["of_in_cache"], 0)
        for variant in variants:
            one, two = (rows[name(variant, w)] for w in (1, 2))
            self.assertEqual(one["scaling"], 1)
            ratio = two["batches_per_s"] / one["batches_per_s"]
            self.assertAlmostEqual(two["scaling"] / (ratio / 2), 1)
        self.assertEqual(
            result["specs"][name("processes_ring", 2)],
            {"variant": "processes_ring", "workers": "2"},
        )

    def test_workers_of_the_rows_are_started_before_the_first_one(self):
        row = "--benchmark_filter=^Loader/processes_fresh/workers:3$"
        rows = rows_of(self.run_to_file(*CPU, row, "--sweep_workers=3:3"))
        # Not compared with what did not run.
        self.assertNotIn("scaling", rows[name("processes_fresh", 3)])
        self.assertGreater(rows[name("processes_fresh", 3)]["of_in_cache"], 0)

    def test_fresh_memory_has_more_faults_than_a_ring(self):
        rows = rows_of(
            self.run_to_file(
                "--device=cpu",
                "--batch=8",
                "--image=128",
                "--sweep_workers=1:1",
                "--benchmark_filter=^Loader/(threads|processes)_(fresh|ring)",
            )
        )
        pages = 8 * 3 * 128 * 128 * 4 / 4096
        for loader in ("threads", "processes"):
            fresh, ring = (rows[name(f"{loader}_{b}", 1)] for b in ("fresh", "ring"))
            self.assertGreater(fresh["faults_per_batch"], pages / 20)  # huge pages take less
            self.assertLess(ring["faults_per_batch"], fresh["faults_per_batch"] / 2)

    def test_a_row_whose_memory_would_not_fit_is_skipped_with_the_size(self):
        result = self.run_to_file(
            "--device=cpu",
            "--batch=65536",
            "--image=8192",
            "--sweep_workers=1:1",
            "--benchmark_filter=^Loader/threads",
        )
        self.assertEqual(result["benchmarks"], [])
        self.assertEqual(len(result["skipped"]), 3)
        for row in result["skipped"]:
            self.assertRegex(row["reason"], r"out of memory: .* \d+ bytes asked for")
