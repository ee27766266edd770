"""The families that isolate one factor of the whole flow, simulated: values follow from the model.

Letters are EXPERIMENTS': F make, W workers, Hp and H copies from pageable and pinned memory, U
release, P pin, C compute, L launch; all of the l40s profile, in ms."""

import json
import subprocess
import sys
import unittest

from program import SOURCE, TIMEOUT_S, Case, bench, rows_of

SIM = "--device=sim:l40s"
F, W, HP, H, P, C, L = 248.2, 8, 15.5, 15.5, 30, 155, 17
U_PRIVATE, U_SHARED = 10, 37.4
BATCH_BYTES = 64 * (3 * 512 * 512 * 4 + 8)
CLOSE_MS = 0.01


def of(family):
    return f"--benchmark_filter=^{family}/"


class FamilyCase(Case):
    def names(self, *args):
        done = bench(SIM, "--benchmark_list_tests", *args)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.split()

    def assert_times(self, result, expected):
        rows = rows_of(result)
        self.assertEqual(list(rows), list(expected))
        for name, ms in expected.items():
            self.assertAlmostEqual(rows[name]["real_time"], ms, delta=CLOSE_MS, msg=name)


class Families(FamilyCase):
    FAMILIES = ("Workers", "BatchSize", "ImageSize", "Order", "Factorial", "Guard")

    def test_names_are_unique_and_a_familys_name_finds_its_rows_alone(self):
        everything = self.names()
        self.assertEqual(len(everything), len(set(everything)))
        for family in self.FAMILIES:
            mine = [name for name in everything if name.startswith(family + "/")]
            self.assertGreater(len(mine), 7)
            self.assertEqual(self.names(f"--benchmark_filter={family}"), mine)

    def test_every_row_is_sound(self):
        result = self.run_to_file(SIM, of(f"({'|'.join(self.FAMILIES)})"))
        self.assertEqual(result["skipped"], [])
        self.assert_sound()


class Sweeps(FamilyCase):
    @staticmethod
    def by_workers(rung, workers):
        share = F * max(1, workers / 8) / workers
        if rung == "workers":
            return max(share, max(C, L) + HP + U_SHARED)
        if rung == "pinned":
            return max(share, P + U_SHARED, L, H + C)
        return max(share, L, H, C)

    @staticmethod
    def by_size(rung, size):
        """`size`: of a batch, 1 is the profile's. Only the launch does not grow with it."""
        if rung == "baseline":
            return max(C * size, L + F * size) + HP * size + U_PRIVATE * size
        pin = (P + U_SHARED) * size if rung == "streams" else 0
        return max(F / W * size, pin, L, H * size, C * size)

    def test_workers(self):
        self.assert_times(
            self.run_to_file(SIM, of("Workers")),
            {
                f"Workers/{rung}/workers:{workers}": self.by_workers(rung, workers)
                for rung in ("workers", "pinned", "direct")
                for workers in (1, 2, 4, 8)
            },
        )

    def test_batch_size(self):
        self.assert_times(
            self.run_to_file(SIM, of("BatchSize")),
            {
                f"BatchSize/{rung}/batch:{batch}": self.by_size(rung, batch / 64)
                for rung in ("baseline", "streams", "direct")
                for batch in (8, 16, 32, 64, 128, 256)
            },
        )

    def test_image_size(self):
        self.assert_times(
            self.run_to_file(SIM, of("ImageSize")),
            {
                f"ImageSize/{rung}/image:{image}": self.by_size(rung, (image / 512) ** 2)
                for rung in ("baseline", "streams", "direct")
                for image in (64, 128, 256, 512, 1024)
            },
        )

    def test_bounds_are_included_and_powers_of_two_between_them(self):
        names = self.names(
            of("(Workers|BatchSize|ImageSize)"),
            "--sweep_workers=3:20",
            "--sweep_batch=5:5",
            "--sweep_image=36:132",
        )
        axes = {name.rpartition("/")[2] for name in names}
        expected = {f"workers:{value}" for value in (3, 4, 8, 16, 20)}
        expected |= {"batch:5"} | {f"image:{value}" for value in (36, 64, 128, 132)}
        self.assertEqual(axes, expected)

    def test_flags_leave_the_axis_alone_and_reach_the_rest(self):
        specs = self.run_to_file(
            SIM, of("(Workers|BatchSize)"), "--workers=3", "--batch=16", "--sweep_workers=2:2"
        )["specs"]
        self.assertEqual(specs["Workers/direct/workers:2"]["workers"], 2)
        self.assertEqual(specs["Workers/direct/workers:2"]["batch"], 16)
        self.assertEqual(specs["BatchSize/direct/batch:8"]["workers"], 3)
        self.assertEqual(specs["BatchSize/direct/batch:8"]["batch"], 8)

    def test_what_does_not_fit_is_skipped_with_the_size_it_needs(self):
        batch = 8192  # once in 48 GB, and not twice
        result = self.run_to_file(SIM, of("BatchSize"), f"--sweep_batch={batch}:{batch}")
        self.assertEqual(list(rows_of(result)), [f"BatchSize/baseline/batch:{batch}"])
        skipped = {row["name"]: row["reason"] for row in result["skipped"]}
        self.assertEqual(
            list(skipped), [f"BatchSize/{rung}/batch:{batch}" for rung in ("streams", "direct")]
        )
        for reason in skipped.values():
            self.assertIn(f"{batch // 64 * BATCH_BYTES} bytes", reason)
        self.assert_sound()


