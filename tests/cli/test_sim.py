"""Runs on the simulated device: rows, names, the result file, and what flags do."""

import os
import re
import resource
import unittest

from program import LADDER, LADDER_ROWS, PIPELINE, Case, bench, rows_of, strict_json

SPLIT = ("compute_ms", "exposed_copy_ms", "exposed_fetch_ms", "exposed_host_ms", "other_ms")
SIM = "--device=sim:l40s"
# What two runs of the program may differ in.
CPU_TIME = "cpu_time"


class Ladder(Case):
    def test_rows_are_the_floor_the_rungs_and_the_ceiling_in_order(self):
        result = self.run_to_file(SIM, LADDER_ROWS)
        self.assertEqual([row["name"] for row in result["benchmarks"]], LADDER)
        self.assertEqual(result["skipped"], [])
        self.assert_sound(*PIPELINE)

    def test_stock_fields_agree_with_our_counters(self):
        for name, row in rows_of(self.run_to_file(SIM, LADDER_ROWS)).items():
            self.assertEqual(row["run_name"], name)
            self.assertEqual(row["time_unit"], "ms")
            self.assertGreaterEqual(row["iterations"], 20)
            if name == "Pipeline/null":
                self.assertNotIn("bytes_per_second", row)
                continue
            self.assertAlmostEqual(row["real_time"] * row["steps_per_s"] / 1e3, 1)
            self.assertAlmostEqual(row["items_per_second"] / row["images_per_s"], 1)
            self.assertAlmostEqual(sum(row[part] for part in SPLIT) / row["real_time"], 1)
            if name.startswith("Pipeline/"):
                self.assertAlmostEqual(row["bytes_per_second"] * 1e-9 / row["feed_GBps"], 1)
            else:
                self.assertNotIn("bytes_per_second", row)

    def test_flags_reach_the_rows(self):
        rows = rows_of(self.run_to_file(SIM, LADDER_ROWS, "--window=published", "--steps=3"))
        self.assertEqual({row["iterations"] for row in rows.values()}, {3})
        # EXPERIMENTS: the published figures.
        for name, published in zip(PIPELINE[1:6], (2.97, 4.81, 5.91, 6.44, 6.44), strict=True):
            self.assertAlmostEqual(rows[name]["steps_per_s"] / published, 1, delta=0.02)

    def test_two_runs_give_the_same_counters(self):
        first, second = (rows_of(self.run_to_file(SIM, LADDER_ROWS)) for _ in range(2))
        for row in [*first.values(), *second.values()]:
            del row[CPU_TIME]
        self.assertEqual(first, second)

    def test_simulated_is_said_wherever_a_figure_is(self):
        done = bench(SIM, "--benchmark_filter=Pipeline/streams", f"--benchmark_out={self.out}")
        self.assertIn("SIMULATED", done.stdout.splitlines()[0])
        self.assertRegex(done.stdout, r"Pipeline/streams .* simulated\n")
        result = strict_json(self.out.read_text())
        self.assertEqual(result["context"]["feedrate.simulated"], "true")
        self.assertEqual(result["context"]["feedrate.device"], "sim:l40s")
        self.assertIn("simulated", result["benchmarks"][0]["label"])

    def test_auto_without_a_gpu_simulates_and_says_so(self):
        done = bench(
            "--benchmark_filter=Pipeline/null",
            f"--benchmark_out={self.out}",
            env={"CUDA_VISIBLE_DEVICES": ""},
        )
        self.assertEqual(done.returncode, 0)
        self.assertIn("SIMULATED", done.stderr)
        context = strict_json(self.out.read_text())["context"]
        self.assertIn("auto", context["feedrate.device_choice"])

    def test_specs_stand_beside_the_figures(self):
        specs = self.run_to_file(SIM, LADDER_ROWS, "--prefetch=3")["specs"]
        self.assertEqual(list(specs), sorted(LADDER))
        self.assertEqual(specs["Pipeline/streams"]["schedule"], "two_streams")
        self.assertEqual(specs["Pipeline/streams"]["workers"], 8)
        self.assertEqual(
            {spec["prefetch"] for name, spec in specs.items() if name in PIPELINE}, {3}
        )

    def test_row_keeps_what_its_name_says(self):
        specs = self.run_to_file(
            SIM, LADDER_ROWS, "--dataset=replay", "--step=null", "--loader=threads"
        )["specs"]
        self.assertEqual(specs["Pipeline/null"]["dataset"], "none")
        self.assertEqual(specs["Pipeline/baseline"]["dataset"], "replay")
        self.assertEqual(specs["Pipeline/baseline"]["step"], "null")
        self.assertEqual(specs["Compute/resnet18"]["step"], "resnet18")
        self.assertEqual(specs["Compute/resnet18"]["loader"], "inline")


