"""Counters: which direction is better, and what each one is. One table for compare and report."""

import re

MORE, LESS, NEITHER = "more", "less", "neither"

# In the order in which a table shows them.
COUNTERS = {
    # the loop
    "steps_per_s": (MORE, "measured steps over the window's wall time"),
    "images_per_s": (MORE, "images over the window's wall time"),
    "limit_steps_per_s": (MORE, "the tightest bound of a single stage; the limit names it"),
    "of_limit": (NEITHER, "steps_per_s over limit_steps_per_s"),
    "compute_ms": (LESS, "part of a step in which the device computed, check included"),
    "exposed_copy_ms": (LESS, "part in which it waited for a copy that was running"),
    "exposed_fetch_ms": (LESS, "part in which it waited and the loop waited for a batch"),
    "exposed_host_ms": (LESS, "part in which it waited and the loop did something else"),
    "other_ms": (LESS, "the rest: all was submitted and the device had not begun"),
    "step_p50_ms": (LESS, "median time from one step's end to the next one's"),
    "step_p95_ms": (LESS, "95th percentile of the same"),
    "spread": (NEITHER, "how far the samples lie apart: distance of the quartiles / median"),
    "h2d_GBps": (MORE, "bytes over the time the link was copying, 1e9 bytes"),
    "feed_GBps": (MORE, "bytes over wall time, 1e9 bytes"),
    "overlap": (MORE, "share of the copy time during which a step computed"),
    "gpu_idle": (LESS, "share of the window in which the device neither copied nor computed"),
    "bad_batches": (LESS, "steps whose batch was not the one that was made"),
    "peak_device_GB": (LESS, "most device memory in use, 1e9 bytes"),
    "make_ms": (LESS, "F: one producer makes a batch; bound F / workers"),
    "pin_ms": (LESS, "P + U: the pin thread copies a batch and releases its memory"),
    "copy_ms": (LESS, "H: a batch's copy on the link"),
    "launch_ms": (LESS, "L: the host enqueues a step into an empty queue"),
    "host_ms": (LESS, "launch, submission and release of a step, on the host"),
    "step_ms": (LESS, "C: a step alone on the device, check included"),
    "check_ms": (LESS, "the fingerprint of the batch, part of the step"),
    "predicted_steps_per_s": (NEITHER, "what the model gives"),
    # transfers
    "GBps": (MORE, "bytes over time, 1e9 bytes"),
    "other_GBps": (MORE, "the other direction's rate meanwhile"),
    "best_GBps": (MORE, "the fastest copy's rate"),
    "cached_GBps": (MORE, "the same with buffers that fit the CPU's last-level cache"),
    "copy_us": (LESS, "median time of one copy"),
    "min_us": (LESS, "shortest copy"),
    "of_link": (MORE, "share of the link's rate"),
    "of_pinned": (MORE, "share of the best pinned row"),
    "of_alone": (MORE, "share of the same direction's rate alone"),
    "return_us": (LESS, "until the call returns"),
    "done_us": (LESS, "until the data is there"),
    "waits_for_stream": (LESS, "1 if the call waited for earlier work on its stream"),
    "busy_ms": (NEITHER, "the work that stood before the copy on its stream"),
    "efficiency": (MORE, "1 at max(copy, compute), 0 at their sum"),
    "ratio_measured": (NEITHER, "copy time over compute time as they were"),
    # staging
    "fill_ms": (LESS, "a batch is written"),
    "release_ms": (LESS, "its memory is given back"),
    "faults": (LESS, "page faults"),
    "lock_ms_per_GiB": (LESS, "page-locking 2^30 bytes"),
    "unlock_ms_per_GiB": (LESS, "unlocking them"),
    "touch_ms_per_GiB": (LESS, "touching each page once"),
    "huge_share": (NEITHER, "share of the memory in huge pages"),
    "reuses_to_pay": (LESS, "batches after which page-locking has paid"),
    # loaders
    "batches_per_s": (MORE, "batches over wall time"),
    "first_batch_ms": (LESS, "until the first batch"),
    "cpu_s_per_batch": (LESS, "CPU time of all workers for a batch"),
    "faults_per_batch": (LESS, "page faults for a batch"),
    "scaling": (MORE, "rate over workers times the rate of one"),
    "of_in_cache": (MORE, "share of the rate without memory"),
    # Google Benchmark's own
    "items_per_second": (MORE, "images over wall time"),
    "bytes_per_second": (MORE, "bytes fed over wall time"),
    "real_time_ms": (LESS, "wall time of an iteration"),
    "cpu_time_ms": (LESS, "CPU time of the training loop's process for an iteration"),
}
# A counter that is not in the table: its unit says which direction is better.
BY_NAME = (
    (re.compile(r"(_per_s|_per_second|GBps)$"), MORE),
    (re.compile(r"(_ms|_us|_ns|_s|_ms_per_GiB|_GB)$"), LESS),
)


def better(name):
    if name in COUNTERS:
        return COUNTERS[name][0]
    for pattern, direction in BY_NAME:
        if pattern.search(name):
            return direction
    return NEITHER


def meaning(name):
    return COUNTERS.get(name, ("", ""))[1]


def in_order(names):
    known = list(COUNTERS)
    names = list(names)
    return sorted(names, key=lambda n: (known.index(n) if n in COUNTERS else len(known), n))