class Order(FamilyCase):
    def test_a_synchronised_loop_hides_only_the_copy_that_it_has_submitted_before(self):
        self.assert_times(
            self.run_to_file(SIM, of("Order")),
            {
                f"Order/{schedule}/pop_first:{pop_first}/sync_every:{sync}": (
                    H + C if sync and not pop_first else C
                )
                for schedule in ("two_streams", "prefetcher")
                for pop_first in (0, 1)
                for sync in (0, 1)
            },
        )


class Factorial(FamilyCase):
    def test_all_combinations_and_their_effects(self):
        result = self.run_to_file(SIM, of("Factorial"), "--benchmark_repetitions=2")
        self.assert_sound()
        for row in result["benchmarks"]:
            hidden = "two_streams/sync_every:0" in row["run_name"]
            if row["run_type"] == "iteration":
                self.assertAlmostEqual(row["real_time"], C if hidden else H + C, delta=CLOSE_MS)
        effects = self.folder / "effects.json"
        done = subprocess.run(
            [sys.executable, SOURCE / "scripts/effects.py", self.out, "--json", effects],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("SIMULATED", done.stdout)
        found = json.loads(effects.read_text())
        main = {entry["factor"]: entry["ms"] for entry in found["effects"]}
        both = {tuple(entry["factors"]): entry["ms"] for entry in found["interactions"]}
        # The profile's two copies cost the same, so that neither memory nor copy has an effect.
        expected = {"memory": 0, "copy": 0, "schedule": -H / 2, "sync_every": H / 2}
        for factor, ms in expected.items():
            self.assertAlmostEqual(main[factor], ms, delta=CLOSE_MS, msg=factor)
        for pair, ms in both.items():
            known = H / 2 if pair == ("schedule", "sync_every") else 0
            self.assertAlmostEqual(ms, known, delta=CLOSE_MS, msg=pair)


class Guard(FamilyCase):
    STEPS = 20
    ALL_STEPS = 10 + STEPS + 1
    # Those whose memory is used again: by the batch after the next, or one later if the next one is
    # fetched before the step is launched.
    BAD = {"two_streams": ALL_STEPS - 2, "prefetcher": ALL_STEPS - 3}
    BLOCKS = {"two_streams": 2, "prefetcher": 3}

    def test_none_has_bad_batches_and_the_others_have_none_at_the_same_rate(self):
        result = self.run_to_file(SIM, of("Guard"))
        self.assert_times(
            result,
            {
                f"Guard/{schedule}/{guard}{lag}": C + (50 if lag else 0)
                for lag in ("", "/lag_ms:50")
                for schedule in self.BAD
                for guard in ("none", "record", "slots")
            },
        )
        for name, row in rows_of(result).items():
            _, schedule, guard, *_ = name.split("/")
            none = guard == "none"
            self.assertEqual(row["bad_batches"], self.BAD[schedule] if none else 0, name)
            self.assertEqual("negative control" in row["label"], none, name)
            self.assertEqual(row["iterations"], self.STEPS)
            blocks = row["peak_device_GB"] * 1e9 / BATCH_BYTES
            if guard == "record":
                self.assertGreater(blocks, self.BLOCKS[schedule])
            else:
                self.assertAlmostEqual(blocks, self.BLOCKS[schedule] if none else 2)
        self.assert_sound()

    def test_bad_batches_fail_the_run_where_they_are_not_expected(self):
        done = bench(SIM, of("Guard"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        done = bench(SIM, "--benchmark_filter=Pipeline/direct$", "--guard=none")
        self.assertEqual(done.returncode, 1)
        warning = r"\Abench: Pipeline/direct: steps trained on batches [^\n]+\n\Z"
        self.assertRegex(done.stderr, warning)

    def test_a_control_without_anything_to_find_is_skipped(self):
        profile = json.loads((SOURCE / "results/h200-16c/profile.json").read_text())
        profile["pin"]["ms"] = 5000  # what a replayed batch costs its worker
        slow = self.folder / "slow.json"
        slow.write_text(json.dumps(profile))
        none = "--benchmark_filter=^Guard/.*/none"
        done = bench(f"--device=sim:{slow}", none, "--workers=1", "--benchmark_format=json")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual(
            {name: row["bad_batches"] for name, row in rows_of(result).items()},
            {"Guard/two_streams/none": 0, "Guard/prefetcher/none": 0},
        )
        self.assertEqual(len(result["skipped"]), 2)
        for row in result["skipped"]:
            self.assertIn("/none/lag_ms:50", row["name"])
            self.assertIn("the loader does not keep up", row["reason"])


if __name__ == "__main__":
    unittest.main()
