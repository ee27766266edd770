"""The report: what it says, what a browser thinks of it, and what a reader must find."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import example
import looking
import dashboard
import plots
import report
import results
import verdict

BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome", "google-chrome-stable")


def scene_of(file):
    with looking.folder_of(a=file) as folder:
        read, setups = plots.with_published([folder])
    return plots.Scene(read, setups[0])


def said(file):
    return verdict.sentences(scene_of(file))


def loops(**row_changes):
    """Only the ladder and the ceiling, with rows changed by name."""
    file = example.result(families=[example.pipeline_rows])
    rows = []
    for row in file["benchmarks"]:
        change = row_changes.get(row["name"].split("/")[1], {})
        if change is not None:
            rows.append(row | change)
    return file | {"benchmarks": rows}


class Verdict(unittest.TestCase):
    def test_model_gives_what_the_example_was_made_from(self):
        scene = scene_of(example.result())
        for name, (*_, step_ms) in example.RUNGS.items():
            self.assertAlmostEqual(
                verdict.predict(scene, name, name).ms, step_ms, places=6, msg=name
            )

    def test_model_on_the_recorded_simulation(self):
        scene = scene_of(looking.loaded("simulated"))
        for name in verdict.LADDER:
            rate = scene.value("Pipeline/" + name, "steps_per_s")
            self.assertAlmostEqual(1e3 / verdict.predict(scene, name, name).ms, rate, delta=0.01)

    def test_each_remedy_is_predicted_from_the_rung_before(self):
        scene = scene_of(looking.loaded("simulated"))
        entries = {entry.name: entry for entry in verdict.rungs(scene)}
        for name in ("baseline", "workers", "pinned"):
            entry = entries[name]
            self.assertAlmostEqual(entry.next_steps_per_s, entry.next_measured, delta=0.01)
        self.assertEqual(entries["workers"].next_name, "pinned")
        self.assertEqual(entries["direct"].next_name, "")
        self.assertIn("C + Hp + U", entries["baseline"].next_text)
        self.assertIn("Simulated: 4.81", entries["baseline"].next_text)

    def test_headline(self):
        kind, words = said(looking.loaded("simulated"))[0]
        self.assertEqual(kind, verdict.GOOD)
        for part in (
            "streams",
            "6.45 steps/s (simulated)",
            "1.88 times baseline",
            "100.0%",
            "Within 1% of it: prefetch, direct",
        ):
            self.assertIn(part, words)

    def test_without_a_ceiling(self):
        kind, words = said(loops(resnet18=None))[0]
        self.assertEqual(kind, verdict.NOTE)
        self.assertIn("The ceiling is not in the file", words)

    def test_far_from_the_ceiling(self):
        keep = {name: None for name in ("pinned", "streams", "prefetch", "direct")}
        told = said(loops(**keep))
        self.assertEqual(told[0][0], verdict.NOTE)
        self.assertIn("the order of the loop", told[0][1])
        # Without a row that shows what pinning costs, no figure is invented.
        self.assertTrue(any("no costs to say more" in words for _, words in told))

    def test_disagreement_is_loud(self):
        told = said(loops(direct={"steps_per_s": 10.0}))
        self.assertTrue(
            any(kind == verdict.BAD and "disagree on direct" in words for kind, words in told)
        )
        self.assertFalse(any("disagree" in words for _, words in said(loops())))

    def test_impossible_figures(self):
        told = said(loops(direct={"steps_per_s": 20.0, "of_limit": 1.2}))
        bad = [words for kind, words in told if kind == verdict.BAD]
        self.assertTrue(any("tightest bound" in words for words in bad))
        self.assertTrue(any("Faster than the ceiling" in words for words in bad))

    def test_integrity(self):
        told = said(loops(streams={"bad_batches": 3.0}))
        self.assertIn(
            (verdict.BAD, "Pipeline/streams: 3 bad batches. It trained on data that nobody made."),
            told,
        )
        file = example.result(families=[example.guard_rows])
        for row in file["benchmarks"]:
            row["bad_batches"] = 0.0
        blind = [words for kind, words in said(file) if kind == verdict.BAD]
        self.assertEqual(len(blind), 2)
        self.assertIn("the check may be blind", blind[0])

    def test_unsteady_rows_are_named(self):
        told = said(loops(pinned={"label": "limit: pin, unsteady"}))
        self.assertTrue(
            any("Unsteady" in words and "Pipeline/pinned" in words for _, words in told)
        )

    def test_other_families(self):
        words = " ".join(text for _, text in said(example.result()))
        for part in (
            "55.3 GB/s from pinned memory, 88%",
            "6.1 times slower",
            "waits for earlier work on its stream, whatever its size",
            "libtorch from 16 on",
            "Page-locking a buffer has paid after 4 uses",
            "hides under it: in one piece to 95.9% or more",
            "in chunks to 90.6% or more (least in 64)",
        ):
            self.assertIn(part, words)

    def test_an_async_copy_waits_by_its_size(self):
        file = example.result(families=[example.transfer_rows])
        rows = [r for r in file["benchmarks"] if r["name"].startswith("Copy/pageable/async/busy/")]
        most = "192 MiB"
        for waits, words in (
            (lambda size: 1.0, "waits for earlier work on its stream, whatever its size."),
            (lambda size: 0.0, "returns before earlier work on its stream is done, whatever"),
            (lambda size: float(size > 2**20), "returns at once up to 1 MiB, and waits for"),
            (lambda size: float(size > 2**20), "from 4 MiB on."),
            (lambda size: float(size < 2**20), "a share of the calls: 100% at 4 KiB"),
            (lambda size: 0.25, f"25% at {most}"),
        ):
            for row in rows:
                row["waits_for_stream"] = waits(int(row["name"].rpartition(":")[2]))
            told = [text for _, text in said(file) if "asynchronous copy" in text]
            self.assertEqual(len(told), 1)
            self.assertIn(words, told[0])

    def test_a_row_that_is_almost_the_best_is_not_called_the_best(self):
        told = said(loops(direct={"steps_per_s": 16.6}, streams={"steps_per_s": 16.55}))[0][1]
        self.assertIn("first row within 1% of the best, direct (16.60), is streams: 16.55", told)
        self.assertIn("The best row is direct", said(loops())[0][1])

    def test_page_locking_never_pays_after_no_use(self):
        file = example.result(families=[example.staging_rows])
        rows = [row for row in file["benchmarks"] if "reuses_to_pay" in row]
        for values, words in (
            ((4.13, 0.71, 0.35), "after 1 to 5 uses of it, by how it is locked (0.35 to 4.1 cop"),
            ((0.35, 0.71, 0.9), "after 1 use of it"),
            ((0.0, 0.0, 0.0), "after 1 use of it"),
        ):
            for row, value in zip(rows, values, strict=True):
                row["reuses_to_pay"] = value
            self.assertIn(words, " ".join(text for _, text in said(file)))

    def test_a_row_never_passes_its_bound_by_medians_taken_apart(self):
        """As of five rounds: medians of the rate, its bound and the share are of different ones."""
        file = loops()
        row = next(row for row in file["benchmarks"] if row["name"] == "Pipeline/streams")
        others = [one for one in file["benchmarks"] if one is not row]
        rates, bounds, shares = (14.9, 16.2, 16.7), (14.9, 15.9, 17.9), (1.0, 1.02, 0.93)
        file["benchmarks"] = others + [
            row
            | {"steps_per_s": rate, "limit_steps_per_s": bound, "of_limit": share}
            | {"repetition_index": number}
            for number, (rate, bound, share) in enumerate(zip(rates, bounds, shares, strict=True))
        ]
        scene = scene_of(file)
        value = {name: scene.value("Pipeline/streams", name) for name in
                 ("steps_per_s", "limit_steps_per_s", "of_limit")}
        self.assertEqual((value["steps_per_s"], value["of_limit"]), (16.2, 1.0))
        self.assertAlmostEqual(value["limit_steps_per_s"], 16.2)

    def test_what_was_measured_beyond_the_model_is_said_to_be(self):
        words = " ".join(text for _, text in said(loops(pinned={"pin_ms": 64.0})))
        self.assertIn("by the model nothing to gain", words)
        self.assertRegex(words, r"Measured: 16\.39 steps/s \(1\.04 times as many\), \+\d% beside")

    def test_rows_unknown_to_the_ladder(self):
        file = loops()
        file["benchmarks"].append(
            file["benchmarks"][5] | {"name": "Pipeline/new", "run_name": "Pipeline/new"}
        )
        names = [entry.name for entry in verdict.rungs(scene_of(file))]
        self.assertEqual(names, [*verdict.LADDER, "new"])


class Page(unittest.TestCase):
    def page_of(self, *paths):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "report.html")
            status, printed, err = looking.call(report.main, *paths, "-o", out)
            self.assertEqual(status, 0, err)
            with open(out, encoding="utf-8") as file:
                return file.read(), printed, err

    def test_every_recorded_file(self):
        page, _, err = self.page_of(
            looking.DATA + "/bench.json",
            looking.DATA + "/skipped.json",
            looking.DATA + "/google_benchmark.json",
            looking.DATA + "/interleaved.json",
        )
        self.assertIn("page-locked memory: use memory pinned", page)  # a skip's reason
        self.assertIn("no such device", page)  # an error's
        self.assertIn("PyTorch original", page)
        self.assertIn("580.159.04", page)  # the context
        self.assertIn("gave no result", err)

    def test_nothing_comes_from_elsewhere(self):
        page, *_ = self.page_of(looking.data("simulated"))
        links = re.findall(r'(?:src|href)="([^"]*)"', page)
        self.assertTrue(all(link.startswith(("#", "data:")) for link in links), links)
        rest = re.sub(r'(xmlns(:\w+)?="|SVG = "|meta )http[^"]*', "", page)
        self.assertEqual(re.findall(r".{20}http.{20}", rest), [])

    def test_what_files_say_is_text(self):
        file = example.result(families=[example.pipeline_rows])
        file["context"]["feedrate.cpu"] = "<script>alert(1)</script>"
        file["skipped"] = [{"name": "A/b", "reason": "</td><b>bold</b>"}]
        trace = example.trace(steps=3)
        trace["traceEvents"][-1]["name"] = "</script><script>alert(2)</script>"
        with looking.folder_of(a=file, t=trace) as folder:
            page, *_ = self.page_of(folder)
        self.assertEqual(re.findall("<script>alert.{9}|<b>bold", page), [])

    def test_bad_usage(self):
        for arguments in (
            ["none.json", "-o", "x.html"],
            [looking.data("bench")],
            [looking.data("bench"), "-o", "/no/such/folder/x.html"],
            [looking.data("truncated"), "-o", "x.html"],
        ):
            status, _, err = looking.call(report.main, *arguments)
            self.assertEqual((status, len(err.splitlines())), (2, 1), err)

    def test_a_file_that_is_read_is_not_written(self):
        with looking.folder_of(a=looking.loaded("simulated"), b=example.result()) as folder:
            file, link = (os.path.join(folder, name) for name in ("a.json", "link.html"))
            os.symlink(file, link)
            published = plots.published_file()[0]
            for read, out in ((file, file), (folder, file), (folder, link), (file, published)):
                for script in (report, dashboard):
                    if out == published and script == dashboard:
                        continue  # it does not read them
                    before = os.stat(out)
                    status, printed, err = looking.call(script.main, read, "-o", out)
                    self.assertEqual((status, printed, err.count("\n")), (2, "", 1), err)
                    self.assertIn("is read and would be lost", err)
                    self.assertEqual(os.stat(out), before)

    def test_no_rows(self):
        with looking.folder_of(a={"context": {}, "benchmarks": []}) as folder:
            status, _, err = looking.call(report.main, folder, "-o", folder + "/x.html")
        self.assertEqual(status, 2)
        self.assertIn("no rows", err)


# Runs in the page after its own script; what it finds goes into <pre id="found">.
CHECK = """
const found = {};
const text = (selector) => document.querySelector(selector)?.textContent ?? "";
const key = (place, name) => place.dispatchEvent(new KeyboardEvent("keydown",
  { key: name, bubbles: true, cancelable: true }));
