#!/usr/bin/env python3
"""The published experiment in PyTorch: the five rungs that feedrate's Pipeline rows repeat in C++.

A training loop of torchvision's ResNet-18 on random images, fed in five ways. The order of calls in
each schedule is the published one, faults included: the last two rungs drop a device batch while
the compute stream may still read it (`--guard record` mends that, `--guard none` is as published).
The result file has Google Benchmark's schema and the row and counter names of `bench`, so that one
tool reads both. `scripts/interleave.py` runs the two in turn.

`--record FILE` measures nothing: recorded.py writes what the C++ ResNet-18 must reproduce.
"""

import contextlib
import datetime
import gc
import math
import os
import platform
import socket
import subprocess
import sys
import time

import common
import recorded

ROWS = {  # what --rung takes, and the row it makes; the order is that of the experiment
    "baseline": "Pipeline/baseline",
    "workers": "Pipeline/workers",
    "pinned": "Pipeline/pinned",
    "streams": "Pipeline/streams",
    "prefetch": "Pipeline/prefetch",
    "compute": "Compute/resnet18",
    "loader": "Loader/python",  # only when asked for; its workers are part of its name
}
LOADER = "loader"
WINDOWS = ("steady", "published")
GUARDS = ("none", "record")
COLOURS = {"batch": "blue", "get batch": "red", "copy batch": "yellow", "compute": "green"}


# Dataset and loader


class RandomImages:
    """Makes each sample when it is asked for, and is longer than any run."""

    def __init__(self, image):
        self._image = image

    def __len__(self):
        return 1 << 40

    def __getitem__(self, index):
        import torch

        return torch.randn(3, self._image, self._image), index % common.LABELS


def end_in_silence(worker):
    """Whoever interrupts the loop cuts a worker that is handing over a batch: its thread for that
    would print a traceback, beside the one line of the loop."""
    before = sys.excepthook

    def hook(kind, error, trace):
        if not issubclass(kind, (ConnectionError, EOFError, KeyboardInterrupt)):
            before(kind, error, trace)

    sys.excepthook = hook


def make_loader(options, workers, pinned):
    from torch.utils.data import DataLoader

    # Without a GPU there is nothing to pin for, and PyTorch would only warn.
    pin_memory = pinned and options.device.startswith("cuda")
    return DataLoader(
        RandomImages(options.image),
        batch_size=options.batch,
        num_workers=workers,
        pin_memory=pin_memory,
        worker_init_fn=end_in_silence,
    )


# Copy and step


def to_device(batch, device, non_blocking=False):
    return [tensor.to(device, non_blocking=non_blocking) for tensor in batch]


class Trainer:
    """ResNet-18, its loss and its optimiser on one device."""

    def __init__(self, device):
        import torch

        self._model = common.resnet18_class()(num_classes=common.CLASSES).to(device).train()
        self._loss = torch.nn.CrossEntropyLoss()
        self._optimizer = torch.optim.Adam(self._model.parameters())

    def step(self, batch):
        images, labels = batch
        loss = self._loss(self._model(images), labels)
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad()


# Device, marks, window


class Cpu:
    """No streams: everything ends before the next line starts."""

    name = "cpu"

    def __init__(self):
        self.compute_stream = None

    def new_stream(self):
        return None

    def on(self, stream):
        return contextlib.nullcontext()

    def wait(self, waiter, other):
        pass

    def record(self, batch, stream):
        pass

    def synchronize(self):
        pass

    def mark(self):
        return time.perf_counter()

    def between_ms(self, first, second):
        return (second - first) * 1e3

    def profiler(self, start):
        pass


class Cuda:
    """One GPU. Marks are recorded on `compute_stream`, which may be replaced before a run."""

    def __init__(self, device):
        import torch

        self._cuda = torch.cuda
        self.name = device
        torch.cuda.set_device(torch.device(device, 0) if device == "cuda" else device)
        torch.cuda.empty_cache()  # a rung does not inherit the one before
        self.compute_stream = torch.cuda.current_stream()

    def new_stream(self):
        return self._cuda.Stream()

    def on(self, stream):
        return self._cuda.stream(stream)

    def wait(self, waiter, other):
        waiter.wait_stream(other)

    def record(self, batch, stream):
        for tensor in batch:
            tensor.record_stream(stream)

    def synchronize(self):
        self._cuda.synchronize()

    def mark(self):
        event = self._cuda.Event(enable_timing=True)
        event.record(self.compute_stream)
        return event

    def between_ms(self, first, second):
        return first.elapsed_time(second)

    def profiler(self, start):
        if start:
            self._cuda.profiler.start()
        else:
            self._cuda.profiler.stop()


