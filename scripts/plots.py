#!/usr/bin/env python3
"""Draws every plot for which the result files have data, as SVG and as PNG.

    scripts/look.sh plots RESULTS… -o FOLDER

RESULTS are result files, trace files (bench --timeline), or folders of them. A plot is drawn for
each set-up (a machine with its workers, window and revision). Marks and hatches carry what colours
carry. Each plot is one function that returns a figure, or None if there is nothing to draw.
"""

import io
import math
import os
import re
import sys

import common

try:
    import matplotlib
    import numpy
    import pandas

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker
    from matplotlib.patches import Patch
except ImportError as error:
    common.missing(error)

import results
import svg

# --- Names and looks ------------------------------------------------------------------------------

LADDER, NULL_ROW, BASELINE = "Pipeline", "Pipeline/null", "Pipeline/baseline"
CEILING = "Compute/resnet18"
TRANSFERS = {"H2D": "host to device", "D2H": "device to host"}
# Okabe-Ito: told apart by the colour-blind.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, RED, PURPLE, GREY = "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#8C8C8C"
# The parts of a step, in the published colours: compute green, copy yellow, fetch red.
SPLIT = (
    ("compute_ms", "computes", GREEN, ""),
    ("exposed_copy_ms", "waits for the copy", YELLOW, "//"),
    ("exposed_fetch_ms", "waits for the fetch", RED, "\\\\"),
    ("exposed_host_ms", "waits for the host", SKY, ".."),
    ("other_ms", "other", "#D0D0D0", "xx"),
)
SERIES = (
    *((BLUE, "o", "-"), (RED, "s", "--"), (GREEN, "^", "-."), (PURPLE, "D", ":")),
    *((ORANGE, "v", "-"), (SKY, "P", "--"), (BLACK, "X", "-."), (GREY, "*", ":")),
)
# What a range of the timeline is, by how its name begins; the first that fits. The first four have
# the published colours.
RANGES = (
    ("get batch", RED, "\\\\", "get batch"),
    ("copy batch", YELLOW, "//", "copy batch"),
    ("batch", BLUE, "", "batch"),
    ("compute", GREEN, "", "compute"),
    ("make", PURPLE, "..", "make batch"),
    ("pin", ORANGE, "xx", "pin"),
    ("launch", "#8FD3BE", "", "launch"),
    ("release", SKY, "--", "release"),
    ("wait", "#E4E4E4", "", "wait"),
)
DARK = (BLUE, GREEN, RED)
OTHER_RANGE = ("", "#BBBBBB", "", "other")
TIMELINE_STEPS = 4
# A trace of a whole run has a timeline for each of its rows: the ladder's are shown, or the first.
TIMELINES = 8
# Lanes of workers are alike: a plot shows a few of them, thinner than the others.
WORKER_LANE, WORKER_LANES, THIN = "worker", 4, 0.5
NO_TIME = "0 µs, drawn here: a log axis has no zero"
# An efficiency beyond this is seen in the plot, and needs a word.
OVER_ONE = 1.005
# README shows plots 800 pixels wide; the PNG has twice as many.
WIDTH, DPI = 8.0, 200
STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "sans-serif"],
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "feedrate",
    "figure.dpi": 100,
}
matplotlib.rcParams.update(STYLE)


class Scene:
    """What one set-up shows: its medians, its repetitions, and what stands beside it."""

    def __init__(self, everything, setup, table=None):
        table = results.medians(everything.rows) if table is None else table
        self.everything = everything
        self.setup = setup
        self.runs = everything.setups()[setup]
        self.simulated = self.runs[0].simulated
        self.machine = self.runs[0].machine
        self.table = table[table["setup"] == setup]
        self.repetitions = results.good(everything.rows)
        self.repetitions = self.repetitions[self.repetitions["setup"] == setup]
        self.all = table

    def family(self, name, *needed):
        """The family's rows that have all these counters."""
        rows = self.table[self.table["family"] == name]
        columns = {
            column: pandas.to_numeric(rows[column], errors="coerce") if column in rows else math.nan
            for column in needed
        }
        return rows.assign(**columns).dropna(subset=list(needed))

    def value(self, row, counter):
        """The median of a counter of a row, or None."""
        found = self.table[self.table["row"] == row]
        if found.empty or counter not in found or not math.isfinite(found[counter].iloc[0]):
            return None
        return float(found[counter].iloc[0])

    def spread_of(self, row, counter):
        """Lowest and highest repetition."""
        found = self.repetitions[self.repetitions["row"] == row][counter]
        return float(found.min()), float(found.max())

    def ceiling(self):
        return self.value(CEILING, "steps_per_s")

    def beside(self, implementation, simulated=False, same_machine=True):
        """Medians of other set-ups: the simulated machine, the original, the published figures."""
        rows = self.all[self.all["setup"] != self.setup]
        rows = rows[rows["implementation"] == implementation]
        rows = rows[rows["simulated"].astype(bool) == simulated]
        return rows[rows["machine"] == self.machine] if same_machine else rows


