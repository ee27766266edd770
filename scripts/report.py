#!/usr/bin/env python3
"""Makes one self-contained page from result files: what ran where, what binds, what would help.

    scripts/look.sh report RESULTS… -o report.html

RESULTS are result files, trace files (bench --timeline), or folders of them; of one machine or of
many, which then stand side by side. The page loads nothing: it can be mailed and archived.
"""

import html
import json
import math
import os
import sys

import common
import counters
import plots
import results
import svg
import verdict

LANE_PX = 46
TRACE_EVENTS = 20000  # more make the page slow; the middle is kept
WORDS = {verdict.GOOD: "good", verdict.BAD: "problem", verdict.NOTE: "note"}
# Of a row's columns, those that a table of its family shows beside the counters.
SHOWN = ("limit", "clock")
REMARKS = ("unsteady", "negative_control", "simulated")


def text(value):
    return html.escape(str(value))


def number(value):
    if value is None or not math.isfinite(value):
        return ""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value)}"
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


def cell(value):
    """An argument: a text, a number, or nothing."""
    return value if isinstance(value, str) else math.nan if value is None else float(value)


def here(path):
    """The path as a reader may know it: nothing of the folders above."""
    return (
        os.path.relpath(path)
        if not os.path.relpath(path).startswith("..")
        else (
            os.path.join(
                os.path.basename(os.path.dirname(os.path.abspath(path))), os.path.basename(path)
            )
        )
    )


def with_simulated(words):
    """The word stands out wherever it stands."""
    return text(words).replace("simulated", '<span class="simulated">simulated</span>')


# --- Tables ---------------------------------------------------------------------------------------


def table(key, caption, heads, rows, sortable=True, searched=False, wraps=False):
    """heads are (name, explanation); a row is a list of texts and numbers."""
    parts = []
    if searched:
        parts.append(
            f'<div class="tools"><label>Keep rows with <input type="search" data-table="{key}" '
            f'data-count="{key}-count"></label> <span id="{key}-count" class="soft" role="status">'
            f"{len(rows)} rows</span></div>"
        )
    parts.append(
        f'<div class="wide" tabindex="0" role="region" aria-label="{text(caption)}">'
        f'<table id="{key}" class="{"sortable" * sortable} {"wraps" * wraps}">'
        f"<caption>{text(caption)}</caption><thead><tr>"
    )
    for name, explanation in heads:
        title = f' title="{text(explanation)}"' if explanation else ""
        inner = f"<button{title}>{text(name)}</button>" if sortable else text(name)
        parts.append(f'<th scope="col">{inner}</th>')
    parts.append("</tr></thead><tbody>")
    for row in rows:
        parts.append("<tr>")
        for place, value in enumerate(row):
            if place == 0:
                parts.append(f'<th scope="row">{with_simulated(value)}</th>')
            elif isinstance(value, (int, float)):
                shown = number(value)
                parts.append(
                    f'<td class="number" data-value="{value if shown else ""}">{shown}</td>'
                )
            else:
                parts.append(f'<td class="text">{with_simulated(value)}</td>')
        parts.append("</tr>")
    parts.append("</tbody></table></div>")
    return "".join(parts)


def side_by_side(read, setups, medians):
    """steps/s of every row of the ladder, a column a set-up."""
    rows = medians[medians["family"].isin(("Pipeline", "Compute"))]
    if "steps_per_s" not in rows or rows.empty:
        return ""
    rows = rows[(rows["row"] != plots.NULL_ROW) & rows["setup"].isin(setups)]
    wide = rows.pivot(index="row", columns="setup", values="steps_per_s")
    order = list(dict.fromkeys(rows["row"]))
    columns = [setup for setup in setups if setup in wide.columns]
    if len(columns) < 2:
        return ""
    lines = [[row, *(float(wide.loc[row, setup]) for setup in columns)] for row in order]
    return section(
        "side",
        "Side by side",
        table(
            "side-table",
            "Training steps a second, medians",
            [("row", "")] + [(setup, "") for setup in columns],
            lines,
        ),
    )


