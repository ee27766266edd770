"""A result file and a trace with every family, from formulas: nothing here was measured.

    python3 tests/look/example.py FOLDER     writes example.json and trace.json there

Rows carry the names and counters of bench, so that every plot and every sentence of the report
has something to show on any machine.
"""

import json
import math
import os
import random
import sys

C, H, HP, U, P, L, F = 60.0, 3.7, 38.0, 33.0, 28.0, 7.0, 320.0  # ms, as in the model
BATCH_BYTES = 201326592
LINK_GBPS = 63.0
SIZES = [4096 * 4**k for k in range(9)] + [BATCH_BYTES]
RUNGS = {
    # name: (loader, workers, copy ms, release ms, pin ms, step ms)
    "baseline": ("inline", 1, HP, 10.0, 0.0, max(C, L + F) + HP + 10.0),
    "workers": ("processes", 8, HP, U, 0.0, C + HP + U),
    "pinned": ("processes", 8, H, 0.0, P + U, H + C),
    "streams": ("processes", 8, H, 0.0, P + U, max(C, P + U)),
    "prefetch": ("processes", 8, H, 0.0, P + U, max(C, P + U)),
    "direct": ("threads", 8, H, 0.0, 0.0, C),
}


def context(simulated, gpu="Example GPU", cores=16, **more):
    words = {
        "feedrate.device": "sim:example" if simulated else "cuda:0",
        "feedrate.simulated": "true" if simulated else "false",
        "feedrate.version": "0.1.0",
        "feedrate.git_revision": "0123456789ab",
        "feedrate.build_type": "Release",
        "feedrate.cores_usable": str(cores),
        "feedrate.cores": str(cores),
        "feedrate.workers": "8",
        "feedrate.batch": "64",
        "feedrate.image": "512",
        "feedrate.window": "steady",
        "feedrate.interrupted": "false",
    }
    if simulated:
        words["feedrate.profile"] = "example"
        words["feedrate.profile_gpu"] = f"{gpu}, {cores} cores"
    else:
        words["feedrate.gpu"] = gpu
        words["feedrate.pcie_generation_max"] = "5"
        words["feedrate.pcie_width_max"] = "16"
    return {
        "date": "2026-01-01T00:00:00+00:00",
        "host_name": "example",
        "executable": "build/bench",
        "num_cpus": cores,
        "caches": [],
        "library_build_type": "release",
        **words,
        **more,
    }


def loop_counters(step_ms, compute, copy, fetch, host, **more):
    rate = 1e3 / step_ms
    return {
        "steps_per_s": rate,
        "images_per_s": 64 * rate,
        "items_per_second": 64 * rate,
        "bytes_per_second": BATCH_BYTES * rate,
        "compute_ms": compute,
        "exposed_copy_ms": copy,
        "exposed_fetch_ms": fetch,
        "exposed_host_ms": host,
        "other_ms": max(0.0, step_ms - compute - copy - fetch - host),
        "step_p50_ms": step_ms,
        "step_p95_ms": step_ms * 1.01,
        "spread": 0.01,
        "overlap": 0.0 if copy else 1.0,
        "gpu_idle": max(0.0, 1 - (compute + copy) / step_ms),
        "bad_batches": 0.0,
        "step_ms": C,
        "check_ms": 0.1,
        "launch_ms": L,
        **more,
    }


def pipeline_rows():
    for name, (_, workers, copy, release, pin, step_ms) in RUNGS.items():
        serial = name in ("baseline", "workers", "pinned")
        bounds = {"fetch": F / workers, "pin": pin, "copy": copy, "host": L + release, "compute": C}
        stage = max(bounds, key=bounds.get)
        exposed = copy if serial else 0.0
        compute = min(C, step_ms)
        fetch = max(0.0, step_ms - compute - exposed - release)
        counters = loop_counters(
            step_ms,
            compute,
            exposed,
            fetch,
            release,
            make_ms=F,
            pin_ms=pin,
            copy_ms=copy,
            host_ms=L + release,
            h2d_GBps=BATCH_BYTES / copy / 1e6,
            feed_GBps=BATCH_BYTES / step_ms / 1e6,
            limit_steps_per_s=1e3 / bounds[stage],
            of_limit=bounds[stage] / step_ms,
        )
        yield f"Pipeline/{name}", step_ms, counters, f"limit: {stage}"
    step = loop_counters(C, C, 0.0, 0.0, 0.0, limit_steps_per_s=1e3 / C, of_limit=1.0)
    yield "Compute/resnet18", C, step, "limit: compute"
    bf16 = loop_counters(26.0, 26.0, 0.0, 0.0, 0.0, limit_steps_per_s=1e3 / 26, of_limit=1.0)
    yield "Compute/bf16", 26.0, {**bf16, "step_ms": 26.0}, "limit: compute"


MEMORY = {
    "pageable": (9.0, 12.0),
    "pinned": (55.3, 3.0),
    "registered": (54.9, 3.3),
    "write_combined": (55.4, 3.0),
}


