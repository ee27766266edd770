"""The verdict: what binds a set-up, how far from the limit it is, and what the next remedy brings.

Everything is computed from counters with the model of a step's time T:

    baseline            max(C, L + F) + Hp + U
    workers             max(F/W, max(C, L) + Hp + U)
    pinned              max(F/W, P + U, L, H + C)
    streams, prefetch   max(F/W, P + U, L, H, C)
    direct              max(F/W, L, H, C)

F one producer makes a batch, W workers, Hp and H the copy from pageable and pinned memory, U giving
a batch's memory back, P the copy into pinned memory, C the step on the device, L its launch. A cost
that a row cannot show is taken from the row that does, and the text says so.
"""

import dataclasses
import math

import common

# Names of rows and counters; a rung is the row's name without its family.
FAMILY = "Pipeline/"
CEILING = "Compute/resnet18"
LADDER = ("baseline", "workers", "pinned", "streams", "prefetch", "direct")
GAPS = (
    ("exposed_copy_ms", "the copy"),
    ("exposed_fetch_ms", "the fetch"),
    ("exposed_host_ms", "the host (release, submission, launch)"),
    ("other_ms", "something else"),
)
REMEDIES = {
    "workers": ("loader workers", "batches are made beside the loop, {W} at a time"),
    "pinned": (
        "page-locked memory, a pin thread and asynchronous copies",
        "the copy runs at the link's rate, and the batch's memory is given back off the loop",
    ),
    "streams": ("a copy stream of its own", "the copy of the next batch hides under the step"),
    "prefetch": ("an iterator that prefetches", "it issues the same operations in the same order"),
    "direct": (
        "workers that write into page-locked slots",
        "nothing is copied or unmapped on the way, so the pin thread is gone",
    ),
}
STAGES = {
    "fetch": "making batches (F / W)",
    "pin": "the pin thread (P + U)",
    "copy": "the copy (H)",
    "host": "the host (launch, release)",
    "compute": "the step itself (C)",
    "series": "the series of copy and step on one stream (H + C)",
    "order": "the series of step, copy and release in the loop (C + Hp + U)",
}
NEAR, DISAGREE, STARVED, TOO_MUCH, TIED = 0.97, 0.10, 0.9, 1.03, 0.01
FEW = 6  # names in a sentence


@dataclasses.dataclass
class Prediction:
    ms: float
    stage: str
    borrowed: list  # (cost, row) taken from other rows
    costs: dict


def at_least(share):
    """A share as a bound: rounded down, since what is rounded up is not reached."""
    return f"{math.floor(share * 1000 + 1e-6) / 1000:.1%}"


def ms(value):
    return f"{value:.3g} ms" if value < 100 else f"{value:.0f} ms"


def costs_of(scene, rung):
    """What the rung's own row shows of the model's costs, ms; W is a number."""

    def own(counter):
        return scene.value(FAMILY + rung, counter)

    costs = {"F": own("make_ms"), "L": own("launch_ms"), "W": own("spec_workers") or 1.0}
    costs["C"] = own("step_ms") or own("compute_ms")
    blocking = rung in ("baseline", "workers")
    costs["Hp" if blocking else "H"] = own("copy_ms")
    if blocking and own("host_ms") is not None and costs["L"] is not None:
        costs["U"] = max(0.0, own("host_ms") - costs["L"])
    if own("pin_ms"):
        costs["PU"] = own("pin_ms")
    if rung == "baseline":
        costs["W"] = 1.0
    return {key: value for key, value in costs.items() if value is not None}


def needs_of(rung):
    return {
        "baseline": ("F", "C", "L", "Hp", "U"),
        "workers": ("F", "W", "C", "L", "Hp", "U"),
        "pinned": ("F", "W", "C", "L", "PU", "H"),
        "direct": ("F", "W", "C", "L", "H"),
    }.get(rung, ("F", "W", "C", "L", "PU", "H"))