def figure(scene, title, height=4.2, columns=1, rows=1, **options):
    shown, axes = pyplot.subplots(
        rows, columns, figsize=(WIDTH, height), layout="constrained", squeeze=False, **options
    )
    shown.tips = svg.Tips()
    name = scene if isinstance(scene, str) else scene.setup
    shown.suptitle(f"{title}\n", x=0.01, ha="left", fontsize=12, fontweight="bold")
    shown.text(0.01, 1 - 0.36 / height, name, ha="left", va="center", fontsize=10, color="#444444")
    shown.description = f"{title}. {name}."
    return shown, axes


def below(shown, entries=None, columns=3):
    """The legend under the axes, where nothing can hide."""
    if entries is None:
        entries = {}
        # Bars first: they are what the marks are held against.
        bars = [bar for axes in shown.axes for bar in axes.containers]
        entries.update({bar.get_label(): bar for bar in bars if bar.get_label()[:1] != "_"})
        for axes in shown.axes:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                entries.setdefault(label, handle)
        entries = [(handle, label) for label, handle in entries.items()]
    if entries:
        handles, labels = zip(*entries, strict=True)
        shown.legend(
            handles, labels, loc="outside lower center", ncols=columns, fontsize=9, handlelength=3
        )


def bytes_axis(axes, sizes):
    axes.set_xscale("log", base=2)
    low, high = math.log2(min(sizes)), math.log2(max(sizes))
    step = 4 if high - low > 8 else 2
    ticks = numpy.arange(math.ceil(low / 2) * 2, high + 0.5, step)
    axes.xaxis.set_major_locator(ticker.FixedLocator([2**tick for tick in ticks]))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: common.bytes_text(value)))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.set_xlabel("size of a copy")


def log_rates(panels):
    """Log axes, shared by the panels, that span a decade even where values hardly differ."""
    low = min(axes.dataLim.minposy for axes in panels)
    high = max(axes.dataLim.y1 for axes in panels)
    for axes in panels:
        axes.set_yscale("log")
        if 0 < low <= high < 10 * low:
            axes.set_ylim(low / 3, high * 3)
            axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(ticker.NullFormatter())


def whole_axis(axis, values):
    """A log2 axis with a tick at each value that was measured."""
    axis.axes.set_xscale("log", base=2)
    axis.set_major_locator(ticker.FixedLocator(sorted(set(values))))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(ticker.NullLocator())


def line(axes, shown, x, y, look, label, unit, lowest=-math.inf, **options):
    """What lies below `lowest` is drawn there; the tips say how much it is."""
    color, marker, dash = look
    order = numpy.argsort(list(x))
    x, y = numpy.asarray(x, float)[order], numpy.asarray(y, float)[order]
    (artist,) = axes.plot(
        x,
        numpy.maximum(y, lowest),
        color=color,
        marker=marker,
        linestyle=dash,
        label=label,
        markersize=5,
        **options,
    )
    shown.tips.add(
        artist,
        *(
            f"{label}: {b:.4g} {unit} at {common.bytes_text(a) if a > 4000 else f'{a:g}'}"
            for a, b in zip(x, y, strict=True)
        ),
    )
    return artist


# --- The plots ------------------------------------------------------------------------------------


def rungs_of(scene, *needed):
    rows = scene.family(LADDER, "steps_per_s", *needed)
    return rows[rows["row"] != NULL_ROW]


def published_rates(scene, names):
    """The published figures, where the row has the same workload."""
    rows = scene.beside(results.PUBLISHED, same_machine=False)
    shapes = {(run.get("batch"), run.get("image")) for run in scene.runs}
    own = {
        (run.get("batch"), run.get("image"))
        for run in scene.everything.runs
        if run.implementation == results.PUBLISHED
    }
    if not shapes & own:
        return {}
    rates = dict(zip(rows["row"], rows["steps_per_s"], strict=True)) if len(rows) else {}
    return {name: rates[name] for name in names if name in rates}


def simulated_rates(scene, names):
    if scene.simulated:
        return {}
    rows = scene.beside(results.BENCH, simulated=True)
    if rows.empty:
        return {}
    # Of several simulations, the one with the same workers and window.
    runs = scene.everything.setups()
    own = scene.runs[0]
    for setup, group in rows.groupby("setup", sort=False):
        run = runs[setup][0]
        if all(run.get(key) == own.get(key) for key in ("workers", "window", "batch", "image")):
            rates = dict(zip(group["row"], group["steps_per_s"], strict=True))
            return {name: rates[name] for name in names if math.isfinite(rates.get(name, math.nan))}
    return {}


