#!/usr/bin/env python3
"""What nsys and our own stamps say of the same measured steps, side by side.

    nsys_compare.py REPORT.sqlite RESULT.json TIMELINE.json ROW [--limit PERCENT]

REPORT.sqlite is an export of a report that was captured with bench --capture, RESULT.json and
TIMELINE.json are the --benchmark_out and --timeline of the same run, ROW its one row.

Both sides are clipped to the measured window: ours is the timeline's, between the two
synchronisations that bracket a captured run; nsys's goes from the first begin to the last end of
the domain feedrate's ranges and the device's activities. In it,

    copy ms     host to device copies, overlapping ones merged, over the steps
    compute ms  kernels, graphs, memsets and copies within the device, merged, over the steps; ours
                is what the events around each step enclose
    overlap     share of the copy time in which something computed
    gpu idle    share of the window in which nothing copied or computed

The counters of RESULT.json are shown beside them. They are of the measured steps' own copies, which
with two streams begin and end one step earlier than the window, so they are not compared.

Times differ in per cent of nsys's, shares in points. Exit status: 0, 1 above the limit, 2 wrong
usage or files that do not belong together.
"""

import argparse
import os
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass

import common
from common import UsageError

DOMAIN = "feedrate"
# eventType of NVTX_EVENTS, copyKind of CUPTI_ACTIVITY_KIND_MEMCPY.
PUSH_POP, START_END, DOMAIN_CREATE = 59, 60, 75
H2D, D2H, D2D = 1, 2, 8
KERNELS = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE")
MEMSETS = "CUPTI_ACTIVITY_KIND_MEMSET"
COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"


# --- Intervals: (begin, end), any unit ------------------------------------------------------------


def merged(intervals, window):
    """Disjoint and in order, what lies in the window."""
    result = []
    for begin, end in sorted(intervals):
        begin, end = max(begin, window[0]), min(end, window[1])
        if begin >= end:
            continue
        if result and begin <= result[-1][1]:
            result[-1][1] = max(result[-1][1], end)
        else:
            result.append([begin, end])
    return [tuple(interval) for interval in result]


def covered(intervals):
    return sum(end - begin for begin, end in intervals)


def common_part(some, others):
    """Of two merged lists."""
    total, i, j = 0, 0, 0
    while i < len(some) and j < len(others):
        begin, end = max(some[i][0], others[j][0]), min(some[i][1], others[j][1])
        total += max(0, end - begin)
        if some[i][1] < others[j][1]:
            i += 1
        else:
            j += 1
    return total


@dataclass
class Activity:
    """What a device did in a window of so many steps; times in ns."""

    window: tuple
    steps: int
    copies: list
    computes: list
    others: list  # busy, but neither

    def figures(self):
        copies, computes = merged(self.copies, self.window), merged(self.computes, self.window)
        busy = merged([*copies, *computes, *self.others], self.window)
        copying, length = covered(copies), self.window[1] - self.window[0]
        return {
            "copy ms": copying * 1e-6 / self.steps if copies else None,
            "compute ms": covered(computes) * 1e-6 / self.steps if computes else None,
            "overlap": common_part(copies, computes) / copying if copies else None,
            "gpu idle": 1 - covered(busy) / length,
        }


# --- nsys -----------------------------------------------------------------------------------------


class Report:
    """An nsys report as SQLite. A table is there only when something of its kind was recorded."""

    def __init__(self, connection):
        self._connection = connection
        query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
        self._tables = {name for (name,) in connection.execute(query)}

    def rows(self, table, columns, condition="1"):
        if table not in self._tables:
            return []
        return self._connection.execute(
            f"SELECT {columns} FROM {table} WHERE {condition}"
        ).fetchall()

    def activities(self, table, condition="1"):
        return self.rows(table, "start, end", condition)

    def ranges(self):
        """(begin, end, name) of the domain's ranges."""
        strings = dict(self.rows("StringIds", "id, value"))
        domains = [
            domain
            for domain, text, text_id in self.rows(
                "NVTX_EVENTS", "domainId, text, textId", f"eventType = {DOMAIN_CREATE}"
            )
            if (text or strings.get(text_id)) == DOMAIN
        ]
        found = []
        for domain in domains:
            for begin, end, text, text_id in self.rows(
                "NVTX_EVENTS",
                "start, end, text, textId",
                f"domainId = {int(domain)} AND eventType IN ({PUSH_POP}, {START_END})"
                " AND end IS NOT NULL",
            ):
                found.append((begin, end, text or strings.get(text_id) or ""))
        return found


def read_report(path):
    """The activity that nsys saw; `steps` is 0 if it saw no ranges of ours."""
    if not os.path.isfile(path):
        raise UsageError(f"'{path}': there is no such file")
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            report = Report(connection)
            copies = report.activities(COPIES, f"copyKind = {H2D}")
            within = report.activities(COPIES, f"copyKind = {D2D}")
            others = report.activities(COPIES, f"copyKind NOT IN ({H2D}, {D2D})")
            computes = within + report.activities(MEMSETS)
            for table in KERNELS:
                computes += report.activities(table)
            ranges = report.ranges()
    except sqlite3.Error as error:
        raise UsageError(f"'{path}' is no SQLite export of nsys: {error}") from None
    stamps = [(begin, end) for begin, end, _ in ranges] + copies + computes
    if not copies and not computes:
        raise UsageError(f"'{path}' holds no activity of a GPU: was it captured on one?")
    window = (min(begin for begin, _ in stamps), max(end for _, end in stamps))
    steps = sum(name.startswith("batch ") for _, _, name in ranges)
    return Activity(window, steps, copies, computes, others)


