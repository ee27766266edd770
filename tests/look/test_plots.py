"""The plots: each is drawn where there is data, says where it comes from, and nothing is cut."""

import itertools
import os
import resource
import shutil
import signal
import subprocess
import sys
import unittest
import xml.etree.ElementTree as ElementTree

from matplotlib.axis import Tick

import example
import looking
import common
import plots
import results
import svg

FAMILY_OF = {
    "ladder": "Pipeline",
    "split": "Pipeline",
    "bandwidth": "H2D",
    "copy_cost": "Copy",
    "overlap": "Overlap",
    "loaders": "Loader",
    "workers": "Workers",
    "shapes": "BatchSize",
}


def drawn(*files, traces=()):
    """{(plot, set-up): (texts, svg, figure's problems)} of these result files."""
    named = {f"r{k}": file for k, file in enumerate(files)}
    named |= {f"t{k}": trace for k, trace in enumerate(traces)}
    found = {}
    with looking.folder_of(**named) as folder:
        read, setups = plots.with_published([folder])
        pictures = itertools.chain(plots.pictures(read, setups), plots.timeline_pictures(read))
        for name, setup, _, shown in pictures:
            picture = svg.text_of(shown, name)
            texts = [
                "".join(t.itertext())
                for t in ElementTree.fromstring(picture).iter()
                if t.tag.endswith("}text")
            ]
            found[name, setup] = (texts, picture, list(problems_of(shown)))
    return found


def tips_of(picture):
    elements = ElementTree.fromstring(picture).iter()
    return [element.get("data-tip") for element in elements if element.get("data-tip")]


def problems_of(shown):
    """What a reader would see cut off or lying on something else."""
    shown.canvas.draw()
    renderer = shown.canvas.get_renderer()
    whole = shown.bbox
    texts = [
        t for t in shown.findobj(plots.pyplot.Text) if t.get_visible() and t.get_text().strip()
    ]
    # Ticks outside the limits are not drawn, but stand in the figure's tree.
    ticks = {id(label) for tick in shown.findobj(Tick) for label in (tick.label1, tick.label2)}
    for text in texts:
        if id(text) in ticks:
            continue
        box = text.get_window_extent(renderer)
        if box.x0 < whole.x0 - 1 or box.x1 > whole.x1 + 1 or box.y0 < -1 or box.y1 > whole.y1 + 1:
            yield f"{text.get_text()!r} is cut"
    for axes in shown.axes:
        for line in axes.lines:
            marked = line.get_marker() not in ("None", None, "")
            for x, y in line.get_xydata() if marked else ():
                (x0, x1), (y0, y1) = sorted(axes.get_xlim()), sorted(axes.get_ylim())
                if not (x0 <= x <= x1 and y0 <= y <= y1):
                    yield f"a mark of {line.get_label()!r} lies outside"
        words = [(t.get_window_extent(renderer), t.get_text()) for t in axes.texts]
        for place, (box, word) in enumerate(words):
            for other, another in words[place + 1 :]:
                if box.overlaps(other):
                    yield f"{word!r} and {another!r} overlap"
        for axis, side in ((axes.xaxis, 0), (axes.yaxis, 1)):
            boxes = [
                (t.label1.get_window_extent(renderer), t.label1.get_text())
                for t in axis.get_major_ticks()
                if t.label1.get_visible()
                and t.label1.get_text()
                and axes.bbox.padded(2).contains(*inside(axes, t, side))
            ]
            for (one, first), (two, second) in zip(boxes, boxes[1:], strict=False):
                if one.overlaps(two):
                    yield f"ticks {first!r} and {second!r} overlap"
            for box, word in boxes:
                if box.x0 < -1 or box.x1 > whole.x1 + 1 or box.y0 < -1:
                    yield f"tick {word!r} is cut"
        if shown.legends and axes.bbox.overlaps(shown.legends[0].get_window_extent(renderer)):
            yield "the legend lies on the axes"


def inside(axes, tick, side):
    at = axes.transData.transform(
        (tick.get_loc(), axes.get_ylim()[0]) if side == 0 else (axes.get_xlim()[0], tick.get_loc())
    )
    return at