def time_of(rung, costs):
    """(T, the stage that binds) by the model."""
    F, C, L = costs["F"], costs["C"], costs["L"]
    if rung == "baseline":
        return max(C, L + F) + costs["Hp"] + costs["U"], "fetch" if L + F > C else "compute"
    bounds = {"fetch": F / max(1.0, costs["W"])}
    if rung == "workers":
        bounds["order"] = max(C, L) + costs["Hp"] + costs["U"]
    else:
        bounds |= {"host": L, "copy": costs["H"], "compute": C}
        if rung == "pinned":
            bounds["series"] = costs["H"] + C
        if rung != "direct":
            bounds["pin"] = costs["PU"]
    stage = max(bounds, key=bounds.get)
    return bounds[stage], stage


def predict(scene, rung, seen_from):
    """The rung's time by the model, with the costs that the row `seen_from` shows. None without
    them."""
    costs = costs_of(scene, seen_from)
    borrowed = []
    others = [rung, *(name for name in LADDER if name not in (rung, seen_from))]
    # The number of workers, and what a batch costs beside others, is the remedy's own.
    if seen_from == "baseline" != rung:
        costs.pop("W", None)
        costs.pop("F", None)
        costs.pop("U", None)
    for need in needs_of(rung):
        for name in others:
            if need in costs:
                break
            value = costs_of(scene, name).get(need)
            if value is not None and not (need in ("F", "W") and name == "baseline"):
                costs[need] = value
                borrowed.append((need, name))
    if any(need not in costs for need in needs_of(rung)):
        return None
    time_ms, stage = time_of(rung, costs)
    if time_ms <= 0:
        return None
    return Prediction(time_ms, stage, borrowed, costs)


@dataclasses.dataclass
class Rung:
    """What is to be said of one row of the ladder."""

    name: str
    steps_per_s: float
    of_ceiling: float
    limit: str
    binds: str
    waits: str
    model_ms: float = math.nan  # by its own costs
    next_name: str = ""
    next_text: str = ""
    next_steps_per_s: float = math.nan  # by the model
    next_measured: float = math.nan


def waits_of(scene, row):
    gaps = [(scene.value(row, counter) or 0.0, word) for counter, word in GAPS]
    rate = scene.value(row, "steps_per_s")
    step_ms = 1e3 / rate if rate else 0.0
    told = [
        f"{ms(gap)} for {word} ({gap / step_ms:.0%})"
        for gap, word in sorted(gaps, reverse=True)
        if step_ms and gap > 0.01 * step_ms
    ]
    return ", ".join(told) or "next to nothing"


def binds_of(scene, row):
    """Which stage binds, or that only the order of the loop does."""
    limit = scene.table[scene.table["row"] == row]["limit"].iloc[0]
    reached = scene.value(row, "of_limit")
    names = [STAGES.get(stage, stage) for stage in limit.split(" or ") if stage]
    if not names:
        return "not known: the file names no limit"
    if reached is not None and reached < STARVED:
        return (
            f"the order of the loop: it reaches {reached:.2f} of the tightest bound, "
            f"{' or '.join(names)}"
        )
    return " or ".join(names)


def rung_names(scene):
    """The ladder's rungs that are there, in its order, then what the ladder does not know."""
    rows = scene.family("Pipeline", "steps_per_s")
    there = [row[len(FAMILY) :] for row in rows["row"] if row != "Pipeline/null"]
    return [n for n in LADDER if n in there] + [n for n in there if n not in LADDER]