def families(medians, setups):
    """One sortable table a family: medians, the repetitions behind them, and every counter."""
    found = medians[medians["setup"].isin(setups)]
    parts = []
    for number_of, (family, rows) in enumerate(found.groupby("family", sort=False)):
        several = rows["setup"].nunique() > 1
        arguments = results.arguments_of(rows)
        shown = counters.in_order(results.counters_of(rows))
        texts = [name for name in SHOWN if (rows[name] != "").any()]
        heads = [("row", "")]
        heads += [("machine", "the set-up it ran on")] if several else []
        heads += [(name[4:], "argument of the row") for name in arguments]
        heads += [("runs", "repetitions behind the median")]
        heads += [(name, counters.meaning(name)) for name in shown]
        heads += [(name, "from the row's label") for name in texts]
        heads += [("remarks", "from the row's label")]
        lines = []
        for _, row in rows.iterrows():
            remarks = [name.replace("_", " ") for name in REMARKS if row[name]]
            lines.append(
                [
                    row["row"],
                    *([row["setup"]] if several else []),
                    *(cell(row[name]) for name in arguments),
                    int(row["runs"]),
                    *(float(row[name]) for name in shown),
                    *(row[name] for name in texts),
                    ", ".join(remarks),
                ]
            )
        caption = f"{family}: {len(rows)} rows, medians of their repetitions"
        parts.append(f"<h3>{text(family)}</h3>")
        parts.append(table(f"family-{number_of}", caption, heads, lines, searched=len(lines) > 12))
    return section("rows", "All rows", "".join(parts))


def failures(read):
    """Every skip and error, each reason once with its rows."""
    rows = read.rows
    bad = rows[(rows["error"] != "") | (rows["skipped"] != "")]
    lines = {}
    for _, row in bad.iterrows():
        kind = "failed" if row["error"] else "skipped"
        key = (row["row"], kind, row["error"] or row["skipped"], row["setup"])
        lines[key] = lines.get(key, 0) + 1
    if not lines:
        return section("failures", "Skipped and failed", "<p>No row was skipped, none failed.</p>")
    reasons = {}
    for (_, kind, reason, _), times in lines.items():
        reasons[kind, reason] = reasons.get((kind, reason), 0) + times
    listed = "".join(
        f"<li>{count} {kind}: {with_simulated(reason)}</li>"
        for (kind, reason), count in sorted(reasons.items(), key=lambda item: -item[1])
    )
    heads = [(name, "") for name in ("row", "what", "reason", "machine", "times")]
    caption = f"{len(lines)} rows without figures"
    cells = [[*key, times] for key, times in lines.items()]
    body = table("failures-table", caption, heads, cells, searched=len(lines) > 12)
    return section("failures", "Skipped and failed", f"<ul>{listed}</ul>{body}")


def context_text(value):
    if isinstance(value, str):
        return value
    return json.dumps(value)


def context(read):
    setups = read.setups()
    keys = list(dict.fromkeys(key for run in read.runs for key in run.context))
    lines = []
    for key in keys:
        cells = []
        for runs in setups.values():
            values = dict.fromkeys(
                context_text(run.context[key]) for run in runs if key in run.context
            )
            cells.append("; ".join(values))
        lines.append([key.removeprefix("feedrate."), *cells])
    files = ["files"]
    for runs in setups.values():
        files.append("; ".join(dict.fromkeys(here(run.file) for run in runs)))
    heads = [("what", ""), *((setup, "") for setup in setups)]
    body = table(
        "context-table", "The whole context of each set-up", heads, [files, *lines], sortable=False
    )
    if read.notes:
        body += "<h3>Notes on the files</h3><ul>"
        body += "".join(f"<li>{text(note)}</li>" for note in read.notes) + "</ul>"
    return section("context", "Context", body)


# --- Verdict --------------------------------------------------------------------------------------


def verdicts(scenes):
    cards = []
    for scene in scenes:
        said = verdict.sentences(scene)
        items = "".join(
            f'<li><span class="kind {kind}">{WORDS[kind]}</span>{with_simulated(words)}</li>'
            for kind, words in said
        )
        items = items or "<li>No rows of the training loop: nothing to conclude.</li>"
        cards.append(
            f'<div class="card"><h3>{with_simulated(scene.setup)}</h3>'
            f'<ul class="verdict">{items}</ul>{rung_table(scene, len(cards))}</div>'
        )
    body = "".join(cards) or "<p>No results of feedrate's own to judge.</p>"
    return section("verdict", "Verdict", body)