class Drawing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.found = drawn(example.result(), example.result(True), traces=[example.trace()])

    def test_every_plot_is_there_once_a_setup(self):
        setups = {"Example GPU, 16 cores", "Example GPU, 16 cores, simulated"}
        expected = {(name, setup) for name in FAMILY_OF for setup in setups}
        expected.add(("timeline", "Pipeline/streams (simulated)"))
        self.assertEqual(set(self.found), expected)
        self.assertEqual({name for name, *_ in plots.PLOTS}, set(FAMILY_OF))

    def test_nothing_is_cut_and_nothing_overlaps(self):
        for key, (_, _, problems) in self.found.items():
            self.assertEqual(problems, [], key)

    def test_the_machine_and_simulated_are_in_the_title(self):
        for (name, setup), (texts, _, _) in self.found.items():
            self.assertIn(setup, texts, name)
            told = [t for t in texts if "simulated" in t and "profile" not in t]
            self.assertEqual(bool(told), "simulated" in setup, (name, setup))

    def test_axes_have_units(self):
        units = {
            "ladder": "steps/s",
            "split": "ms a step: the device …",
            "overlap": "efficiency",
            "bandwidth": "GB/s (1e9 bytes)",
            "copy_cost": "µs",
            "loaders": "batches/s",
            "workers": "steps/s",
            "shapes": "image, pixels a side",
            "timeline": "ms",
        }
        for (name, _), (texts, _, _) in self.found.items():
            self.assertIn(units[name], texts)

    def test_ladder_marks(self):
        texts = self.found["ladder", "Example GPU, 16 cores"][0]
        for word in (
            "measured",
            "published (L40S)",
            "simulated from the profile",
            "tightest bound of a stage",
            "ceiling: Compute/resnet18, 16.67",
        ):
            self.assertIn(word, texts)
        texts = self.found["ladder", "Example GPU, 16 cores, simulated"][0]
        self.assertNotIn("measured", texts)
        self.assertNotIn("simulated from the profile", texts)

    def test_marks_say_what_they_are(self):
        picture = self.found["ladder", "Example GPU, 16 cores"][1]
        tips = tips_of(picture)
        self.assertIn("Pipeline/pinned: 15.70 steps/s measured, limit: pin", tips)
        self.assertIn("Pipeline/streams: 6.44 steps/s, published (L40S)", tips)
        picture = self.found["bandwidth", "Example GPU, 16 cores"][1]
        tips = tips_of(picture)
        rows = [row for row in example.result()["benchmarks"] if row["name"][:3] in ("H2D", "D2H")]
        self.assertEqual(len(tips), len(rows))
        row = next(r for r in rows if r["name"] == "H2D/pinned/async/bytes:1048576")
        self.assertIn(f"pinned, async: {row['GBps']:.4g} GB/s at 1 MiB", tips)

    def test_split_shows_each_part(self):
        picture = self.found["split", "Example GPU, 16 cores"][1]
        self.assertIn("Pipeline/workers: exposed_copy_ms 38.00 ms, 29.0% of a step", picture)

    def test_pictures_share_no_ids(self):
        seen = set()
        for (name, setup), (_, picture, _) in self.found.items():
            if setup.endswith("simulated"):
                continue
            ids = {e.get("id") for e in ElementTree.fromstring(picture).iter() if e.get("id")}
            self.assertFalse(ids & seen, name)
            self.assertTrue(all(one.startswith(name) for one in ids))
            seen |= ids

    def test_the_ideal_says_whose_worker(self):
        texts = self.found["loaders", "Example GPU, 16 cores"][0]
        self.assertIn("ideal: W times one worker of in cache", texts)

    def test_no_time_at_all_is_drawn_and_said_to_be(self):
        note = plots.NO_TIME
        texts, picture, _ = self.found["copy_cost", "Example GPU, 16 cores"]
        self.assertNotIn(note, texts)
        file = example.result(True, families=[example.transfer_rows])
        for row in file["benchmarks"]:
            if row["name"].startswith("Copy/pinned/async"):
                row["return_us"] = 0.0
        found = {name: rest for (name, _), rest in drawn(file).items()}
        texts, picture, problems = found["copy_cost"]
        self.assertIn(note, texts)
        self.assertEqual(problems, [])
        self.assertIn("pinned: the call returns: 0 µs at 4 KiB", tips_of(picture))

    def test_an_efficiency_above_one_is_explained(self):
        texts = self.found["overlap", "Example GPU, 16 cores"][0]
        self.assertFalse([text for text in texts if "Above 1" in text])
        file = example.result(families=[example.overlap_rows])
        for row in file["benchmarks"]:
            if row["name"] == "Overlap/spin/two_streams/ratio:5":
                row["efficiency"] = 1.07
        ((texts, _, problems),) = drawn(file).values()
        self.assertTrue([text for text in texts if "Above 1" in text])
        self.assertEqual(problems, [])

    def test_unmeasured_shapes_are_said_to_be(self):
        self.assertIn("not measured", self.found["shapes", "Example GPU, 16 cores"][0])