def make_device(name):
    return Cuda(name) if name.startswith("cuda") else Cpu()


def make_ranges(device):
    """Returns a function that opens an NVTX range, in colour if the nvtx package is there."""
    try:
        import nvtx

        return lambda name: nvtx.annotate(name, color=COLOURS[name])
    except ImportError:
        pass
    if device.name.startswith("cuda"):
        import torch

        return torch.cuda.nvtx.range
    return lambda name: contextlib.nullcontext()


class Window:
    """Counts the steps and times the measured ones.

    steady: from the end of the last warm-up step's compute to the end of the last measured one's,
    with no synchronisation between. published: synchronise, steps, synchronise.
    """

    def __init__(self, options, device):
        self._options = options
        self._device = device
        self._published = options.window == "published"
        self._marks = []
        self._index = 0
        self._wall_ms = 0.0
        self._cpu_ms = 0.0

    def steps(self):
        options = self._options
        for self._index in range(-options.warmup, options.steps + options.cooldown):
            if self._index == 0:
                self._open()
            yield
            if self._index == options.steps - 1:
                self._close()

    def step_launched(self):
        """To be called when a step has been put on the compute stream, before anything else."""
        if not self._published and -1 <= self._index < self._options.steps:
            self._marks.append(self._device.mark())

    def _open(self):
        if self._published or self._options.capture:
            self._device.synchronize()
        if self._options.capture:
            self._device.profiler(start=True)
        self._cpu_ms = time.process_time() * 1e3
        self._wall_ms = time.perf_counter() * 1e3

    def _close(self):
        if self._published or self._options.capture:
            self._device.synchronize()
        self._wall_ms = time.perf_counter() * 1e3 - self._wall_ms
        self._cpu_ms = time.process_time() * 1e3 - self._cpu_ms
        if self._options.capture:
            self._device.profiler(start=False)

    def results(self):
        """Times in ms: the window, the main process's CPU time in it, each step (if steady)."""
        self._device.synchronize()
        if self._published:
            return self._wall_ms, self._cpu_ms, []
        between_ms = self._device.between_ms
        steps_ms = [between_ms(*pair) for pair in zip(self._marks, self._marks[1:], strict=False)]
        return between_ms(self._marks[0], self._marks[-1]), self._cpu_ms, steps_ms


# Schedules: the training loops


def serial(batches, device, trainer, window, ranges, non_blocking):
    for _ in window.steps():
        with ranges("batch"):
            with ranges("get batch"):
                batch = next(batches)
            with ranges("copy batch"):
                # The host's batch is given back by this very assignment, before the launch.
                batch = to_device(batch, device.name, non_blocking)
            with ranges("compute"):
                trainer.step(batch)
                window.step_launched()


def two_streams(batches, device, trainer, window, ranges, guard):
    copy_stream = device.new_stream()

    def fetch_and_copy():
        with ranges("get batch"):
            batch = next(batches)
        with ranges("copy batch"), device.on(copy_stream):
            batch = to_device(batch, device.name, non_blocking=True)
        if guard == "record":
            device.record(batch, device.compute_stream)
        return batch

    upcoming = fetch_and_copy()
    for _ in window.steps():
        with ranges("batch"):
            batch = upcoming
            with ranges("compute"), device.on(device.compute_stream):
                device.wait(device.compute_stream, copy_stream)
                trainer.step(batch)
                window.step_launched()
            upcoming = fetch_and_copy()


