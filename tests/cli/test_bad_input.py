"""Bad input: one clear line on stderr, status 2, nothing written."""

import json
import os
import unittest

from program import SOURCE, Case, bench

PROFILE = {
    "name": "mine",
    "gpu": "a GPU",
    "source": "a test",
    "batch": 64,
    "image": 512,
    "cores": 4,
    "device_memory_GB": 10,
    **{
        key: {"ms": 1.0, "origin": "assumed", "scaling": "bytes"}
        for key in (
            "make",
            "handoff",
            "pin",
            "copy_pageable",
            "copy_pinned",
            "release_private",
            "release_shared",
            "launch",
            "compute",
            "check",
        )
    },
}


class BadInput(Case):
    def assert_refused(self, *args, says, out=True, **more):
        self.out.write_text("an older result")
        before = self.out.stat()
        if out:
            args += (f"--benchmark_out={self.out}",)
        done = bench(*args, **more)
        self.assertEqual(done.returncode, 2, done)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, r"\Abench: [^\n]+\n\Z")
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(text, done.stderr)
        self.assertEqual(self.out.read_text(), "an older result")
        self.assertEqual(self.out.stat().st_mtime_ns, before.st_mtime_ns)
        return done

    def assert_folder_untouched(self, *names):
        self.assertEqual(sorted(os.listdir(self.folder)), sorted([*names, self.out.name]))

    def test_numbers_that_are_none(self):
        for flag, value in (
            ("batch", "x"),
            ("batch", ""),
            ("image", "64x"),
            ("workers", "1.5"),
            ("steps", "1e3"),
            ("warmup", "0x10"),
            ("prefetch", " 4"),
            ("slots", "+4"),
            ("sync_every", "NaN"),
        ):
            with self.subTest(flag=flag, value=value):
                self.assert_refused(
                    "--device=sim", f"--{flag}={value}", says=[f"--{flag}=", "a whole number"]
                )
        self.assert_folder_untouched()

    def test_zero_negative_and_absurd_numbers(self):
        for flag in ("batch", "image", "workers", "steps"):
            for value in ("0", "-1", "99999999999999999999"):
                with self.subTest(flag=flag, value=value):
                    self.assert_refused(
                        "--device=sim", f"--{flag}={value}", says=f"--{flag}={value}: must be"
                    )

    def test_image_that_is_no_multiple_of_4(self):
        self.assert_refused("--device=sim", "--image=66", says="a multiple of 4")

    def test_value_that_is_missing(self):
        self.assert_refused(
            "--device=sim", "--benchmark_filter=null", "--batch", says="--batch", out=False
        )

    def test_unknown_names(self):
        self.assert_refused("--device=tpu", says=["tpu", "cpu", "sim", "auto"])
        self.assert_refused("--device=", says="--device=")
        self.assert_refused("--device=sim:nothing", says=["nothing", "l40s"])
        loaders = "inline, threads, processes or libtorch"
        self.assert_refused("--loader=magic", says=["magic", loaders])
        self.assert_refused("--schedule=serial,two", says="serial, two_streams or prefetcher")
        self.assert_refused("--window=long", says="steady or published")
        self.assert_refused("--trace=maybe", says="auto, on or off")
        self.assert_refused("--pop_first=perhaps", says="on or off")

    def test_unknown_flags_and_stray_arguments(self):
        self.assert_refused("--device=sim", "--bath=3", says="--bath")
        self.assert_refused("--device=sim", "--benchmark_filtre=null", says="--benchmark_filtre")
        self.assert_refused("--device=sim", "-batch=3", says="-batch")
        self.assert_refused("--device=sim", "null", says="null")

    def test_values_of_google_benchmarks_flags(self):
        self.assert_refused("--device=sim", "--benchmark_repetitions=0", says="repetitions")
        self.assert_refused("--device=sim", "--benchmark_repetitions=many", says="repetitions")
        self.assert_refused("--device=sim", "--benchmark_format=csv", says="console or json")
        self.assert_refused("--device=sim", "--benchmark_out_format=csv", says="json")
        self.assert_refused("--device=sim", "--benchmark_time_unit=h", says="ns, us, ms or s")
        self.assert_refused("--device=sim", "--benchmark_context=key", says="KEY=VALUE")
        self.assert_refused("--device=sim", "--benchmark_context=feedrate.x=1", says="feedrate.")

    def test_devices_that_do_not_exist(self):
        hidden = {"CUDA_VISIBLE_DEVICES": ""}
        for device in ("cuda", "cuda:0", "cuda:99", "cuda:x"):
            with self.subTest(device=device):
                done = bench(f"--device={device}", "--benchmark_filter=null", env=hidden)
                self.assertEqual(done.returncode, 2, done)
                self.assertEqual(done.stdout, "")
                self.assertRegex(done.stderr, r"\Abench: [^\n]+\n\Z")

    def test_profiles_that_are_none(self):
        bad = {
            "no_json.json": ("{", "JSON"),
            "lacks.json": (
                json.dumps({key: PROFILE[key] for key in PROFILE if key != "compute"}),
                "compute",
            ),
            "negative.json": (
                json.dumps(PROFILE | {"launch": PROFILE["launch"] | {"ms": -1}}),
                "launch",
            ),
        }
        for name, (text, says) in bad.items():
            with self.subTest(name):
                path = self.folder / name
                path.write_text(text)
                self.assert_refused(f"--device=sim:{path}", says=[name, says])
        self.assert_folder_untouched(*bad)

    def test_the_profile_that_these_are_made_from_is_good(self):
        path = self.folder / "good.json"
        path.write_text(json.dumps(PROFILE))
        done = bench(f"--device=sim:{path}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Pipeline/streams", done.stdout)

    def test_filter_that_matches_nothing_names_the_families(self):
        self.assert_refused(
            "--device=sim", "--benchmark_filter=nothing", says=["nothing", "Pipeline", "Compute"]
        )
        self.assert_refused("--device=sim", "--benchmark_filter=-.", says="matches no row")

    def test_filter_that_is_no_expression(self):
        self.assert_refused("--device=sim", "--benchmark_filter=(", says="regular expression")

    def test_flags_with_which_no_row_makes_sense(self):
        self.assert_refused(
            "--device=sim",
            "--benchmark_filter=Pipeline/baseline",
            "--memory=pinned",
            says=["no row of --benchmark_filter=Pipeline/baseline", "pageable"],
        )
        rows = "--benchmark_filter=Pipeline/(baseline|direct)"
        done = bench("--device=sim", rows, "--memory=pinned")
        self.assertEqual(done.returncode, 0, "one of them does")

    def test_bounds_of_a_sweep(self):
        for bounds in ("1:2:3", "8", "4:2", "0:2", ":", "1:", "x:2", ""):
            with self.subTest(bounds=bounds):
                self.assert_refused(
                    "--device=sim",
                    f"--sweep_workers={bounds}",
                    says=[f"--sweep_workers={bounds}:", "LEAST:MOST"],
                )

    def test_output_that_cannot_be_written(self):
        dangling = self.folder / "dangling.json"
        dangling.symlink_to(self.folder / "nothing")
        for path, says in {
            dangling: "a link to nothing",
            self.folder / "missing" / "result.json": "No such file",
            self.folder: "a directory",
            "/dev/null": "not a regular file",
            "/dev/full": "not a regular file",
            "": "--benchmark_out",
        }.items():
            with self.subTest(path=path):
                self.assert_refused("--device=sim", f"--benchmark_out={path}", says=says, out=False)
        self.assert_folder_untouched(dangling.name)
        self.assertFalse(os.path.isfile("/dev/null"))

    def test_two_outputs_of_one_name(self):
        for other in ("same.json", "./same.json", str(self.folder / "same.json")):
            with self.subTest(other=other):
                self.assert_refused(
                    "--device=sim",
                    "--benchmark_out=same.json",
                    f"--timeline={other}",
                    says=["same.json", "two of --benchmark_out"],
                    out=False,
                    cwd=self.folder,
                )
        self.assert_folder_untouched()

    def test_a_profile_that_is_read_is_not_overwritten(self):
        profile = self.folder / "mine.json"
        text = (SOURCE / "results/h200-16c/profile.json").read_text()
        profile.write_text(text)
        link = self.folder / "link.json"
        link.symlink_to(profile)
        for flag, path in (("benchmark_out", profile), ("timeline", profile), ("timeline", link)):
            with self.subTest(flag=flag, path=path):
                self.assert_refused(
                    f"--device=sim:{profile}",
                    f"--{flag}={path}",
                    says=["mine.json: cannot be written", "reads it"],
                    out=False,
                )
        self.assertEqual(profile.read_text(), text)

    def test_a_file_with_the_name_of_a_built_in_profile_is_any_file(self):
        file = self.folder / "l40s"
        file.write_text("older")
        row = "--benchmark_filter=Pipeline/null"
        done = bench("--device=sim:l40s", row, "--benchmark_out=l40s", cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("benchmarks", json.loads(file.read_text()))


if __name__ == "__main__":
    unittest.main()