class Absence(unittest.TestCase):
    def test_no_family_no_plot(self):
        whole = example.result()
        for name, family in FAMILY_OF.items():
            file = dict(whole)
            file["benchmarks"] = [
                row for row in whole["benchmarks"] if row["name"].split("/")[0] == family
            ]
            names = {plot for plot, _ in drawn(file)}
            if name == "shapes":
                self.assertNotIn("shapes", names)  # one axis alone is no map
            else:
                self.assertIn(name, names)
            self.assertLessEqual(names, {n for n, f in FAMILY_OF.items() if f == family})

    def test_shapes_of_several_runs_make_one_map(self):
        files = []
        for image in (256, 512):
            file = example.result(**{"feedrate.image": str(image)})
            file["benchmarks"] = [
                row for row in file["benchmarks"] if row["name"].startswith("BatchSize")
            ]
            files.append(file)
        found = drawn(*files)
        self.assertEqual([name for name, _ in found], ["shapes"])
        ((texts, _, problems),) = found.values()
        self.assertNotIn("not measured", texts)
        self.assertEqual(problems, [])

    def test_recorded_files(self):
        files = {name: looking.loaded(name) for name in ("interleaved", "simulated", "skipped")}
        with looking.folder_of(**files) as folder:
            read, setups = plots.with_published([folder])
            names = {(name, setup) for name, setup, *_ in plots.pictures(read, setups)}
        self.assertIn(("ladder", "NVIDIA H200, 16 cores"), names)
        # Other specs under the same names: another set-up.
        self.assertIn(("ladder", "NVIDIA L40S, 8 cores, simulated, skipped.json"), names)
        self.assertFalse([setup for _, setup in names if "original" in setup])

    def test_a_row_without_its_counters_is_left_out(self):
        file = example.result(families=[example.pipeline_rows])
        for row in file["benchmarks"]:
            for key in ("compute_ms", "limit_steps_per_s", "of_limit"):
                row.pop(key, None)
        names = {name for name, _ in drawn(file)}
        self.assertEqual(names, {"ladder"})

    def test_nothing_at_all(self):
        with looking.folder_of(a=looking.loaded("google_benchmark")) as folder:
            status, out, err = looking.call(plots.main, folder, "-o", folder)
        self.assertEqual((status, out), (2, ""))
        self.assertIn("nothing to draw", err)


class Files(unittest.TestCase):
    def test_files(self):
        file = example.result(families=[example.pipeline_rows])
        with looking.folder_of(a=file) as folder:
            out = os.path.join(folder, "new", "plots")
            status, printed, _ = looking.call(plots.main, folder, "-o", out)
            self.assertEqual(status, 0)
            self.assertEqual(
                sorted(os.listdir(out)), ["ladder.png", "ladder.svg", "split.png", "split.svg"]
            )
            self.assertEqual(len(printed.splitlines()), 2)
            with open(os.path.join(out, "ladder.png"), "rb") as png:
                head = png.read(24)
            self.assertEqual(int.from_bytes(head[16:20], "big"), 1600)  # twice the README's 800
            ElementTree.parse(os.path.join(out, "ladder.svg"))

    def test_several_setups_have_their_names(self):
        files = [example.result(s, families=[example.pipeline_rows]) for s in (False, True)]
        with looking.folder_of(a=files[0], b=files[1]) as folder:
            out = os.path.join(folder, "plots")
            looking.call(plots.main, folder, "-o", out)
            names = os.listdir(out)
        self.assertIn("ladder-example-gpu-16-cores.svg", names)
        self.assertIn("ladder-example-gpu-16-cores-simulated.png", names)

    def test_same_input_same_picture(self):
        file = example.result(families=[example.pipeline_rows])
        first, second = drawn(file), drawn(file)
        self.assertEqual({k: v[1] for k, v in first.items()}, {k: v[1] for k, v in second.items()})

    def test_a_picture_that_does_not_fit_leaves_nothing(self):
        with looking.folder_of(a=looking.loaded("simulated")) as folder:
            out = os.path.join(folder, "plots")
            done = script(
                "plots",
                os.path.join(folder, "a.json"),
                "-o",
                out,
                stdout=subprocess.PIPE,
                # The first SVG fits, its PNG does not.
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (60000, 60000)),
            )
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertRegex(done.stderr, r"\Aplots: cannot write '.*ladder\.png': [^\n]+\n\Z")
            self.assertEqual(os.listdir(out), ["ladder.svg"])

    def test_a_file_that_is_read_is_not_written(self):
        with looking.folder_of(a=looking.loaded("simulated")) as folder:
            read = os.path.join(folder, "ladder.svg")
            link = os.path.join(folder, "out", "split.png")
            shutil.move(os.path.join(folder, "a.json"), read)
            os.mkdir(os.path.dirname(link))
            os.symlink(read, link)
            for out in (folder, os.path.dirname(link)):
                status, printed, err = looking.call(plots.main, read, "-o", out)
                self.assertEqual((status, printed, err.count("\n")), (2, "", 1), err)
                self.assertIn("is read and would be lost", err)
            self.assertEqual(sorted(os.listdir(folder)), ["ladder.svg", "out"])

    def test_bad_usage(self):
        for arguments in (
            [],
            ["x.json"],
            ["none.json", "-o", "/tmp"],
            [looking.data("bench"), "-o", looking.data("bench")],
        ):
            status, _, err = looking.call(plots.main, *arguments)
            self.assertEqual(status, 2, arguments)
            self.assertEqual(len(err.splitlines()), 1, err)