def next_remedy(scene, rung, entry):
    if rung not in LADDER[:-1]:
        return
    # Streams and prefetch are one rung to the model: what helps is what comes after.
    following = LADDER[LADDER.index(rung) + 1]
    if rung == "streams":
        following = "direct"
    title, why = REMEDIES[following]
    entry.next_name = following
    prediction = predict(scene, following, rung)
    entry.next_measured = scene.value(FAMILY + following, "steps_per_s") or math.nan
    if prediction is None:
        entry.next_text = f"{title}: {why.format(W='several')}. The file has no costs to say more."
        return
    entry.next_steps_per_s = 1e3 / prediction.ms
    gain = entry.next_steps_per_s / entry.steps_per_s
    workers = prediction.costs.get("W")
    then = STAGES[prediction.stage]
    words = f"{title}: {why.format(W=f'{workers:.0f}' if workers else 'several')}. "
    words += f"The model gives {ms(prediction.ms)} a step, {entry.next_steps_per_s:.2f} steps/s "
    if gain > 1.01:
        words += f"({gain:.2f} times as many); {then} binds then."
    else:
        words += f"({gain:.2f} times as many): by the model nothing to gain, since {then} binds "
        words += "already."
    if prediction.borrowed:
        taken = {}
        for cost, name in prediction.borrowed:
            taken.setdefault(name, []).append({"PU": "P + U"}.get(cost, cost))
        words += (
            " Taken from other rows: "
            + "; ".join(f"{', '.join(costs)} from {name}" for name, costs in taken.items())
            + "."
        )
    if math.isfinite(entry.next_measured):
        word = "Simulated" if scene.simulated else "Measured"
        gained = entry.next_measured / entry.steps_per_s
        words += f" {word}: {entry.next_measured:.2f} steps/s ({gained:.2f} times as many)"
        beside = entry.next_measured / entry.next_steps_per_s - 1
        if abs(beside) > DISAGREE:
            words += ", so the costs moved from one row to the other."
        elif abs(beside) > TIED:
            words += f", {beside:+.0%} beside the model, which is right within {DISAGREE:.0%}."
        else:
            words += "."
    entry.next_text = words


def rungs(scene):
    ceiling = scene.ceiling() or math.nan
    entries = []
    for rung in rung_names(scene):
        row = FAMILY + rung
        rate = scene.value(row, "steps_per_s")
        if not rate:
            continue
        limit = scene.table[scene.table["row"] == row]["limit"].iloc[0]
        entry = Rung(rung, rate, rate / ceiling, limit, binds_of(scene, row), waits_of(scene, row))
        own = predict(scene, rung, rung) if rung in LADDER else None
        if own:
            entry.model_ms = own.ms
        next_remedy(scene, rung, entry)
        entries.append(entry)
    return entries


# --- Sentences ------------------------------------------------------------------------------------

GOOD, BAD, NOTE = "good", "bad", "note"


def headline(scene, entries):
    if not entries:
        return
    fastest = max(entries, key=lambda entry: entry.steps_per_s)
    least = (1 - TIED) * fastest.steps_per_s
    tied = [entry for entry in entries if entry.steps_per_s >= least]
    best, first = tied[0], entries[0]
    ceiling = scene.ceiling()
    word = " (simulated)" if scene.simulated else ""
    text = f"The best row is {best.name}"
    if f"{fastest.steps_per_s:.2f}" != f"{best.steps_per_s:.2f}":
        text = f"The first row within {TIED:.0%} of the best, {fastest.name}"
        text += f" ({fastest.steps_per_s:.2f}), is {best.name}"
    text += f": {best.steps_per_s:.2f} steps/s{word}"
    if first.name != best.name:
        gain = best.steps_per_s / first.steps_per_s
        text += f", {gain:.2f} times {first.name} ({first.steps_per_s:.2f})"
    others = [entry.name for entry in tied[1:]]
    alike = f" Within {TIED:.0%} of it: {', '.join(others)}." if others else ""
    if not ceiling:
        yield (
            NOTE,
            text
            + (
                f". What binds: {best.binds}.{alike} The ceiling is not in the file: run the rows "
                "Compute/ as well to know how far away it is."
            ),
        )
        return
    text += f", and {best.of_ceiling:.1%} of the ceiling, {ceiling:.2f} ({CEILING})"
    if best.of_ceiling > TOO_MUCH:
        yield BAD, f"{text}. That cannot be: the machine's speed moved, so run both again.{alike}"
    elif best.of_ceiling >= NEAR:
        yield (
            GOOD,
            (
                f"{text}. The device is full: no remedy of the feed brings more, only a shorter "
                f"step does.{alike}"
            ),
        )
    else:
        yield NOTE, f"{text}. What binds: {best.binds}. A step waits {best.waits}.{alike}"