class Prefetcher:
    """Hands out batches that are on the device, and copies the next one before it does."""

    def __init__(self, batches, device, ranges, guard):
        self._batches = batches
        self._device = device
        self._ranges = ranges
        self._guard = guard
        self._stream = device.new_stream()
        self._upcoming = self._preload()

    def __iter__(self):
        return self

    def __next__(self):
        self._device.wait(self._device.compute_stream, self._stream)
        batch = self._upcoming
        if self._guard == "record":
            self._device.record(batch, self._device.compute_stream)
        self._upcoming = self._preload()
        return batch

    def _preload(self):
        batch = next(self._batches)
        with self._ranges("copy batch"), self._device.on(self._stream):
            return to_device(batch, self._device.name, non_blocking=True)


def prefetcher(batches, device, trainer, window, ranges, guard):
    ready = Prefetcher(batches, device, ranges, guard)
    for _ in window.steps():
        with ranges("batch"):
            with ranges("get batch"):
                batch = next(ready)
            with ranges("compute"):
                trainer.step(batch)
                window.step_launched()


def compute_alone(batch, trainer, window, ranges):
    for _ in window.steps():
        with ranges("batch"), ranges("compute"):
            trainer.step(batch)
            window.step_launched()


def run_rung(rung, options):
    """Runs one rung once. Returns the window's results."""
    import torch

    torch.manual_seed(0)
    device = make_device(options.device)
    if rung == "streams":
        device.compute_stream = device.new_stream()
    ranges = make_ranges(device)
    trainer = Trainer(device.name)
    # Before the workers start, or the model's first step would give their queue a head start.
    resident = to_device(next(iter(make_loader(options, workers=0, pinned=False))), device.name)
    device.synchronize()
    with device.on(device.compute_stream):
        trainer.step(resident)
    device.synchronize()
    window = Window(options, device)
    if rung == "compute":
        compute_alone(resident, trainer, window, ranges)
        return window.results()
    del resident

    workers = 0 if rung == "baseline" else options.workers
    pinned = rung in ("pinned", "streams", "prefetch")
    batches = iter(make_loader(options, workers, pinned))
    if rung == "streams":
        two_streams(batches, device, trainer, window, ranges, options.guard)
    elif rung == "prefetch":
        prefetcher(batches, device, trainer, window, ranges, options.guard)
    else:
        serial(batches, device, trainer, window, ranges, non_blocking=pinned)
    return window.results()


def run_loader(options):
    """The DataLoader alone, each batch dropped at once. Times in ms: window, CPU time, first batch.

    As bench's Loader rows: before the window, the head start of the queue and one more round of
    the workers. The start of the worker processes is in the first batch's time.
    """
    import torch

    torch.manual_seed(0)
    prefetch = 2  # PyTorch's default, batches a worker
    warmup = options.workers * prefetch + options.workers
    started = time.perf_counter()
    batches = iter(make_loader(options, options.workers, pinned=False))
    first_batch_ms = 0.0
    for number in range(1, warmup + options.steps + 1):
        next(batches)
        now = time.perf_counter()
        if number == 1:
            first_batch_ms = (now - started) * 1e3
        if number == warmup:
            window, cpu = now, time.process_time()
    return (now - window) * 1e3, (time.process_time() - cpu) * 1e3, first_batch_ms


# Report