def original_rates(scene, names):
    rows = scene.beside(results.REFERENCE)
    runs = scene.everything.setups()
    for setup, group in rows.groupby("setup", sort=False):
        if runs[setup][0].file in {run.file for run in scene.runs}:
            rates = dict(zip(group["row"], group["steps_per_s"], strict=True))
            return {name: rates[name] for name in names if name in rates}
    return {}


def ladder(scene):
    """Steps a second, rung by rung: measured, predicted, published, and the ceiling."""
    rows = rungs_of(scene)
    if rows.empty:
        return None
    shown, ((axes,),) = figure(scene, "The ladder: training steps a second", 4.4)
    names = list(rows["row"])
    at = numpy.arange(len(names))
    word = "simulated" if scene.simulated else "measured"
    rates = list(rows["steps_per_s"])
    bars = axes.bar(at, rates, 0.62, color=SKY, edgecolor=BLUE, linewidth=0.8, label=word)
    ranges = [scene.spread_of(name, "steps_per_s") for name in names]
    limits = list(rows["limit"])
    for bar, name, rate, (low, high), limit in zip(bars, names, rates, ranges, limits, strict=True):
        several = f" ({low:.2f} to {high:.2f})" if high > low else ""
        bound = f", limit: {limit}" if limit else ""
        shown.tips.add(bar, f"{name}: {rate:.2f} steps/s {word}{several}{bound}")
    if any(high > low for low, high in ranges):
        errors = numpy.array(
            [[r - low, high - r] for r, (low, high) in zip(rates, ranges, strict=True)]
        ).T
        axes.errorbar(
            at,
            rates,
            numpy.maximum(errors, 0),
            fmt="none",
            ecolor=BLACK,
            capsize=4,
            linewidth=1,
            label="lowest and highest repetition",
        )
    marks = [
        ("published (L40S)", published_rates(scene, names), "D", ORANGE),
        ("PyTorch original, same run", original_rates(scene, names), "s", PURPLE),
        ("simulated from the profile", simulated_rates(scene, names), "^", GREEN),
        (
            "tightest bound of a stage",
            dict(zip(names, rows.get("limit_steps_per_s", []), strict=False)),
            "_",
            RED,
        ),
    ]
    top = max([*rates, scene.ceiling() or 0, *(high for _, high in ranges)])
    for label, values, marker, color in marks:
        spots = [(k, values.get(name, math.nan)) for k, name in enumerate(names)]
        spots = [(k, value) for k, value in spots if math.isfinite(value)]
        if label.startswith("tightest"):
            spots = [(k, value) for k, value in spots if value <= 1.6 * top]
        if not spots:
            continue
        x, y = zip(*spots, strict=True)
        dash = marker == "_"
        look = {"color": color, "marker": marker, "linewidths": 2.4 if dash else 0.7}
        look |= {} if dash else {"edgecolors": BLACK}
        artist = axes.scatter(x, y, 420 if dash else 44, zorder=4, **look)
        axes.scatter([], [], 160 if dash else 60, label=label, **look)
        shown.tips.add(artist, *(f"{names[k]}: {value:.2f} steps/s, {label}" for k, value in spots))
    if scene.ceiling():
        text = f"ceiling: {CEILING}, {scene.ceiling():.2f}"
        axes.axhline(scene.ceiling(), color=BLACK, linestyle=(0, (6, 3)), linewidth=1, label=text)
    short = [name.split("/", 1)[1] for name in names]
    axes.set_xticks(at, [f"{name}\n{rate:.2f}" for name, rate in zip(short, rates, strict=True)])
    if len(names) > 8:
        axes.tick_params(axis="x", labelrotation=35, labelsize=9)
    axes.set_ylabel("steps/s")
    axes.grid(axis="x", visible=False)
    below(shown)
    return shown


def split(scene):
    """Where a step's time goes: the parts add up to its wall time."""
    rows = rungs_of(scene, *(counter for counter, *_ in SPLIT))
    if rows.empty:
        return None
    height = 1.9 + 0.38 * len(rows)
    shown, ((axes,),) = figure(scene, "Where a step's time goes", height)
    left = numpy.zeros(len(rows))
    at = numpy.arange(len(rows))[::-1]
    total = sum(rows[counter] for counter, *_ in SPLIT)
    for counter, label, color, hatch in SPLIT:
        values = rows[counter].to_numpy()
        bars = axes.barh(
            at,
            values,
            0.66,
            left,
            color=color,
            hatch=hatch,
            label=label,
            edgecolor="#333333",
            linewidth=0.5,
        )
        for bar, name, value, whole in zip(bars, rows["row"], values, total, strict=True):
            share = value / whole if whole else 0
            shown.tips.add(bar, f"{name}: {counter} {value:.2f} ms, {share:.1%} of a step")
        left += values
    for y, end in zip(at, left, strict=True):
        axes.text(end, y, f" {end:.1f} ms", va="center", fontsize=9)
    axes.set_yticks(at, [name.split("/", 1)[1] for name in rows["row"]])
    axes.set_xlim(0, left.max() * 1.1)
    axes.set_xlabel("ms a step: the device …")
    axes.grid(axis="y", visible=False)
    below(shown, columns=5)
    return shown