def next_step(scene, entries):
    """What each row that is not near the ceiling would gain by the next remedy."""
    for entry in entries:
        starved = not entry.of_ceiling >= NEAR
        if entry.next_text and starved:
            yield (
                NOTE,
                (
                    f"From {entry.name} ({entry.steps_per_s:.2f} steps/s; a step waits "
                    f"{entry.waits}) the next remedy is {entry.next_text}"
                ),
            )


def disagreements(scene, entries):
    for entry in entries:
        if not math.isfinite(entry.model_ms):
            continue
        time_ms = 1e3 / entry.steps_per_s
        if abs(time_ms - entry.model_ms) > DISAGREE * time_ms:
            yield (
                BAD,
                (
                    f"Model and measurement disagree on {entry.name}: its own costs give "
                    f"{ms(entry.model_ms)} a step, it took {ms(time_ms)}. Some cost is not what it "
                    "seems, or the stages get into each other's way."
                ),
            )


def impossible(scene):
    """A share of a limit above 1 is an error, not a record."""
    for counter, what in (("of_link", "its link"), ("of_limit", "its tightest bound")):
        rows = scene.table[scene.table[counter] > TOO_MUCH] if counter in scene.table else ()
        if len(rows):
            names = ", ".join(
                f"{r} ({v:.2f})" for r, v in zip(rows["row"], rows[counter], strict=True)
            )
            yield BAD, f"More than {what} allows, so the rate or the limit is wrong: {names}."
    ceiling = scene.ceiling()
    rows = scene.family("Pipeline", "steps_per_s")
    above = rows[(rows["steps_per_s"] > TOO_MUCH * (ceiling or math.inf))]["row"]
    above = [row for row in above if row != "Pipeline/null"]
    if above:
        yield BAD, f"Faster than the ceiling, so one of them is wrong: {', '.join(above)}."


def integrity(scene):
    rows = scene.table
    if "bad_batches" not in rows or not rows["bad_batches"].notna().any():
        return
    checked = rows[rows["bad_batches"].notna()]
    control = checked["negative_control"].astype(bool)
    torn = checked[(checked["bad_batches"] > 0) & ~control]
    for row, bad in zip(torn["row"], torn["bad_batches"], strict=True):
        yield BAD, f"{row}: {bad:.0f} bad batches. It trained on data that nobody made."
    if torn.empty:
        yield GOOD, f"No batch was bad in the {(~control).sum()} rows that check them."
    seen = checked[control & (checked["bad_batches"] > 0)]["row"]
    if len(seen):
        yield GOOD, f"Negative controls that show bad batches, as they must: {', '.join(seen)}."
    for row in checked[control & (checked["bad_batches"] == 0)]["row"]:
        yield BAD, f"The negative control {row} shows no bad batch: the check may be blind."


def steadiness(scene):
    rows = list(scene.table[scene.table["unsteady"].astype(bool)]["row"])
    if rows:
        more = f" and {len(rows) - FEW} more" if len(rows) > FEW else ""
        words = f"Unsteady, the halves of the window differ: {', '.join(rows[:FEW])}{more}. "
        yield NOTE, words + "Repeat them before you believe them."


def transfers(scene):
    rows = scene.family("H2D", "GBps", "arg_bytes")
    if rows.empty:
        return
    memory = rows["variant"].str.split("/").str[0]
    best = {name: own.loc[own["GBps"].idxmax()] for name, own in rows.groupby(memory, sort=False)}
    if "pinned" in best:
        pinned = best["pinned"]
        text = f"The link takes {pinned['GBps']:.1f} GB/s from pinned memory"
        share = pinned.get("of_link", math.nan)
        text += f", {share:.0%} of its own rate" if share == share else ""
        if "pageable" in best:
            ratio = pinned["GBps"] / best["pageable"]["GBps"]
            slower = f"{ratio:.1f} times slower" if ratio > 1.1 else "as fast"
            text += f"; from pageable memory {best['pageable']['GBps']:.1f} GB/s, {slower}"
        yield NOTE, text + "."
    waits = scene.family("Copy", "waits_for_stream", "arg_bytes")
    found = waits[waits["variant"] == "pageable/async/busy"]
    if len(found):
        yield NOTE, f"An asynchronous copy from pageable memory {waiting(found)}."