def rung_table(scene, place):
    entries = verdict.rungs(scene)
    if not entries:
        return ""
    heads = [
        ("row", ""),
        ("steps/s", "median"),
        ("of the ceiling", f"share of {plots.CEILING}"),
        ("model, steps/s", "from the row's own stage costs"),
        ("what binds", ""),
        ("a step waits", ""),
        ("next remedy", ""),
        ("would give, steps/s", "by the model"),
    ]
    lines = []
    for entry in entries:
        lines.append(
            [
                entry.name,
                entry.steps_per_s,
                entry.of_ceiling,
                1e3 / entry.model_ms,
                entry.binds,
                entry.waits,
                entry.next_name or "none",
                entry.next_steps_per_s,
            ]
        )
    return table(
        f"rungs-{place}",
        "Rung by rung: what binds, and what the next one would give",
        heads,
        lines,
        wraps=True,
    )


# --- Pictures -------------------------------------------------------------------------------------


def pictures(read, setups, medians):
    by_name = {}
    captions = {}
    for place, (name, _, caption, shown) in enumerate(plots.pictures(read, setups, medians)):
        picture = svg.text_of(shown, f"p{place}")
        label = text(shown.description)
        picture = picture.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
        by_name.setdefault(name, []).append(picture)
        captions[name] = caption
    rows = {
        name: "".join(
            f'<figure data-plot="{name}">{picture}<figcaption>{text(captions[name])}</figcaption>'
            "</figure>"
            for picture in figures
        )
        for name, figures in by_name.items()
    }
    # The same plot of several set-ups side by side; of one set-up, plot beside plot.
    if all(len(figures) == 1 for figures in by_name.values()):
        rows = {"all": "".join(rows.values())} if rows else {}
    body = "".join(f'<div class="grid">{shown}</div>' for shown in rows.values())
    body = body or "<p>No row has the counters of a plot.</p>"
    hint = "Point at a mark for its figures, or focus a plot and use the arrow keys."
    return section("plots", "Plots", f'<p class="soft">{hint}</p>{body}')


def timeline_data(trace):
    """The trace as the page's script wants it."""
    low, high = plots.window_of(trace)
    total = sum(len(events) for _, events in trace.lanes)
    words, kinds, lanes, hatched = {}, {}, [], {}
    for name, events in trace.lanes:
        if total > TRACE_EVENTS:
            span = (high - low) * 5
            events = [e for e in events if e[1] > low - span and e[0] < high + span]
        depths = plots.depth_of(events)
        shown = []
        for (begin, end, word, _), depth in zip(events, depths, strict=True):
            color, hatch, kind = plots.look_of(word)
            key = kind.split()[0] if hatch else ""
            if key:
                hatched[key] = color
            ink = "#fff" if color in (plots.BLUE, plots.GREEN, plots.RED) else "#000"
            look = {"color": color, "hatch": key, "ink": ink}
            index = kinds.setdefault(kind, (len(kinds), look))[0]
            shown.append(
                [round(begin, 4), round(end, 4), words.setdefault(word, len(words)), depth, index]
            )
        thin = name.lower().startswith(plots.WORKER_LANE)
        height = LANE_PX * (plots.THIN if thin else 1)
        depth = max(depths, default=0) + 1
        lanes.append({"name": name, "depth": depth, "height": height, "events": shown})
    return {
        "label": f"Timeline of {trace.title}: {len(lanes)} lanes",
        "lanes": lanes,
        "words": list(words),
        "kinds": [look for _, look in kinds.values()],
        "hatched": hatched,
        "view": [low, high],
    }