def link_of(rows):
    """The link's rate, GB/s, from a row's rate and its share of the link."""
    if "of_link" not in rows:
        return None
    found = rows[rows["of_link"] > 0]
    return float((found["GBps"] / found["of_link"]).median()) if len(found) else None


def variants_of(rows, depth=1):
    """(first `depth` parts of the variant, rows), in the order of the file."""
    parts = rows["variant"].str.split("/").str[:depth].str.join("/")
    return list(rows.groupby(parts, sort=False))


def bandwidth(scene):
    """Copy rates by size, by the memory that the copy reads or writes."""
    families = [(f, scene.family(f, "GBps", "arg_bytes")) for f in TRANSFERS]
    families = [(family, rows) for family, rows in families if len(rows)]
    if not families:
        return None
    shown, (panels,) = figure(
        scene, "Bandwidth by size and memory", 4.8, len(families), sharey=True
    )
    memories = list(
        dict.fromkeys(memory for _, rows in families for memory, _ in variants_of(rows))
    )
    for axes, (family, rows) in zip(panels, families, strict=True):
        for memory, own in variants_of(rows):
            color, marker, _ = SERIES[memories.index(memory) % len(SERIES)]
            for mode, part in own.groupby(own["variant"].str.split("/").str[1].fillna("")):
                look = (color, marker, "-" if mode != "blocking" else ":")
                fill = {} if mode != "blocking" else {"markerfacecolor": "white"}
                label = f"{memory.replace('_', ' ')}, {mode}".strip(", ")
                line(
                    axes,
                    shown,
                    part["arg_bytes"],
                    part["GBps"],
                    look,
                    label,
                    "GB/s",
                    linewidth=1.3,
                    **fill,
                )
        link = link_of(rows)
        if link:
            axes.axhline(
                link,
                color=BLACK,
                linestyle=(0, (6, 3)),
                linewidth=1,
                label=f"the link: {link:.1f} GB/s",
            )
        bytes_axis(axes, rows["arg_bytes"])
        axes.set_title(TRANSFERS[family])
    log_rates(panels)
    panels[0].set_ylabel("GB/s (1e9 bytes)")
    below(shown)
    return shown


def copy_cost(scene):
    """What a copy costs the host: until the call returns, and until the data is there."""
    rows = scene.family("Copy", "return_us", "done_us", "arg_bytes")
    if rows.empty:
        return None
    parts = rows["variant"].str.split("/")
    rows = rows.assign(
        memory=parts.str[0], mode=parts.str[1].fillna(""), stream=parts.str[2].fillna("")
    )
    # Simulated, a call returns in no time, which a log axis has no place for.
    times = rows[["return_us", "done_us"]].to_numpy()
    lowest = times[times > 0].min() / 4 if (times > 0).any() else 1.0
    streams = list(dict.fromkeys(rows["stream"]))
    modes = list(dict.fromkeys(rows["mode"]))
    memories = list(dict.fromkeys(rows["memory"]))
    shown, grid = figure(
        scene,
        "What one copy costs the host",
        2.2 + 2.3 * len(modes),
        len(streams),
        len(modes),
        sharex=True,
        sharey=True,
    )
    for panels, mode in zip(grid, modes, strict=True):
        for axes, stream in zip(panels, streams, strict=True):
            here = rows[(rows["mode"] == mode) & (rows["stream"] == stream)]
            for memory, own in here.groupby("memory", sort=False):
                color, marker, _ = SERIES[memories.index(memory) % len(SERIES)]
                name = memory.replace("_", " ")
                line(
                    axes,
                    shown,
                    own["arg_bytes"],
                    own["return_us"],
                    (color, marker, "-"),
                    f"{name}: the call returns",
                    "µs",
                    lowest,
                    linewidth=1.4,
                )
                line(
                    axes,
                    shown,
                    own["arg_bytes"],
                    own["done_us"],
                    (color, marker, ":"),
                    f"{name}: the data is there",
                    "µs",
                    lowest,
                    linewidth=1.4,
                    markerfacecolor="white",
                )
            if (times <= 0).any():
                axes.axhline(lowest, color=GREY, linewidth=1, label=NO_TIME, zorder=1)
            axes.set_title(f"{mode}, the stream is {stream}")
            bytes_axis(axes, rows["arg_bytes"])
            axes.label_outer()
        panels[0].set_ylabel("µs")
    log_rates(list(grid.flat))
    below(shown, columns=2)
    return shown


