#!/usr/bin/env python3
"""Writes steps/s in the form that github-action-benchmark draws with tool customBiggerIsBetter.

    scripts/look.sh dashboard RESULT -o steps.json

Its tool googlecpp reads our result files as they are, but knows only real_time. Here each row that
trains is one entry: the median, and how far its repetitions lie from it. Rows that failed or were
skipped are left out, so that no dashboard takes them for a record.
"""

import sys

import common
import results

NULL_ROW = "Pipeline/null"
COUNTER, UNIT = "steps_per_s", "steps/s"


def entries(read):
    rows = results.good(read.rows)
    if COUNTER not in rows:
        return
    rows = rows[(rows["row"] != NULL_ROW) & ~rows["negative_control"]].dropna(subset=[COUNTER])
    several = rows["setup"].nunique() > 1
    for (setup, name), own in rows.groupby(["setup", "row"], sort=False):
        values = own[COUNTER]
        middle = float(values.median())
        row = own.iloc[0]
        words = [setup] if several else ["simulated"] if row["simulated"] else []
        entry = {
            "name": f"{name} ({', '.join(words)})" if words else name,
            "unit": UNIT,
            "value": middle,
            "extra": f"{setup}\nrepetitions: {len(values)}\n{row['label']}".strip(),
        }
        if len(values) > 1:  # one says nothing about how far it is to the next
            entry["range"] = f"± {max(values.max() - middle, middle - values.min()):.4g}"
        yield entry


def main(arguments):
    parser = common.Parser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("results", nargs="+", metavar="RESULT", help="result files")
    parser.add_argument("-o", "--output", required=True, metavar="FILE")
    options = parser.parse_args(arguments)
    common.check_writable(options.output, options.results)
    found = list(entries(results.read(options.results)))
    if not found:
        raise common.UsageError(f"no row has {COUNTER}: nothing to write")
    common.write_json(options.output, found)
    print(f"{options.output}: {len(found)} rows")
    return 0


if __name__ == "__main__":
    sys.exit(common.run(main, "dashboard"))