def timelines(read):
    parts = []
    shown = plots.chosen_traces(read.traces)
    for place, trace in enumerate(shown):
        key = f"timeline-{place}"
        title = trace.title
        if trace.simulated and "simulated" not in title:
            title += ", simulated"
        buttons = "".join(
            f'<button type="button" data-timeline="{key}" data-action="{action}">{word}</button>'
            for action, word in (
                ("in", "zoom in"),
                ("out", "zoom out"),
                ("left", "left"),
                ("right", "right"),
                ("all", "whole"),
            )
        )
        data = json.dumps(timeline_data(trace), allow_nan=False, separators=(",", ":"))
        parts.append(
            f"<details{' open' if place == 0 else ''}><summary>{with_simulated(title)}</summary>"
            f'<div class="tools">{buttons}<span class="soft">Keys: + − ← → 0; drag; Ctrl and wheel.'
            f'</span></div><div class="timeline" id="{key}" data-source="{key}-data" tabindex="0" '
            f'role="group" aria-label="Timeline of {text(title)}"></div>'
            f'<script type="application/json" id="{key}-data">'
            + data.replace("<", "\\u003c")
            + "</script></details>"
        )
    if len(shown) < len(read.traces):
        parts.append(
            f'<p class="soft">{len(shown)} of the {len(read.traces)} rows that the trace files '
            "hold; a viewer such as Perfetto shows all.</p>"
        )
    return section("timeline", "Timeline", "".join(parts)) if parts else ""


# --- The page -------------------------------------------------------------------------------------


def section(key, title, body):
    return f'<section id="{key}"><h2>{title}</h2>{body}</section>\n'


def beside(name):
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    with open(path, encoding="utf-8") as file:
        return file.read()


def summary(read, setups):
    files = len({run.file for run in read.runs} | {trace.file for trace in read.traces})
    rows = read.rows[read.rows["setup"].isin(setups)]
    figures = results.good(rows)
    words = f"{files} file{'s' if files != 1 else ''}, {len(setups)} set-up"
    words += f"{'s' if len(setups) != 1 else ''}, {rows['row'].nunique()} rows, "
    words += f"{len(figures)} measurements"
    dates = sorted({str(run.context.get("date", ""))[:10] for run in read.runs} - {""})
    if dates:
        words += f", {dates[0]}" + (f" to {dates[-1]}" if len(dates) > 1 else "")
    if rows["simulated"].any():
        words += ". Figures of a simulated device are called simulated: no time was measured"
    return words + "."


def page(read, setups):
    medians = results.medians(read.rows)
    scenes = [plots.Scene(read, setup, medians) for setup in setups if plots.has_plots(read, setup)]
    sections = [
        ("verdict", "Verdict", verdicts(scenes)),
        ("side", "Side by side", side_by_side(read, list(read.setups()), medians)),
        ("plots", "Plots", pictures(read, setups, medians)),
        ("timeline", "Timeline", timelines(read)),
        ("rows", "All rows", families(medians, list(read.setups()))),
        ("failures", "Skipped and failed", failures(read)),
        ("context", "Context", context(read)),
    ]
    sections = [entry for entry in sections if entry[2]]
    links = "".join(f'<li><a href="#{key}">{title}</a></li>' for key, title, _ in sections)
    machines = ", ".join(dict.fromkeys(scene.machine for scene in scenes)) or "result files"
    policy = "default-src 'none'; img-src data:; "
    policy += "style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="description" content="How fast data reaches the GPU: {text(machines)}">\n'
        f"<title>feedrate: {text(machines)}</title>\n"
        f'<link rel="icon" href="data:,">\n<style>\n{beside("report.css")}</style>\n'
        "</head>\n<body>\n"
        '<a class="skip" href="#verdict">Skip to the verdict</a>\n'
        f"<header><h1>feedrate: how fast data reaches the GPU</h1>\n"
        f'<p class="soft">{with_simulated(summary(read, setups))}</p>\n'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav></header>\n'
        f"<main>\n{''.join(body for *_, body in sections)}</main>\n"
        "<footer><p>Made by feedrate's scripts/report.py from the files named under Context. "
        "GB is 1e9 bytes.</p></footer>\n"
        '<div id="tip" hidden></div><div id="spoken" class="skip" aria-live="polite"></div>\n'
        f"<script>\n{beside('report.js')}</script>\n</body>\n</html>\n"
    )


def main(arguments):
    parser = common.Parser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("results", nargs="+", metavar="RESULTS", help="result and trace files")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the page")
    options = parser.parse_args(arguments)
    common.check_writable(options.output, [*options.results, *plots.published_file()])
    read, setups = plots.with_published(options.results)
    if not read.rows["setup"].isin(setups).any() and not read.traces:
        raise common.UsageError("the files have no rows: nothing to report")
    for note in read.notes:
        print(f"report: {note}", file=sys.stderr)
    common.write_whole(options.output, page(read, setups))
    print(f"{options.output}: {os.path.getsize(options.output) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(common.run(main, "report"))