def overlap(scene):
    """How much of the copy hides under compute, by how long it is against compute."""
    rows = scene.family("Overlap", "efficiency", "arg_ratio")
    if rows.empty:
        return None
    shown, ((axes,),) = figure(scene, "Overlap of copy and compute", 4.4)
    chunks = rows["arg_chunks"] if "arg_chunks" in rows else rows["efficiency"] * math.nan
    for number, (variant, own) in enumerate(rows[chunks.isna()].groupby("variant", sort=False)):
        look = SERIES[number % len(SERIES)]
        label = variant.replace("/", ", ").replace("_", " ")
        line(axes, shown, own["arg_ratio"], own["efficiency"], look, label, "efficiency")
    chunked = rows[chunks.notna()]
    if len(chunked):
        sizes = sorted(set(chunked["arg_chunks"]))
        for number, size in enumerate(sizes):
            own = chunked[chunked["arg_chunks"] == size]
            artist = axes.scatter(
                own["arg_ratio"],
                own["efficiency"],
                46,
                "white",
                marker="dhp8*"[number % 5],
                edgecolors=BLACK,
                zorder=5,
                label=f"in {size:g} chunk{'s' * (size != 1)}",
            )
            shown.tips.add(
                artist,
                *(f"{n}: {e:.3f}" for n, e in zip(own["row"], own["efficiency"], strict=True)),
            )
    # Inside, where no line should be.
    for value, text, side in (
        (1, "1: only the longer of the two", "top"),
        (0, "0: one after the other", "bottom"),
    ):
        axes.axhline(value, color=BLACK, linestyle=(0, (6, 3)), linewidth=0.9)
        axes.annotate(
            text,
            (1, value),
            (-2, 5 if side == "bottom" else -5),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            va=side,
            fontsize=9,
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(ticker.FixedLocator(sorted(set(rows["arg_ratio"]))))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    low = min(-0.08, rows["efficiency"].min() - 0.05)
    axes.set_ylim(low, max(1.12, rows["efficiency"].max() + 0.05))
    axes.set_xlabel("copy time : compute time")
    if rows["efficiency"].max() > OVER_ONE:
        axes.set_xlabel(
            "copy time : compute time\n"
            "Above 1: copy and compute alone are measured apart from both at once,\n"
            "and a per cent of the longer one is several of the shorter one."
        )
    axes.set_ylabel("efficiency")
    below(shown)
    return shown


def cores_line(axes, scene, workers):
    cores = scene.runs[0].cores()
    if min(workers) < cores <= max(workers):
        axes.axvline(cores, color=GREY, linestyle=":", linewidth=1.2)
        axes.annotate(
            f"{cores} cores ",
            (cores, 0),
            (0, 3),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="right",
            fontsize=9,
            color="#555555",
        )


def loader_looks(variants):
    """A colour for who makes the batches, a marker and a dash for where: threads_ring, say."""
    kinds = list(dict.fromkeys(variant.partition("_")[0] for variant in variants))
    places = list(dict.fromkeys(variant.partition("_")[2] for variant in variants))
    looks = {}
    for variant in variants:
        kind, _, place = variant.partition("_")
        _, marker, dash = SERIES[places.index(place) % len(SERIES)]
        looks[variant] = (SERIES[kinds.index(kind) % len(SERIES)][0], marker, dash)
    return looks


def loaders(scene):
    """Batches a second of each loader alone, by its workers, beside the ideal line."""
    rows = scene.family("Loader", "batches_per_s")
    if rows.empty:
        return None
    # The inline loader is the loop itself: one producer.
    own_workers = rows["arg_workers"] if "arg_workers" in rows else math.nan
    rows = rows.assign(arg_workers=own_workers).fillna({"arg_workers": 1})
    shown, ((axes,),) = figure(scene, "Loaders alone: batches a second", 5.0)
    looks = loader_looks(rows["variant"].unique())
    for variant, own in rows.groupby("variant", sort=False):
        label = variant.replace("/", ", ").replace("_", " ")
        line(
            axes,
            shown,
            own["arg_workers"],
            own["batches_per_s"],
            looks[variant],
            label,
            "batches/s",
        )
    first = rows.sort_values("arg_workers").groupby("variant").first()
    each = first["batches_per_s"] / first["arg_workers"]
    rate, fastest = each.max(), each.idxmax()
    workers = numpy.array(sorted(set(rows["arg_workers"])))
    within = workers[workers <= (scene.runs[0].cores() or workers.max())]
    axes.plot(
        within,
        rate * within,
        color=BLACK,
        linestyle=(0, (6, 3)),
        linewidth=1,
        label=f"ideal: W times one worker of {fastest.replace('_', ' ')}",
    )
    ceiling = scene.ceiling()
    low, high = rows["batches_per_s"].min(), rows["batches_per_s"].max()
    if ceiling and low / 4 < ceiling < high * 4:
        axes.axhline(
            ceiling, color=GREY, linewidth=1.2, label=f"what the step takes: {ceiling:.2f}"
        )
    whole_axis(axes.xaxis, workers)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    cores_line(axes, scene, workers)
    axes.set_xlabel("workers")
    axes.set_ylabel("batches/s")
    below(shown)
    return shown


def workers(scene):
    """The whole flow by workers, with what the workers can make and what the step can take."""
    rows = scene.family("Workers", "steps_per_s", "arg_workers")
    if rows.empty:
        return None
    shown, ((axes,),) = figure(scene, "The whole flow by workers", 4.6)
    counts = numpy.array(sorted(set(rows["arg_workers"])))
    top = rows["steps_per_s"].max()
    ceiling = scene.ceiling() or (
        1e3 / rows["step_ms"].median() if "step_ms" in rows and rows["step_ms"].median() else None
    )
    bounds = 0
    for number, (variant, own) in enumerate(rows.groupby("variant", sort=False)):
        look = SERIES[number % len(SERIES)]
        name = variant.replace("_", " ")
        line(axes, shown, own["arg_workers"], own["steps_per_s"], look, name, "steps/s")
        if "make_ms" not in own or not own["make_ms"].notna().any():
            continue
        # Its workers take different times: into fresh memory more than into what is there.
        fewest = own[own["arg_workers"] == own["arg_workers"].min()]["make_ms"].median()
        (bound,) = axes.plot(
            counts, counts * 1e3 / fewest, color=look[0], linestyle=(0, (1, 2)), linewidth=1
        )
        shown.tips.add(bound, f"{name}: W workers make W / F, F = {fewest:.4g} ms")
        bounds += 1
    if bounds:
        label = "W / F: what its workers make"
        axes.plot([], [], color=BLACK, linestyle=(0, (1, 2)), linewidth=1, label=label)
    if ceiling:
        axes.axhline(ceiling, color=GREY, linewidth=1.4, label=f"ceiling: {ceiling:.2f} steps/s")
    whole_axis(axes.xaxis, counts)
    axes.set_ylim(0, 1.15 * max(top, ceiling or 0))
    cores_line(axes, scene, counts)
    axes.set_xlabel("workers")
    axes.set_ylabel("steps/s")
    below(shown)
    return shown


def short(value):
    """For a cell of a map: four characters, three digits where they fit."""
    if value >= 9999.5:
        return f"{value / 1e3:.0f}k"
    return f"{value:.0f}" if value >= 99.95 else f"{value:.3g}"


def shapes_of(scene):
    """Rows of BatchSize and ImageSize of all runs of this machine, with their shape."""
    rows = scene.all
    rows = rows[rows["family"].isin(("BatchSize", "ImageSize"))]
    rows = rows[(rows["machine"] == scene.machine) & (rows["implementation"] == results.BENCH)]
    rows = rows[rows["simulated"].astype(bool) == scene.simulated]
    if rows.empty or "steps_per_s" not in rows or "compute_ms" not in rows:
        return rows.iloc[0:0]

    def member(name):
        own = rows["arg_" + name] if "arg_" + name in rows else rows["steps_per_s"] * math.nan
        return own.fillna(rows["spec_" + name]) if "spec_" + name in rows else own

    rows = rows.assign(batch=member("batch"), image=member("image"))
    return rows.dropna(subset=["batch", "image", "steps_per_s", "compute_ms"])


def shapes(scene):
    """Batch by image: which share of a step the device computes, and images a second.

    One sweep of each axis is a cross, no grid: what was not measured stays hatched.
    """
    rows = shapes_of(scene)
    if rows.empty or scene.setup != rows["setup"].iloc[0]:
        return None
    rungs = [
        (variant, own)
        for variant, own in rows.groupby("variant", sort=False)
        if own["batch"].nunique() > 1 and own["image"].nunique() > 1
    ]
    if not rungs:
        return None
    most = max(own["image"].nunique() for _, own in rungs)
    shown, (panels,) = figure(
        scene,
        "Batch by image size: images/s, and how busy the device is",
        2.2 + 0.55 * most,
        len(rungs),
        sharey=True,
    )
    for axes, (variant, own) in zip(panels, rungs, strict=True):
        across, up = sorted(set(own["batch"])), sorted(set(own["image"]))
        share = numpy.full((len(up), len(across)), math.nan)
        axes.set_facecolor("#F4F4F4")
        axes.add_patch(
            pyplot.Rectangle(
                (-0.5, -0.5),
                len(across),
                len(up),
                fill=False,
                hatch="//",
                edgecolor="#D0D0D0",
                linewidth=0,
                zorder=-1,
            )
        )
        cells = own.groupby(["image", "batch"])[["steps_per_s", "compute_ms"]].median()
        for (image, batch), cell in cells.iterrows():
            y, x = up.index(image), across.index(batch)
            busy = min(1.0, cell["compute_ms"] * cell["steps_per_s"] / 1e3)
            share[y, x] = busy
            text = axes.text(
                x,
                y,
                short(batch * cell["steps_per_s"]),
                ha="center",
                va="center",
                fontsize=8,
                color="black" if busy > 0.55 else "white",
            )
            shown.tips.add(
                text,
                f"batch {batch:g}, image {image:g}: "
                f"{batch * cell['steps_per_s']:.4g} images/s, computes {busy:.0%}",
            )
        picture = axes.imshow(share, cmap="cividis", vmin=0, vmax=1, aspect="auto", origin="lower")
        axes.set_xticks(range(len(across)), [f"{value:g}" for value in across])
        axes.set_yticks(range(len(up)), [f"{value:g}" for value in up])
        axes.set_title(variant.replace("_", " "))
        axes.set_xlabel("batch, images")
        axes.grid(visible=False)
        axes.label_outer()
    panels[0].set_ylabel("image, pixels a side")
    bar = shown.colorbar(picture, ax=panels, shrink=0.9)
    bar.ax.yaxis.set_major_formatter(ticker.PercentFormatter(1.0))
    bar.set_label("share of a step that computes")
    bar.outline.set_visible(False)
    if any(
        own.groupby(["image", "batch"]).ngroups < own["image"].nunique() * own["batch"].nunique()
        for _, own in rungs
    ):
        below(
            shown, [(Patch(facecolor="#F4F4F4", hatch="//", edgecolor="#D0D0D0"), "not measured")]
        )
    return shown


def look_of(name):
    for begin, color, hatch, word in RANGES:
        if name.lower().startswith(begin):
            return color, hatch, word
    return OTHER_RANGE[1:]


def depth_of(events):
    """How deep each range stands in the ones around it, for ranges sorted by their begin."""
    open_ends, depths = [], []
    for begin, end, *_ in events:
        while open_ends and open_ends[-1] <= begin + 1e-9:
            open_ends.pop()
        depths.append(len(open_ends))
        open_ends.append(end)
    return depths


def window_of(trace):
    """A few steps in the middle: from one compute's begin to a later one's end."""
    computes = [
        (begin, end)
        for _, events in trace.lanes
        for begin, end, name, _ in events
        if name.lower().startswith("compute")
    ]
    ends = [end for _, events in trace.lanes for _, end, *_ in events]
    if len(computes) <= TIMELINE_STEPS:
        return 0.0, max(ends)
    computes.sort()
    first = (len(computes) - TIMELINE_STEPS) // 2
    low, high = computes[first][0], computes[first + TIMELINE_STEPS - 1][1]
    margin = 0.12 * (high - low)
    return max(0.0, low - margin), high + margin / 3


def chosen_traces(traces):
    """The timelines to show, of possibly hundreds."""
    ladder_ones = [t for t in traces if t.title.startswith(LADDER + "/")]
    ladder_ones = [t for t in ladder_ones if not t.title.startswith(NULL_ROW)]
    return (ladder_ones or traces)[:TIMELINES]


def lanes_of(trace, low, high):
    """(name, events in the window, height), the workers' lanes last, and how many have events."""
    lanes, workers_ = [], []
    for name, events in trace.lanes:
        events = [event for event in events if event[1] > low and event[0] < high]
        if name.lower().startswith(WORKER_LANE):
            workers_ += [(name, events, THIN)] if events else []
        elif events:
            lanes.append((name, events, 1.0))
    return lanes + workers_[:WORKER_LANES], len(workers_)


def timeline(trace):
    """A few steps of a trace: host, copy and compute lanes as in a profiler's window."""
    low, high = window_of(trace)
    lanes, workers_ = lanes_of(trace, low, high)
    name = trace.title
    if trace.simulated and "simulated" not in name:
        name += ", simulated"
    if workers_ > WORKER_LANES:
        name += f"; {WORKER_LANES} of {workers_} workers"
    height = sum(height for *_, height in lanes)
    shown, ((axes,),) = figure(name, "A step's timeline", 1.7 + 0.62 * height)
    words, places, top = {}, [], 0.0
    pixel_ms = (high - low) / (WIDTH * 80)
    for _, events, height in lanes:
        depths = depth_of(events)
        part = 0.84 * height / (max(depths, default=0) + 1)
        for (begin, end, text, _), depth in zip(events, depths, strict=True):
            color, hatch, word = look_of(text)
            y = top - (depth + 0.5) * part
            left, right = max(begin, low), min(end, high)
            (bar,) = axes.barh(
                y,
                right - left,
                part * 0.96,
                left,
                color=color,
                hatch=hatch,
                edgecolor="#333333",
                linewidth=0.5,
            )
            shown.tips.add(bar, f"{text}: {begin:.2f} to {end:.2f} ms, {end - begin:.2f} ms")
            words.setdefault(word, Patch(facecolor=color, hatch=hatch, edgecolor="#333333"))
            if (right - left) / pixel_ms > 7 * len(text) + 6 and part > 0.3:
                ink = "white" if color in DARK else "black"
                box = {"facecolor": color, "edgecolor": "none", "pad": 1} if hatch else None
                axes.text(
                    (left + right) / 2,
                    y,
                    text,
                    ha="center",
                    va="center",
                    fontsize=8,
                    color=ink,
                    bbox=box,
                )
        places.append(top - 0.42 * height)
        top -= height
    axes.set_yticks(places, [lane for lane, *_ in lanes])
    axes.set_xlim(low, high)
    axes.set_ylim(top, 0.08)
    axes.set_xlabel("ms")
    axes.grid(axis="y", visible=False)
    below(shown, [(patch, word) for word, patch in words.items()], columns=5)
    return shown


# name, function of a Scene, what to say of it
PLOTS = (
    ("ladder", ladder, "Bars are medians; a queue that is full at first lifts a bar past a bound."),
    ("split", split, "The parts of a step's wall time, without a profiler."),
    ("bandwidth", bandwidth, "Filled: the host goes on; open: the host waits for the copy."),
    ("copy_cost", copy_cost, "Where both lines meet, the host waited for the data."),
    ("overlap", overlap, "1 at max(copy, compute), 0 at their sum."),
    ("loaders", loaders, "The loader alone: nothing is copied to the device."),
    ("workers", workers, "The flow follows W / F until another stage binds."),
    ("shapes", shapes, "In the cells: images a second."),
)


# --- Files ----------------------------------------------------------------------------------------


def slug(text):
    return re.sub(r"[^a-z0-9]+", "-", text.lower().replace("²", "")).strip("-")


def published_file():
    """The published figures, where this script stands in the repository."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = os.path.join(folder, "results", "l40s-g6e.2xlarge", "published.json")
    return [path] if os.path.exists(path) else []


def with_published(paths):
    """Reads the files, and the published figures beside them: (results, set-ups to show)."""
    read = results.read(paths)
    shown = list(read.setups())
    if not any(run.implementation == results.PUBLISHED for run in read.runs):
        names = {os.path.realpath(run.file) for run in read.runs}
        extra = [path for path in published_file() if os.path.realpath(path) not in names]
        if extra:
            notes = read.notes
            both = results.read([*paths, *extra])
            both.notes = notes
            return both, shown
    return read, shown


def has_plots(read, setup):
    """What is only compared with has no plots of its own."""
    run = read.setups()[setup][0]
    return run.implementation not in (results.REFERENCE, results.PUBLISHED)


def pictures(read, setups, table=None):
    """Yields (name, set-up, caption, figure) of all that can be drawn; closes each figure after."""
    table = results.medians(read.rows) if table is None else table
    for setup in setups:
        if not has_plots(read, setup):
            continue
        scene = Scene(read, setup, table)
        for name, function, caption in PLOTS:
            shown = function(scene)
            if shown is not None:
                yield name, setup, caption, shown
                pyplot.close(shown)


def timeline_pictures(read):
    """The same of the traces."""
    for trace in chosen_traces(read.traces):
        shown = timeline(trace)
        yield "timeline", trace.title, "A few steps from the middle of the trace.", shown
        pyplot.close(shown)


def main(arguments):
    parser = common.Parser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("results", nargs="+", metavar="RESULTS", help="result and trace files")
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help="made if missing")
    options = parser.parse_args(arguments)
    # Which plots there will be is not known yet, so that no picture there may be a file to read.
    inputs = [*options.results, *published_file()]
    for name in os.listdir(options.output) if os.path.isdir(options.output) else ():
        picture = os.path.join(options.output, name)
        if name.endswith((".svg", ".png")) and os.path.isfile(picture):
            common.check_writable(picture, inputs)
    read, setups = with_published(options.results)
    try:
        os.makedirs(options.output, exist_ok=True)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise common.UsageError(
            f"cannot write the folder '{options.output}': {error.strerror}"
        ) from None
    for note in read.notes:
        print(f"plots: {note}", file=sys.stderr)
    taken = set()
    own = [setup for setup in setups if has_plots(read, setup)]
    several_traces = len(chosen_traces(read.traces)) > 1
    groups = ((pictures(read, own), len(own) > 1), (timeline_pictures(read), several_traces))
    for group, several in groups:
        for name, setup, _, shown in group:
            stem = f"{name}-{slug(setup)}" if several else name
            while stem in taken:
                stem += "-2"
            path = os.path.join(options.output, stem)
            for end in (".svg", ".png"):
                common.check_writable(path + end)
            common.write_whole(path + ".svg", '<?xml version="1.0"?>\n' + svg.text_of(shown, stem))
            png = io.BytesIO()
            shown.savefig(png, format="png", dpi=DPI, metadata={"Software": None})
            common.write_whole(path + ".png", png.getvalue())
            print(f"{path}.svg, .png")
            taken.add(stem)
    if not taken:
        raise common.UsageError("nothing to draw: no row has the counters of a plot")
    return 0


if __name__ == "__main__":
    sys.exit(common.run(main, "plots"))