class Factors(Case):
    """The families that measure one factor alone."""

    COUNTERS = {
        "Staging": ("steps_per_s", "h2d_GBps"),
        "H2D": ("GBps", "copy_us", "min_us", "spread", "of_pinned"),
        "D2H": ("GBps", "copy_us", "min_us", "spread", "of_pinned"),
        "Duplex": ("GBps", "of_alone", "spread"),
        "Copy": ("return_us", "done_us", "spread"),
        "Overlap": (
            "efficiency",
            "step_ms",
            "copy_ms",
            "compute_ms",
            "ratio_measured",
            "spread",
        ),
    }
    BATCH = 64 * 3 * 512 * 512 * 4

    def run_family(self, name, *args):
        result = self.run_to_file(SIM, f"--benchmark_filter={name}", *args)
        self.assert_sound()
        skipped = {row["name"]: row["reason"] for row in result["skipped"]}
        return rows_of(result), skipped

    def test_each_has_its_counters_and_its_name_matches_its_rows_alone(self):
        for family, counters in self.COUNTERS.items():
            rows, skipped = self.run_family(family)
            self.assertTrue(rows)
            for name in [*rows, *skipped]:
                self.assertTrue(name.startswith(f"{family}/"), name)
            for name, row in rows.items():
                for counter in counters:
                    self.assertIn(counter, row, name)
                self.assertIn("simulated", row["label"])

    def test_transfer_rows_are_every_kind_by_size_and_say_their_clock(self):
        sizes = [4**n for n in range(6, 15)] + [2 * 4**14]
        for family in ("H2D", "D2H"):
            rows, skipped = self.run_family(family)
            for kind in ("pageable", "pinned", "registered", "write_combined"):
                for mode in ("blocking", "async"):
                    for size in [*sizes, self.BATCH]:
                        name = f"{family}/{kind}/{mode}/bytes:{size}"
                        if kind in ("pageable", "pinned"):
                            row = rows[name]
                            self.assertAlmostEqual(
                                row["copy_us"], size * 15.5e3 / (self.BATCH + 512), delta=2e-3
                            )
                            self.assertAlmostEqual(
                                row["bytes_per_second"] * 1e-9 / row["GBps"], 1, places=6
                            )
                            events = kind == "pinned" and mode == "async"
                            clock = "events" if events else "wall"
                            self.assertIn(f"clock: {clock}", row["label"])
                        else:
                            self.assertIn(kind, skipped[name])
            for mode in ("blocking", "async"):
                peer = f"{family}/tensor_copy/{mode}/bytes:{self.BATCH}"
                self.assertIn("LibTorch", skipped[peer])
            self.assertEqual(len(rows) + len(skipped), 4 * 2 * 11 + 2)

    def test_flags_decide_which_batch_is_among_the_sizes(self):
        done = bench(
            SIM,
            "--benchmark_list_tests",
            "--benchmark_filter=H2D/pinned/async",
            "--batch=1",
            "--image=148",
        )
        names = done.stdout.split()
        self.assertEqual(len(names), 11)
        self.assertIn("H2D/pinned/async/bytes:262848", names)

    def test_both_directions_at_once_are_as_fast_as_each_alone(self):
        rows, _ = self.run_family("Duplex")
        self.assertEqual(len(rows), 6)
        for name, row in rows.items():
            self.assertAlmostEqual(row["of_alone"], 1, places=6)
            if "while" in name:
                self.assertAlmostEqual(row["other_GBps"] / row["GBps"], 1, places=6)
                self.assertNotIn("cached_GBps", row)  # a profile knows no cache

    def test_async_copies_of_pageable_memory_wait_for_the_stream(self):
        rows, _ = self.run_family("Copy/(pageable|pinned)")
        for name, row in rows.items():
            if "/busy/" in name:
                waits = "pageable" in name or "blocking" in name
                self.assertEqual(row["waits_for_stream"], 1 if waits else 0, name)
                self.assertGreaterEqual(row["busy_ms"], 5)
            else:
                self.assertNotIn("waits_for_stream", row)
            if "/pinned/async/" in name:
                self.assertEqual(row["return_us"], 0)

    def test_two_streams_hide_the_shorter_part_and_one_stream_nothing(self):
        rows, _ = self.run_family("Overlap")
        self.assertEqual(len(rows), 2 * 7 + 4 + 2 * 4)
        for name, row in rows.items():
            efficiency = 1 if "two_streams" in name else 0
            self.assertAlmostEqual(row["efficiency"], efficiency, places=3, msg=name)
            ratio = float(re.search(r"ratio:([\d.]+)", name)[1])
            self.assertAlmostEqual(row["ratio_measured"] / ratio, 1, places=3, msg=name)

    def test_what_a_simulated_device_has_no_cost_for_is_skipped_with_the_reason(self):
        rows, skipped = self.run_family("Staging")
        self.assertEqual(list(rows), ["Staging/feed/pin_thread", "Staging/feed/direct"])
        self.assertEqual(len(skipped), 5)
        for name, reason in skipped.items():
            self.assertIn("pages" if "lock" in name else "memory", reason)

    def test_rows_of_all_families_have_names_of_their_own(self):
        names = bench(SIM, "--benchmark_list_tests").stdout.split()
        self.assertEqual(len(names), len(set(names)))
        for name in names:
            self.assertTrue(name.isascii() and name.isprintable() and len(name) < 200, name)
        families = {name.split("/")[0] for name in names}
        self.assertLessEqual(set(self.COUNTERS), families)
        for family in families:
            for name in names:
                self.assertEqual(family in name, name.startswith(f"{family}/"), (family, name))

    def test_arguments_stand_beside_the_figures(self):
        specs = self.run_to_file(SIM, "--benchmark_filter=H2D/pinned/async/bytes:4096")["specs"]
        self.assertEqual(
            specs["H2D/pinned/async/bytes:4096"],
            {"memory": "pinned", "copy": "async", "bytes": "4096"},
        )