def waiting(rows):
    """When such a copy waits for earlier work on its stream: that goes by its size."""
    by_size = rows.groupby("arg_bytes")["waits_for_stream"].median().sort_index()
    returns, waits = by_size[by_size == 0], by_size[by_size == 1]
    if len(waits) == len(by_size):
        return "waits for earlier work on its stream, whatever its size"
    if len(returns) == len(by_size):
        return "returns before earlier work on its stream is done, whatever its size"
    if len(returns) + len(waits) == len(by_size) and returns.index.max() < waits.index.min():
        most, least = map(common.bytes_text, (returns.index.max(), waits.index.min()))
        return f"returns at once up to {most}, and waits for earlier work from {least} on"
    shares = ", ".join(f"{share:.0%} at {common.bytes_text(at)}" for at, share in by_size.items())
    return f"waits for earlier work on its stream in a share of the calls: {shares}"


def overlapping(scene):
    rows = scene.family("Overlap", "efficiency", "arg_ratio")
    rows = rows[rows["variant"].str.endswith("two_streams") & (rows["arg_ratio"] <= 1)]
    chunks = rows["arg_chunks"] if "arg_chunks" in rows else rows["efficiency"] * math.nan
    whole, cut = rows[~(chunks > 1)], rows[chunks > 1]
    told = []
    if len(whole):
        told.append(f"in one piece to {at_least(whole['efficiency'].min())} or more")
    if len(cut):
        least = cut.loc[cut["efficiency"].idxmin()]
        told.append(
            f"in chunks to {at_least(least['efficiency'])} or more "
            f"(least in {least['arg_chunks']:.0f})"
        )
    if told:
        words = "With two streams a copy that is no longer than compute hides under it"
        yield NOTE, f"{words}: {', '.join(told)}."


def loading(scene):
    rows = scene.family("Loader", "batches_per_s", "arg_workers")
    ceiling = scene.ceiling()
    if rows.empty or not ceiling:
        return
    feeding, starving = [], []
    for variant, own in rows.groupby("variant", sort=False):
        enough = own[own["batches_per_s"] >= ceiling].sort_values("arg_workers")
        name = variant.replace("_", " ")
        if len(enough):
            feeding.append(f"{name} from {enough['arg_workers'].iloc[0]:.0f} on")
        else:
            starving.append(f"{name} ({own['batches_per_s'].max():.1f} at most)")
    words = f"Loaders, by the workers they need to feed the ceiling's {ceiling:.1f} batches/s: "
    words += f"{', '.join(feeding) or 'none is enough'}."
    yield NOTE, words + (f" Not enough: {', '.join(starving)}." if starving else "")


def staging(scene):
    rows = scene.family("Staging", "reuses_to_pay")
    if len(rows):
        found = (rows["reuses_to_pay"].min(), rows["reuses_to_pay"].max())
        # What pays within a use has paid when that one is done.
        low, high = (max(1, math.ceil(round(value, 2))) for value in found)
        times = f"{low} use{'s' * (low > 1)}" if low == high else f"{low} to {high} uses"
        words = f"Page-locking a buffer has paid after {times} of it"
        if low != high:
            words += f", by how it is locked ({found[0]:.2g} to {found[1]:.2g} copies)"
        yield NOTE, words + "."


def sentences(scene):
    """(kind, text) of all that the set-up's counters say, the most important first."""
    entries = rungs(scene)
    told = []
    for group in (
        headline(scene, entries),
        integrity(scene),
        impossible(scene),
        disagreements(scene, entries),
        next_step(scene, entries),
        steadiness(scene),
        transfers(scene),
        overlapping(scene),
        loading(scene),
        staging(scene),
    ):
        told += list(group)
    return told