def transfer_rows():
    for direction in ("H2D", "D2H"):
        for memory, (rate, latency_us) in MEMORY.items():
            for mode in ("blocking", "async"):
                extra = 4.0 if mode == "blocking" else 0.0
                for size in SIZES:
                    us = latency_us + extra + size / rate / 1e3
                    GBps = size / us / 1e3
                    counters = {
                        "GBps": GBps,
                        "copy_us": us,
                        "min_us": us * 0.98,
                        "spread": 0.01,
                        "of_link": GBps / LINK_GBPS,
                        "of_pinned": GBps / 55.4,
                    }
                    clock = "wall" if memory == "pageable" else "events"
                    yield (
                        f"{direction}/{memory}/{mode}/bytes:{size}",
                        us / 1e3,
                        counters,
                        (f"clock: {clock}"),
                    )
    for way, share in (("h2d_while_d2h", 0.94), ("d2h_while_h2d", 0.93), ("both_at_once", 1.6)):
        counters = {"GBps": 55.3 * share, "other_GBps": 50.0, "of_alone": share, "spread": 0.01}
        yield f"Duplex/{way}/bytes:{BATCH_BYTES}", 3.7, counters, ""
    for memory, (rate, latency_us) in list(MEMORY.items())[:2]:
        for mode in ("blocking", "async"):
            for stream in ("idle", "busy"):
                for size in SIZES:
                    done = latency_us + size / rate / 1e3 + (20e3 if stream == "busy" else 0)
                    waits = memory == "pageable" or mode == "blocking"
                    back = done if waits else 2.5
                    counters = {
                        "return_us": back,
                        "done_us": done,
                        "busy_ms": 20.0,
                        "waits_for_stream": float(stream == "busy" and waits),
                    }
                    yield f"Copy/{memory}/{mode}/{stream}/bytes:{size}", done / 1e3, counters, ""


def overlap_rows():
    for work in ("spin", "step"):
        for streams in ("one_stream", "two_streams"):
            for ratio in (0.1, 0.2, 0.5, 1, 2, 5, 10):
                copy = C * ratio
                best, worst = max(C, copy), C + copy
                efficiency = 0.98 if streams == "two_streams" else 0.0
                if work == "step" and efficiency:
                    efficiency -= 0.02 * math.log10(ratio * 10 + 1)
                step_ms = worst - efficiency * (worst - best)
                counters = {
                    "efficiency": efficiency,
                    "step_ms": step_ms,
                    "copy_ms": copy,
                    "compute_ms": C,
                    "ratio_measured": ratio,
                    "spread": 0.01,
                }
                yield f"Overlap/{work}/{streams}/ratio:{ratio}", step_ms, counters, ""
    for chunks in (4, 16, 64):
        counters = {
            "efficiency": 0.97 - chunks / 1000,
            "step_ms": C * 1.05,
            "copy_ms": C,
            "compute_ms": C,
            "ratio_measured": 1.0,
            "spread": 0.01,
        }
        yield f"Overlap/spin/two_streams/ratio:1/chunks:{chunks}", C * 1.05, counters, ""


def staging_rows():
    for kind, fill, release, faults in (("fresh", 126.0, 10.0, 49152.0), ("ring", 38.0, 0.0, 0.0)):
        counters = {
            "fill_ms": fill,
            "release_ms": release,
            "GBps": BATCH_BYTES / fill / 1e6,
            "faults": faults,
        }
        yield f"Staging/fill/{kind}", fill, counters, ""
    for how, page, lock in (
        ("alloc", 0, 370.0),
        ("register", 4096, 250.0),
        ("register", 2097152, 90.0),
    ):
        name = f"Staging/lock/{how}" + (f"/page_bytes:{page}" if page else "")
        counters = {
            "lock_ms_per_GiB": lock,
            "unlock_ms_per_GiB": lock / 5,
            "touch_ms_per_GiB": 580.0,
            "huge_share": float(page > 4096),
            "reuses_to_pay": 4.0,
        }
        yield name, lock, counters, ""


def loader_rows():
    for variant, first, most in (
        ("in_cache", 5.0, 66.0),
        ("ring", 4.8, 55.0),
        ("pinned_slots", 4.9, 58.0),
        ("processes", 3.3, 31.0),
        ("libtorch", 3.1, 24.0),
    ):
        for workers in (1, 2, 4, 8, 16, 32):
            cores = min(workers, 16)
            rate = first * cores / (1 + (cores - 1) * (first * 16 / most - 1) / 15)
            counters = {
                "batches_per_s": rate,
                "first_batch_ms": 1e3 / first,
                "cpu_s_per_batch": workers / rate,
                "faults_per_batch": 49152.0,
                "scaling": rate / first / workers,
                "of_in_cache": min(1.0, first / 5.0),
            }
            yield f"Loader/{variant}/workers:{workers}", 1e3 / rate, counters, ""