# --- Ours -----------------------------------------------------------------------------------------


def read_timeline(path, row):
    """The activity of the row as our events stamped it."""
    events = read(path)
    events = events.get("traceEvents") if isinstance(events, dict) else None
    if not isinstance(events, list):
        raise UsageError(f"'{path}' is no trace of bench --timeline")
    titles = {
        event["pid"]: event["args"]["name"]
        for event in events
        if event.get("name") == "process_name"
    }
    pids = [pid for pid, title in titles.items() if title.startswith(f"{row} on ")]
    if len(pids) != 1:
        raise UsageError(f"'{path}' has {len(pids)} runs of {row}, and one is needed")
    tracks = {
        event["tid"]: event["args"]["name"]
        for event in events
        if event.get("name") == "thread_name" and event["pid"] == pids[0]
    }

    def intervals(track, name):
        return [
            (event["ts"] * 1e3, (event["ts"] + event["dur"]) * 1e3)
            for event in events
            if event["ph"] == "X"
            and event["pid"] == pids[0]
            and event["name"] == name
            and tracks[event["tid"]].startswith(track)
        ]

    windows = intervals("measured window", "measured window")
    if len(windows) != 1:
        raise UsageError(f"'{path}' has no measured window of {row}")
    return Activity(
        windows[0], 0, intervals("device: cop", "copy batch"), intervals("device:", "compute"), []
    )


def read_counters(path, row):
    """(steps, counters by our figures' names)."""
    result = read(path)
    runs = result.get("benchmarks", []) if isinstance(result, dict) else []
    found = [run for run in runs if run.get("name") == row]
    if len(found) != 1 or found[0].get("error_occurred"):
        raise UsageError(f"'{path}' has no run of {row} that went well")
    names = {
        "copy ms": "copy_ms",
        "compute ms": "step_ms",
        "overlap": "overlap",
        "gpu idle": "gpu_idle",
    }
    return found[0]["iterations"], {
        figure: found[0].get(counter) for figure, counter in names.items()
    }


def read(path):
    try:
        return common.read_json(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"'{path}': {error}") from None


# --- Side by side ---------------------------------------------------------------------------------

SHARES = ("overlap", "gpu idle")


def difference(figure, nsys, ours):
    """Per cent of nsys's, or points for a share; None where one of them has nothing to say."""
    if nsys is None or ours is None:
        return None if nsys == ours else float("inf")
    return (ours - nsys) * 100 if figure in SHARES else (ours / nsys - 1) * 100


def shown(value, digits):
    return "-" if value is None else f"{value:.{digits}f}"


def table(row, nsys, ours, counters):
    """(text, the greatest difference)."""
    seen, stamped = nsys.figures(), ours.figures()
    lines = [
        f"{row}: {nsys.steps} steps in {(nsys.window[1] - nsys.window[0]) * 1e-6:.1f} ms",
        f"{'':12}{'nsys':>10}{'ours':>10}{'difference':>16}{'counter':>10}",
    ]
    worst = 0.0
    for figure in seen:
        apart = difference(figure, seen[figure], stamped[figure])
        worst = max(worst, abs(apart or 0))
        unit = "points" if figure in SHARES else "%"
        text = "-" if apart is None else f"{apart:+.2f} {unit}"
        digits = 4 if figure in SHARES else 3
        lines.append(
            f"{figure:12}{shown(seen[figure], digits):>10}{shown(stamped[figure], digits):>10}"
            f"{text:>16}{shown(counters[figure], digits):>10}"
        )
    return "\n".join(lines), worst


def positive(text):
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number")
    return value


def main(arguments):
    parser = common.Parser(
        prog="nsys_compare.py",
        description=__doc__.split("\n\n")[0],
        epilog="\n\n".join(__doc__.split("\n\n")[2:]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("report", metavar="REPORT.sqlite")
    parser.add_argument("result", metavar="RESULT.json")
    parser.add_argument("timeline", metavar="TIMELINE.json")
    parser.add_argument("row", metavar="ROW")
    parser.add_argument(
        "--limit",
        type=positive,
        default=5.0,
        metavar="PERCENT",
        help="difference from which the status is 1 (5)",
    )
    options = parser.parse_args(arguments)
    steps, counters = read_counters(options.result, options.row)
    ours = read_timeline(options.timeline, options.row)
    nsys = read_report(options.report)
    if nsys.steps not in (0, steps):
        raise UsageError(
            f"'{options.report}' holds {nsys.steps} steps and '{options.result}' {steps}: "
            "they are not of the same run"
        )
    nsys.steps = ours.steps = steps
    text, worst = table(options.row, nsys, ours, counters)
    print(text)
    if worst > options.limit:
        print(f"{options.row}: differs by {worst:.2f}, more than {options.limit:g}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(common.run(main, "nsys_compare.py"))