class Timeline(unittest.TestCase):
    def test_depths(self):
        events = [(0, 10, "a"), (1, 3, "b"), (3, 5, "c"), (4, 5, "d"), (10, 12, "e")]
        self.assertEqual(plots.depth_of(events), [0, 1, 1, 2, 0])

    def test_window_is_the_middle(self):
        with looking.folder_of(t=example.trace(steps=20)) as folder:
            (trace,) = results.read([folder]).traces
        low, high = plots.window_of(trace)
        self.assertLess(3.9 * example.C, high - low)
        self.assertLess(high - low, 5 * example.C)
        self.assertGreater(low, 5 * example.C)

    def test_looks(self):
        words = {
            "batch 3": "batch",
            "get batch": "get batch",
            "copy batch": "copy batch",
            "compute": "compute",
            "munmap": "other",
        }
        self.assertEqual({name: plots.look_of(name)[2] for name in words}, words)


SCRIPTS = (
    *("report", "plots", "compare", "dashboard", "effects", "make_profile", "check_result"),
    *("nsys_compare", "interleave", "reference"),
)


def script(name, *arguments, **options):
    """Runs it as a shell does."""
    return subprocess.run(
        [sys.executable, os.path.join(looking.SCRIPTS, name + ".py"), *arguments],
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


class Usage(unittest.TestCase):
    def test_every_script_says_that_its_output_is_full(self):
        for name in SCRIPTS:
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = script(name, "--help", stdout=full)
            self.assertEqual(done.returncode, 3, name)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn("cannot write the output: No space left on device", done.stderr)

    def test_without_its_libraries_a_script_says_who_brings_them(self):
        for library in ("pandas", "numpy", "scipy", "matplotlib"):
            with looking.folder_of() as folder:
                with open(os.path.join(folder, library + ".py"), "w", encoding="utf-8") as file:
                    file.write(f"raise ModuleNotFoundError(\"No module named '{library}'\")")
                for name in ("report", "plots", "compare", "dashboard"):
                    if name == "dashboard" and library in ("scipy", "matplotlib"):
                        continue
                    if library == "scipy" and name != "compare":
                        continue
                    if library == "matplotlib" and name == "compare":
                        continue
                    path = {**os.environ, "PYTHONPATH": folder}
                    done = script(name, "x.json", stdout=subprocess.PIPE, env=path)
                    self.assertEqual((done.returncode, done.stdout), (2, ""), name)
                    self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                    self.assertIn(f"scripts/look.sh {name}", done.stderr)

    def test_an_interrupt_while_libraries_load_is_one_line(self):
        with looking.folder_of() as folder:
            with open(os.path.join(folder, "pandas.py"), "w", encoding="utf-8") as file:
                file.write("raise KeyboardInterrupt")
            path = {**os.environ, "PYTHONPATH": folder}
            for name in ("report", "plots", "compare", "dashboard"):
                done = script(name, "x.json", stdout=subprocess.PIPE, env=path)
                # A shell says 130 of it.
                ended = (done.returncode, done.stdout, done.stderr)
                self.assertEqual(ended, (-signal.SIGINT, "", f"{name}: interrupted\n"))

    def test_an_interrupt_is_one_line(self):
        def interrupted(arguments):
            os.kill(os.getpid(), number)
            signal.pause()

        for number, words in (
            (signal.SIGINT, "interrupted"),
            (signal.SIGTERM, "interrupted by SIGTERM"),
            (signal.SIGHUP, "interrupted by SIGHUP"),
        ):
            # Whatever started the tests may have ignored it, and it would stay so.
            usual = signal.signal(number, signal.SIG_DFL)
            self.addCleanup(signal.signal, number, usual)
            ended = looking.call(interrupted)
            self.assertEqual(ended, (128 + number, "", f"script: {words}\n"))
            self.assertEqual(signal.getsignal(number), signal.SIG_DFL)

    def test_bytes(self):
        self.assertEqual(common.bytes_text(4096), "4 KiB")
        self.assertEqual(common.bytes_text(201326592), "192 MiB")
        self.assertEqual(common.bytes_text(100), "100 B")

    def test_common_run(self):
        def wrong(arguments):
            raise common.UsageError("so it is")

        self.assertEqual(looking.call(wrong), (2, "", "script: so it is\n"))


if __name__ == "__main__":
    unittest.main()