def sweep_rows():
    for rung, serial in (("workers", HP + U), ("pinned", H), ("direct", 0.0)):
        for workers in (1, 2, 4, 8, 16):
            step_ms = max(F / workers, C + serial)
            counters = loop_counters(
                step_ms,
                C,
                serial,
                max(0.0, step_ms - C - serial),
                0.0,
                make_ms=F,
                pin_ms=0.0,
                copy_ms=H,
                host_ms=L,
            )
            yield f"Workers/{rung}/workers:{workers}", step_ms, counters, ""
    for family, argument, values in (
        ("BatchSize", "batch", (8, 16, 32, 64, 128)),
        ("ImageSize", "image", (128, 256, 512, 1024)),
    ):
        for value in values:
            scale = value / 64 if argument == "batch" else (value / 512) ** 2
            compute = C * scale + 3
            step_ms = max(F / 8 * scale, compute)
            images = (value if argument == "batch" else 64) * 1e3 / step_ms
            counters = loop_counters(step_ms, compute, 0.0, step_ms - compute, 0.0, make_ms=F)
            counters["images_per_s"] = counters["items_per_second"] = images
            yield f"{family}/direct/{argument}:{value}", step_ms, counters, "limit: compute"


def guard_rows():
    for schedule in ("two_streams", "prefetcher"):
        for guard, bad in (("none", 39.0), ("record", 0.0), ("slots", 0.0)):
            counters = {**loop_counters(C, C, 0, 0, 0), "peak_device_GB": 8.1, "bad_batches": bad}
            label = "negative control" if guard == "none" else ""
            yield f"Guard/{schedule}/{guard}", C, counters, label


FAMILIES = (
    pipeline_rows,
    transfer_rows,
    overlap_rows,
    staging_rows,
    loader_rows,
    sweep_rows,
    guard_rows,
)


def result(simulated=False, repetitions=1, slower=1.0, seed=1, families=FAMILIES, **context_words):
    """`slower` divides the rates of the pinned rung: what compare must find."""
    chance = random.Random(seed)
    rows = []
    for family in families:
        for index, (name, time_ms, counters, label) in enumerate(family()):
            for repetition in range(repetitions):
                noise = 1.0 if repetitions == 1 else 1 + chance.uniform(-0.01, 0.01)
                if name == "Pipeline/pinned":
                    noise *= slower
                scaled = {}
                for key, value in counters.items():
                    factor = noise if key.endswith(("_ms", "_us")) else 1.0
                    if key.endswith(("_per_s", "_per_second", "GBps")):
                        factor = 1 / noise
                    scaled[key] = value * factor
                words = [label] if label else []
                row = {
                    "name": name,
                    "family_index": len(rows),
                    "per_family_instance_index": index,
                    "run_name": name,
                    "run_type": "iteration",
                    "repetitions": repetitions,
                    "repetition_index": repetition,
                    "threads": 1,
                    "iterations": 20,
                    "real_time": time_ms * noise,
                    "cpu_time": time_ms * noise / 2,
                    "time_unit": "ms",
                    **scaled,
                }
                words += ["simulated"] if simulated else []
                if words:
                    row["label"] = ", ".join(words)
                rows.append(row)
    skipped = [{"name": "Guard/two_streams/record/lag_ms:5", "reason": "needs a CUDA device"}]
    return {
        "context": context(simulated, **context_words),
        "benchmarks": rows,
        "skipped": skipped,
        "specs": {},
    }


def trace(simulated=True, steps=20):
    """Batch N+1 is copied while step N computes, as bench --timeline writes it."""
    names = ["host", "copy stream", "compute stream"]
    process = "Pipeline/streams" + (" (simulated)" if simulated else "")
    events = [{"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": process}}]
    for tid, name in enumerate(names):
        for key, value in (
            ("thread_name", {"name": name}),
            ("thread_sort_index", {"sort_index": tid}),
        ):
            events.append({"ph": "M", "name": key, "pid": 1, "tid": tid, "args": value})

    def add(tid, name, begin_ms, length_ms, step):
        events.append(
            {
                "ph": "X",
                "name": name,
                "pid": 1,
                "tid": tid,
                "ts": begin_ms * 1e3,
                "dur": length_ms * 1e3,
                "args": {"step": step},
            }
        )

    for step in range(steps):
        turn = step * C
        add(0, f"batch {step}", turn, C - 0.5, step)
        add(0, "get batch", turn + 0.5, 4.0, step)
        add(0, "copy batch", turn + 5.0, 1.5, step)
        add(0, "launch", turn + 7.0, L, step)
        add(1, "copy batch", turn + 6.0, H, step + 1)
        add(2, "compute", turn + 8.0, C - 0.2, step)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


if __name__ == "__main__":
    for file_name, value in (("example.json", result(True)), ("trace.json", trace())):
        with open(os.path.join(sys.argv[1], file_name), "w", encoding="utf-8") as out:
            json.dump(value, out, allow_nan=False)