found.title = document.title;
found.lang = document.documentElement.lang;
found.sections = [...document.querySelectorAll("main section")].map((one) => one.id);
const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
found.doubleIds = ids.filter((id, place) => ids.indexOf(id) !== place);
found.deadLinks = [...document.querySelectorAll("a")].map((one) => one.getAttribute("href"))
  .filter((link) => !document.querySelector(link));
const levels = [...document.querySelectorAll("h1, h2, h3, h4")].map((one) => +one.tagName[1]);
found.h1 = levels.filter((level) => level === 1).length;
found.jumps = levels.filter((level, place) => place && level > levels[place - 1] + 1).length;
found.unnamed = [...document.querySelectorAll("button, input, svg, [role=region], [tabindex]")]
  .filter((one) => !one.getAttribute("aria-label") && !one.textContent.trim())
  .filter((one) => !one.labels?.length)
  .map((one) => one.outerHTML.slice(0, 80));
found.fetched = performance.getEntriesByType("resource").map((one) => one.name);
found.wider = document.documentElement.scrollWidth > innerWidth;

// Contrast of every text against what is behind it.
const light = (color) => color.map((part) => part / 255)
  .map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
  .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
const parts = (color) => color.match(/[\\d.]+/g).map(Number);
found.faint = [];
for (const one of document.querySelectorAll("body *:not(svg *):not(script):not(style)")) {
  if (![...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
  let behind = one;
  while (behind && (parts(getComputedStyle(behind).backgroundColor)[3] ?? 1) === 0) {
    behind = behind.parentElement;
  }
  const [a, b] = [parts(getComputedStyle(one).color),
    behind ? parts(getComputedStyle(behind).backgroundColor) : [255, 255, 255]]
    .map((color) => light(color.slice(0, 3)));
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) found.faint.push([one.tagName, one.textContent.slice(0, 30), ratio]);
}

// Hover, and the keyboard's way to the same words.
const picture = document.querySelector("figure svg");
const mark = picture.querySelector(".mark");
mark.dispatchEvent(new PointerEvent("pointermove", { bubbles: true, clientX: 200, clientY: 200 }));
found.hover = document.getElementById("tip").hidden ? "" : text("#tip");
key(document.body, "Escape");
found.gone = document.getElementById("tip").hidden;
picture.focus();
found.focused = document.activeElement === picture;
key(picture, "ArrowRight");
key(picture, "ArrowRight");
found.spoken = text("#spoken");

// Sorting, up and down.
const table = document.querySelector("#family-0");
const heads = [...table.querySelectorAll("thead th")];
const column = heads.findIndex((one) => one.textContent === "steps_per_s");
const values = () => [...table.tBodies[0].rows].map((row) => row.cells[column].dataset.value)
  .filter((value) => value !== "").map(Number);
heads[column].querySelector("button").click();
found.up = [heads[column].getAttribute("aria-sort"), values()];
heads[column].querySelector("button").click();
found.down = [heads[column].getAttribute("aria-sort"), values()];
heads[0].querySelector("button").click();
found.names = [...table.tBodies[0].rows].map((row) => row.cells[0].textContent);

// Keeping rows.
const field = [...document.querySelectorAll("input[data-table]")].find((one) =>
  document.getElementById(one.dataset.table).caption.textContent.startsWith("H2D"));
field.value = "pinned/async";
field.dispatchEvent(new Event("input"));
const kept = [...document.getElementById(field.dataset.table).tBodies[0].rows]
  .filter((row) => !row.hidden);
found.kept = [kept.length, kept.every((row) => row.textContent.includes("pinned/async")),
  document.getElementById(field.dataset.count).textContent];

// The timeline.
const line = document.querySelector(".timeline");
const span = () => { const [a, b] = line.dataset.view.split(" ").map(Number); return b - a; };
found.ranges = line.querySelectorAll("rect.mark").length;
found.spans = [span()];
key(line, "+"); found.spans.push(span());
document.querySelector("button[data-action=all]").click(); found.spans.push(span());
found.allRanges = line.querySelectorAll("rect.mark").length;
key(line, "-"); found.spans.push(span());
line.querySelector("rect.mark").dispatchEvent(new PointerEvent("pointermove", { bubbles: true }));
found.rangeTip = text("#tip");
found.lanes = [...line.querySelectorAll("svg > text")].map((one) => one.textContent);

const out = document.createElement("pre");
out.id = "found";
out.textContent = JSON.stringify(found);
document.body.append(out);
"""


def browser():
    """The browser to test with. A snap sees no temporary folder, so it is none."""
    named = os.environ.get("FEEDRATE_BROWSER")
    found = filter(None, map(shutil.which, [named] if named else BROWSERS))
    return next((path for path in found if "/snap" not in os.path.realpath(path)), None)


NO_BROWSER = (
    "NO BROWSER WAS TRIED: no Chromium here. Install one (Debian: apt-get install chromium; "
    "elsewhere Google Chrome) or name one in FEEDRATE_BROWSER"
)
if not browser():
    print(f"test_report: {NO_BROWSER}", file=sys.stderr)


def visit(path):
    """Opens the page. Returns (what CHECK found, lines of the console)."""
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            [
                browser(),
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                f"--user-data-dir={home}",
                "--window-size=1280,900",
                "--enable-logging=stderr",
                "--virtual-time-budget=5000",
                "--dump-dom",
                "file://" + path,
            ],
            capture_output=True,
            text=True,
            timeout=240,
            env={**os.environ, "HOME": home},
        )
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.S)
    if not found:
        raise AssertionError(f"the page's check did not end: {console or done.stderr[-2000:]}")
    plain = found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return json.loads(plain), console


@unittest.skipUnless(browser(), NO_BROWSER)
class Browser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        files = {"a": example.result(), "b": example.result(True), "t": example.trace()}
        with looking.folder_of(**files) as folder:
            cls.path = os.path.join(folder, "report.html")
            status, _, err = looking.call(report.main, folder, "-o", cls.path)
            if status:
                raise AssertionError(err)
            cls.size = os.path.getsize(cls.path)
            with open(cls.path, encoding="utf-8") as file:
                cls.page = file.read()
            checked = os.path.join(folder, "checked.html")
            with open(checked, "w", encoding="utf-8") as file:
                file.write(cls.page.replace("</body>", f"<script>{CHECK}</script></body>"))
            cls.found, cls.console = visit(checked)

    def test_console_is_empty(self):
        self.assertEqual(self.console, [])
        self.assertEqual(self.found["fetched"], [])

    def test_an_error_would_be_seen(self):
        broken = "<script>setTimeout(() => { throw new Error('broken'); });</script>"
        broken += '<img src="http://127.0.0.1:9/x.png" alt="">'
        tail = '<script>const out = document.createElement("pre"); out.id = "found"; '
        tail += 'out.textContent = "{}"; document.body.append(out);</script></body>'
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "broken.html")
            with open(path, "w", encoding="utf-8") as file:
                file.write(self.page.replace("</body>", broken + tail))
            _, console = visit(path)
        self.assertTrue(any("broken" in line for line in console), console)
        self.assertTrue(any("Content Security Policy" in line for line in console), console)

    def test_basics(self):
        self.assertEqual(self.found["title"], "feedrate: Example GPU, 16 cores")
        self.assertEqual(self.found["lang"], "en")
        self.assertEqual(self.found["h1"], 1)
        for key in ("jumps", "doubleIds", "deadLinks", "unnamed", "faint", "wider"):
            self.assertFalse(self.found[key], (key, self.found[key]))
        self.assertLess(self.size, 6e6)

    def test_sections(self):
        self.assertEqual(
            self.found["sections"],
            ["verdict", "side", "plots", "timeline", "rows", "failures", "context"],
        )
        for words in (
            "The best row is direct",
            "next remedy is page-locked memory",
            "needs a CUDA device",
            "pcie_generation_max",
        ):
            self.assertIn(words, self.page)

    def test_hover_and_keyboard(self):
        self.assertRegex(self.found["hover"], r"^Pipeline/\w+: [\d.]+ steps/s measured")
        self.assertTrue(self.found["gone"])
        self.assertTrue(self.found["focused"])
        self.assertRegex(self.found["spoken"], r"^Pipeline/workers: ")

    def test_sorting(self):
        order, values = self.found["up"]
        self.assertEqual((order, values), ("ascending", sorted(values)))
        self.assertGreater(len(set(values)), 3)
        order, values = self.found["down"]
        self.assertEqual((order, values), ("descending", sorted(values, reverse=True)))
        self.assertEqual(self.found["names"], sorted(self.found["names"]))

    def test_keeping_rows(self):
        count, all_fit, words = self.found["kept"]
        self.assertTrue(all_fit)
        self.assertEqual(count, 2 * len(example.SIZES))
        self.assertTrue(words.startswith(f"{count} of "))

    def test_timeline(self):
        first, zoomed, whole, still_whole = self.found["spans"]
        self.assertAlmostEqual(zoomed, first / 2, delta=0.01)
        self.assertGreater(whole, 19 * example.C)
        self.assertEqual(still_whole, whole)  # there is no further out
        self.assertGreater(self.found["allRanges"], self.found["ranges"])
        self.assertEqual(self.found["allRanges"], 20 * 6)
        self.assertIn("(host): 0.000 to", self.found["rangeTip"])
        self.assertEqual(self.found["lanes"], ["host", "copy stream", "compute stream"])


class TimelineData(unittest.TestCase):
    def test_a_long_trace_keeps_its_middle(self):
        with looking.folder_of(t=example.trace(steps=5000)) as folder:
            (trace,) = results.read([folder]).traces
        kept = report.timeline_data(trace)
        self.assertLess(sum(len(lane["events"]) for lane in kept["lanes"]), report.TRACE_EVENTS)
        low, high = kept["view"]
        events = kept["lanes"][2]["events"]
        self.assertTrue(any(event[0] <= low for event in events))
        self.assertTrue(any(event[1] >= high for event in events))


if __name__ == "__main__":
    unittest.main()