def quantile(values, share):
    """Linear between the closest ranks."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def batch_bytes(options):
    floats = options.batch * 3 * options.image * options.image
    return floats * 4 + options.batch * 8


def row_name(rung, options):
    return f"{ROWS[rung]}/workers:{options.workers}" if rung == LOADER else ROWS[rung]


def blank_row(rung, index, repetition, options):
    name = row_name(rung, options)
    return {
        "name": name,
        "family_index": index,
        "per_family_instance_index": 0,
        "run_name": name,
        "run_type": "iteration",
        "repetitions": options.repetitions,
        "repetition_index": repetition,
        "threads": 1,
    }


def put_rate(row, counter, window_ms, cpu_ms, options):
    """What rows of steps and of batches have in common. Returns the rate, which `counter` is."""
    rate = options.steps * 1e3 / window_ms
    row.update(
        iterations=options.steps,
        real_time=window_ms / options.steps,
        cpu_time=cpu_ms / options.steps,
        time_unit="ms",
        items_per_second=rate * options.batch,
        images_per_s=rate * options.batch,
    )
    row[counter] = rate
    return rate


def timed_row(row, results, options):
    window_ms, cpu_ms, steps_ms = results
    steps_per_s = put_rate(row, "steps_per_s", window_ms, cpu_ms, options)
    if row["name"].startswith("Pipeline/"):
        row["bytes_per_second"] = steps_per_s * batch_bytes(options)
    if steps_ms:
        row["step_p50_ms"] = quantile(steps_ms, 0.50)
        row["step_p95_ms"] = quantile(steps_ms, 0.95)
    return row


def loader_row(row, results, options):
    window_ms, cpu_ms, first_batch_ms = results
    batches_per_s = put_rate(row, "batches_per_s", window_ms, cpu_ms, options)
    row["GBps"] = batches_per_s * batch_bytes(options) * 1e-9
    row["first_batch_ms"] = first_batch_ms
    return row


def measured_row(rung, row, options):
    if rung == LOADER:
        return loader_row(row, run_loader(options), options)
    return timed_row(row, run_rung(rung, options), options)


def failed_row(row, message):
    row.update(
        error_occurred=True,
        error_message=message,
        iterations=0,
        real_time=0.0,
        cpu_time=0.0,
        time_unit="ms",
    )
    return row


def cpu_model():
    with contextlib.suppress(OSError):
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    return platform.machine()


def git_revision():
    here = os.path.dirname(os.path.abspath(__file__))
    command = ["git", "-C", here, "rev-parse", "--short=12", "HEAD"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return answer.stdout.strip() if answer.returncode == 0 else "unknown"


def describe(options):
    import torch
    import torchvision

    context = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "host_name": socket.gethostname(),
        "executable": "scripts/reference.py",
        "num_cpus": os.cpu_count(),
        "caches": [],
        "load_avg": list(os.getloadavg()),
        "library_build_type": "release",
        "feedrate.implementation": "reference",
        "feedrate.device": options.device,
        "feedrate.simulated": "false",
        "feedrate.build_type": "release",
        "feedrate.git_revision": git_revision(),
        "feedrate.cpu": cpu_model(),
        "feedrate.cores": str(common.cores()),
        "feedrate.torch": torch.__version__,
        "feedrate.torchvision": torchvision.__version__,
        "feedrate.python": platform.python_version(),
        "feedrate.intra_op_threads": str(torch.get_num_threads()),
        "feedrate.batch": str(options.batch),
        "feedrate.image": str(options.image),
        "feedrate.workers": str(options.workers),
        "feedrate.steps": str(options.steps),
        "feedrate.warmup": str(options.warmup),
        "feedrate.window": options.window,
        "feedrate.guard": options.guard,
        "feedrate.capture": "true" if options.capture else "false",
    }
    if options.device.startswith("cuda"):
        context["feedrate.gpu"] = torch.cuda.get_device_name(options.device)
        context["feedrate.cuda"] = str(torch.version.cuda)
        context["feedrate.cudnn"] = str(torch.backends.cudnn.version())
    return context


def print_head():
    print(f"{'row':<20} {'steps/s':>9} {'images/s':>10} {'ms/step':>9} {'p50 ms':>9} {'p95 ms':>9}")


def print_row(row):
    if row.get("error_occurred"):
        print(f"{row['name']:<20} ERROR: {row['error_message']}", flush=True)
        return
    quantiles = (row.get(key) for key in ("step_p50_ms", "step_p95_ms"))
    shown = " ".join(f"{'-':>9}" if ms is None else f"{ms:9.2f}" for ms in quantiles)
    rate = row["batches_per_s"] if "batches_per_s" in row else row["steps_per_s"]
    print(
        f"{row['name']:<20} {rate:9.3f} {row['images_per_s']:10.1f} "
        f"{row['real_time']:9.2f} {shown}",
        flush=True,
    )


def measure(options):
    common.resnet18_class()
    context = describe(options)
    steady = options.window == "steady"
    if steady and options.warmup + options.steps < 2 * options.workers:
        print(
            f"reference: note: {options.warmup} + {options.steps} steps are fewer than the "
            f"{2 * options.workers} batches that {options.workers} workers may have queued",
            file=sys.stderr,
        )
    print_head()
    rows = []
    for index, rung in enumerate(options.rung):
        for repetition in range(options.repetitions):
            row = blank_row(rung, index, repetition, options)
            try:
                rows.append(measured_row(rung, row, options))
            except (RuntimeError, OSError, MemoryError, ValueError) as error:
                lines = str(error).splitlines()
                rows.append(failed_row(row, lines[0] if lines else type(error).__name__))
            print_row(rows[-1])
            # A failed rung's frames hold its batches and its workers until they are collected.
            gc.collect()
    if options.output:
        common.write_json(options.output, {"context": context, "benchmarks": rows})
    return 1 if any(row.get("error_occurred") for row in rows) else 0


# Command line


def add_workload_flags(parser):
    """The flags that say what is measured; interleave.py hands the same ones to both programs."""
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu (default cuda)")
    parser.add_argument(
        "--workers",
        type=common.whole_number(1, 4096),
        default=common.cores(),
        help="loader processes (default: all cores)",
    )
    count = common.whole_number(1, 1000000)
    parser.add_argument("--batch", type=common.whole_number(1, 65536), default=64)
    parser.add_argument(
        "--image", type=common.whole_number(1, 16384), default=512, help="pixels a side"
    )
    parser.add_argument("--steps", type=count, default=30, help="measured steps")
    parser.add_argument("--warmup", type=count, default=10)
    parser.add_argument("--window", choices=WINDOWS, default="steady")


def parse(arguments):
    parser = common.Parser(
        description="The published experiment in PyTorch: the five rungs of bench's Pipeline.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--rung", action="append", choices=tuple(ROWS), help="repeatable (default: all but loader)"
    )
    add_workload_flags(parser)
    parser.add_argument("--cooldown", type=common.whole_number(0, 1000000), default=1)
    parser.add_argument("--repetitions", type=common.whole_number(1, 1000), default=1)
    parser.add_argument(
        "--guard",
        choices=GUARDS,
        default="none",
        help="none: as published, batches may be torn; record: record_stream",
    )
    parser.add_argument(
        "--capture",
        action="store_true",
        help="let the CUDA profiler record just the measured steps; synchronises around them",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write Google Benchmark's JSON")
    parser.add_argument("--record", metavar="FILE", help="write recorded values, measure nothing")
    options = parser.parse_args(arguments)
    # In the order of the experiment, each once, so that row names stay unique.
    default = [rung for rung in ROWS if rung != LOADER]
    options.rung = [rung for rung in ROWS if rung in (options.rung or default)]
    check_device_name(options.device)
    if options.device == "cuda":
        options.device = "cuda:0"  # what PyTorch takes for a device to be made current
    for path in (options.output, options.record):
        if path is not None:
            common.check_writable(path)
    total_bytes = batch_bytes(options)
    if total_bytes > 1 << 40:
        raise common.UsageError(
            f"a batch of {options.batch} images of {options.image} pixels a side takes "
            f"{total_bytes} bytes; at most {1 << 40} make sense"
        )
    return options


def check_device_name(name):
    kind, colon, index = name.partition(":")
    if kind == "cuda" and (not colon or index.isdecimal()):
        return
    if name != "cpu":
        raise common.UsageError(f"unknown device '{name}': use cuda, cuda:N or cpu")


def check_device(name):
    """Asks PyTorch, so it comes after everything that can be checked without it."""
    try:
        import torch
    except ImportError as error:
        raise common.UsageError(
            f"PyTorch is missing: pip install torch==2.11.0 ({error})"
        ) from None
    if not name.startswith("cuda"):
        return
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        raise common.UsageError(f"--device={name}, but PyTorch sees no GPU here: use --device=cpu")
    index = int(name.partition(":")[2] or 0)
    if index >= count:
        raise common.UsageError(f"there is no device '{name}': the last one is cuda:{count - 1}")


def main(arguments):
    options = parse(arguments)
    if options.record:
        check_device("cpu")
        return recorded.record(options.record)
    check_device(options.device)
    try:
        return measure(options)
    except common.Interrupted as end:
        raise common.Interrupted(end.number, ", nothing written") from None


if __name__ == "__main__":
    sys.exit(common.run(main, "reference"))