class Selection(Case):
    def names(self, *args, **more):
        done = bench(*args, "--benchmark_list_tests", **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_list_needs_no_device(self):
        self.assertEqual(self.names("--device=cuda:7", LADDER_ROWS), LADDER)

    def test_filter_is_an_extended_expression_over_clean_names(self):
        self.assertEqual(self.names("--benchmark_filter=Pipeline"), PIPELINE)
        self.assertEqual(
            self.names("--benchmark_filter=^Pipeline/.*s$"), PIPELINE[2:3] + PIPELINE[4:5]
        )
        self.assertEqual(
            self.names("--benchmark_filter=^Pipeline/(null|direct)$"),
            ["Pipeline/null", "Pipeline/direct"],
        )
        self.assertEqual(self.names("--benchmark_filter=t[1]8$"), ["Compute/resnet18"])
        others = self.names("--benchmark_filter=-Pipeline")
        self.assertIn("Compute/resnet18", others)
        self.assertEqual(sorted([*PIPELINE, *others]), sorted(self.names()))

    def test_empty_filter_and_all_are_all(self):
        everything = self.names()
        self.assertEqual(self.names("--benchmark_filter="), everything)
        self.assertEqual(self.names("--benchmark_filter=all"), everything)

    def test_last_of_several_wins(self):
        self.assertEqual(
            self.names("--benchmark_filter=Pipeline", "--benchmark_filter=Pipeline/null"),
            ["Pipeline/null"],
        )

    def test_dashes_and_separate_values(self):
        found = self.names("--benchmark-filter", "Pipeline/direct$")
        self.assertEqual(found, ["Pipeline/direct"])

    def test_environment_as_google_benchmark_has_it(self):
        found = self.names(env={"BENCHMARK_FILTER": "Pipeline/streams"})
        self.assertEqual(found, ["Pipeline/streams"])
        done = bench(SIM, "--benchmark_filter=null", env={"BENCHMARK_OUT": str(self.out)})
        self.assertEqual(done.returncode, 0)
        self.assertEqual(len(strict_json(self.out.read_text())["benchmarks"]), 1)

    def test_only_chosen_rows_run(self):
        result = self.run_to_file(SIM, "--benchmark_filter=Pipeline/(pinned|direct)$")
        self.assertEqual(list(rows_of(result)), ["Pipeline/pinned", "Pipeline/direct"])


class Help(Case):
    def test_help_names_every_flag_choice_and_counter(self):
        done = bench("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(bench("-h").stdout, done.stdout)
        result = self.run_to_file(SIM, "--benchmark_filter=Pipeline/pinned")
        counters = rows_of(result)["Pipeline/pinned"]
        stock = {
            "real_time",
            "cpu_time",
            "iterations",
            "threads",
            "repetitions",
            "repetition_index",
            "family_index",
            "per_family_instance_index",
            "items_per_second",
            "bytes_per_second",
        }
        names = [name for name, value in counters.items() if isinstance(value, float | int)]
        for name in set(names) - stock:
            self.assertRegex(done.stdout, rf"(?m)^ +{name} ")
        for flag in (
            "device",
            "batch",
            "image",
            "loader",
            "workers",
            "prefetch",
            "memory",
            "buffers",
            "pinning",
            "copy",
            "schedule",
            "guard",
            "lag_ms",
            "slots",
            "sync_every",
            "pop_first",
            "step",
            "warmup",
            "steps",
            "cooldown",
            "window",
            "capture",
            "trace",
            "sweep_workers",
            "sweep_batch",
            "sweep_image",
            "benchmark_filter",
            "benchmark_out",
            "benchmark_repetitions",
        ):
            self.assertRegex(done.stdout, rf"(?m)^  --{flag}\b")
        for choice in ("write_combined", "two_streams", "processes", "published", "auto"):
            self.assertRegex(done.stdout, rf"(?m)^ +{choice} ")

    def test_version(self):
        done = bench("--version")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"\Afeedrate \d+\.\d+\.\d+ \(.+\)\n\Z")


class ResultFile(Case):
    def test_json_on_stdout_is_the_result_file_and_nothing_else(self):
        done = bench(SIM, LADDER_ROWS, "--benchmark_format=json", f"--benchmark_out={self.out}")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stdout, self.out.read_text())
        self.assertEqual([*rows_of(strict_json(done.stdout))], LADDER)

    def test_context_names_program_machine_and_device(self):
        context = self.run_to_file(SIM, "--benchmark_filter=Pipeline/null", "--steps=7")["context"]
        for key in (
            "version",
            "git_revision",
            "build_type",
            "compiler",
            "command_line",
            "cpu",
            "cores",
            "cores_usable",
            "numa_nodes",
            "memory_GB",
            "kernel",
            "device",
            "simulated",
            "workers",
            "window",
            "steal_percent",
            "interrupted",
            "profile",
        ):
            self.assertTrue(context[f"feedrate.{key}"], key)
        self.assertIn("--steps=7", context["feedrate.command_line"])
        self.assertEqual(context["feedrate.interrupted"], "false")
        self.assertEqual(context["json_schema_version"], 1)

    def test_users_context_may_hold_anything(self):
        text = b'--benchmark_context=mine=\x01\xff"\\,date=never'
        done = bench(SIM, "--benchmark_filter=Pipeline/null", text, f"--benchmark_out={self.out}")
        self.assertEqual(done.returncode, 0, done.stderr)
        context = strict_json(self.out.read_bytes().decode("utf-8"))["context"]
        self.assertEqual(context["mine"], '\x01\ufffd"\\')
        self.assertNotEqual(context["date"], "never")

    def test_date_is_rfc_3339(self):
        context = self.run_to_file(SIM, "--benchmark_filter=Pipeline/null")["context"]
        self.assertRegex(context["date"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d$")

    def test_link_is_followed(self):
        target = self.folder / "target.json"
        target.write_text("an older result")
        link = self.folder / "link.json"
        link.symlink_to(target)
        done = bench(SIM, "--benchmark_filter=Pipeline/null", f"--benchmark_out={link}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(link.is_symlink())
        strict_json(target.read_text())

    def test_full_disk_keeps_the_old_file(self):
        self.out.write_text("an older result")

        def small_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

        done = bench(SIM, LADDER_ROWS, f"--benchmark_out={self.out}", preexec_fn=small_files)
        self.assertEqual(done.returncode, 1)
        self.assertIn("Pipeline/streams", done.stdout)
        self.assertRegex(
            done.stderr, r"\Abench: the rows ran, but [^\n]+ could not be written[^\n]+\n\Z"
        )
        self.assertEqual(self.out.read_text(), "an older result")
        self.assertEqual(os.listdir(self.folder), [self.out.name])

    def test_time_unit_is_the_users(self):
        streams = "--benchmark_filter=Pipeline/streams"
        row = self.run_to_file(SIM, streams, "--benchmark_time_unit=us")["benchmarks"][0]
        self.assertEqual(row["time_unit"], "us")
        self.assertAlmostEqual(row["real_time"], 155_000, delta=1)

    def test_flags_without_effect_say_so(self):
        done = bench(SIM, "--benchmark_filter=Pipeline/null", "--benchmark_min_time=2s")
        self.assertEqual(done.returncode, 0)
        self.assertIn("--benchmark_min_time has no effect", done.stderr)


class Repetitions(Case):
    def test_each_stands_alone_and_in_the_aggregates(self):
        for interleaving in ("false", "true"):
            rows = self.run_to_file(
                SIM,
                "--benchmark_filter=Pipeline/(baseline|streams)",
                "--benchmark_repetitions=3",
                f"--benchmark_enable_random_interleaving={interleaving}",
            )["benchmarks"]
            for name in ("Pipeline/baseline", "Pipeline/streams"):
                mine = [row for row in rows if row["run_name"] == name]
                self.assertEqual(
                    [row.get("repetition_index") for row in mine if row["name"] == name], [0, 1, 2]
                )
                means = [row for row in mine if row["name"] == f"{name}_mean"]
                self.assertEqual(len(means), 1)
                self.assertAlmostEqual(means[0]["steps_per_s"], mine[0]["steps_per_s"])
            self.assert_sound("Pipeline/baseline")

    def test_aggregates_only(self):
        args = (SIM, "--benchmark_filter=Pipeline/streams", "--benchmark_repetitions=2")
        done = bench(*args, "--benchmark_display_aggregates_only", f"--benchmark_out={self.out}")
        self.assertNotRegex(done.stdout, r"(?m)^Pipeline/streams ")
        self.assertRegex(done.stdout, r"(?m)^Pipeline/streams_median ")
        names = [row["name"] for row in strict_json(self.out.read_text())["benchmarks"]]
        self.assertEqual(names.count("Pipeline/streams"), 2)
        result = self.run_to_file(*args, "--benchmark_report_aggregates_only")
        self.assertTrue(all(row["run_type"] == "aggregate" for row in result["benchmarks"]))


class RowsThatCannotRun(Case):
    def test_combination_that_makes_no_sense_is_skipped_with_the_reason(self):
        done = bench(SIM, LADDER_ROWS, "--pinning=thread", f"--benchmark_out={self.out}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"Pipeline/baseline +skipped: .*page-locked")
        result = strict_json(self.out.read_text())
        skipped = {row["name"]: row["reason"] for row in result["skipped"]}
        self.assertEqual(list(skipped), ["Pipeline/null", "Pipeline/baseline", "Pipeline/workers"])
        self.assertIn("use memory pinned", skipped["Pipeline/baseline"])
        self.assertEqual(list(rows_of(result)), LADDER[3:])
        self.assert_sound()

    def test_nothing_left_to_run_is_no_error(self):
        row = "--benchmark_filter=Pipeline/workers"
        done = bench(SIM, row, "--loader=libtorch", f"--benchmark_out={self.out}")
        self.assertEqual(done.returncode, 0)
        self.assertIn("every row was skipped", done.stderr)
        result = strict_json(self.out.read_text())
        self.assertEqual(result["benchmarks"], [])
        self.assertEqual([row["name"] for row in result["skipped"]], ["Pipeline/workers"])

    def test_refused_memory_is_an_error_row_with_the_size_and_the_others_run(self):
        result = self.run_to_file(SIM, LADDER_ROWS, "--batch=20000", status=1)
        rows = rows_of(result)
        self.assertEqual(list(rows), LADDER)
        self.assertNotIn("error_occurred", rows["Pipeline/null"])
        size = 20000 * (3 * 512 * 512 * 4 + 8)
        # A batch of bytes is a quarter of that, and fits.
        self.assertNotIn("error_occurred", rows["Pipeline/direct_u8"])
        for name in PIPELINE[1:]:
            if name == "Pipeline/direct_u8":
                continue
            self.assertTrue(rows[name]["error_occurred"])
            self.assertIn(str(size), re.sub(r"[^\d]", "", rows[name]["error_message"]))
            self.assertEqual((rows[name]["real_time"], rows[name]["iterations"]), (0, 0))
        self.assert_sound()

    def test_failed_row_fails_in_every_repetition_and_has_no_aggregates(self):
        for flag in ("enable_random_interleaving", "report_aggregates_only"):
            result = self.run_to_file(
                SIM,
                "--batch=20000",
                "--benchmark_filter=Pipeline/(null|streams)",
                "--benchmark_repetitions=3",
                f"--benchmark_{flag}",
                status=1,
            )
            mine = [row for row in result["benchmarks"] if row["run_name"] == "Pipeline/streams"]
            self.assertEqual([row["error_occurred"] for row in mine], [True] * 3)
            self.assertEqual({row["run_type"] for row in mine}, {"iteration"})

    def test_error_shows_in_the_table(self):
        done = bench(SIM, "--batch=20000", "--benchmark_filter=Pipeline/streams")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"Pipeline/streams +ERROR: .*memory")


if __name__ == "__main__":
    unittest.main()
