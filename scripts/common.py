"""What the Python scripts share: the model, how they end, files that are whole."""

import argparse
import contextlib
import errno
import json
import math
import os
import signal
import sys
import tempfile
import time

CLASSES = 1000
LABELS = 10


class UsageError(Exception):
    """The command line asks for something that cannot be: one line, exit status 2."""


class WriteError(Exception):
    """What was to be written could not be, for a full disk say: one line, exit status 3."""


class Interrupted(KeyboardInterrupt):
    """A signal asks for the end: one line, exit status 128 + its number, as of a shell's child."""

    def __init__(self, number, more=""):
        by = "" if number == signal.SIGINT else f" by {signal.Signals(number).name}"
        super().__init__(f"interrupted{by}{more}")
        self.number = number


def resnet18_class():
    try:
        from torchvision.models import resnet18
    except ImportError as error:
        raise UsageError(
            "torchvision is missing, and ResNet-18 is taken from it: "
            f"pip install torchvision==0.26.0 beside torch 2.11.0 ({error})"
        ) from None
    return resnet18


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise UsageError(message)

    def _print_message(self, message, file=None):
        """argparse's own says nothing if the help cannot be written."""
        if message:
            (file or sys.stderr).write(message)


def whole_number(low, high):
    def parse(text):
        try:
            value = int(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from {low} to {high}")
        return value

    return parse


def cores():
    return len(os.sched_getaffinity(0))


def bytes_text(value):
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value:.0f} B"


def files_of(paths):
    """The files that the paths stand for: a folder stands for the JSON files below it."""
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        yield from sorted(
            os.path.join(folder, name)
            for folder, _, names in os.walk(path)
            for name in names
            if name.endswith(".json")
        )


def same_file(one, other):
    """Whether both names lead to one file, links included. What is not there is no file."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def check_writable(path, inputs=()):
    """To be called before anything is done. `inputs` are the files and folders that are read."""
    file = os.path.realpath(path)  # a link stays, as in bench
    folder = os.path.dirname(file)
    if os.path.isdir(path) or not os.path.basename(path):
        raise UsageError(f"cannot write '{path}': it is a folder, a file name is needed")
    if os.path.islink(path) and not os.path.exists(path):
        raise UsageError(f"cannot write '{path}': it is a link to nothing")
    if os.path.exists(file) and not os.path.isfile(file):
        raise UsageError(f"cannot write '{path}': it is no regular file")
    if os.path.exists(file) and not os.access(file, os.W_OK):
        raise UsageError(f"cannot write '{path}': no permission to write it")
    if not os.path.isdir(folder):
        raise UsageError(f"cannot write '{path}': there is no folder '{folder}'")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write '{path}': no permission to write in '{folder}'")
    for read in files_of(inputs):
        if same_file(path, read):
            raise UsageError(
                f"cannot write '{path}': it is '{read}', which is read and would be lost"
            )


def write_whole(path, content):
    """Writes beside and renames: a reader sees the old file or the new one, whole. A link is
    followed. check_writable() has seen to it that nothing but a file is replaced."""
    data = content.encode() if isinstance(content, str) else content
    file_path = os.path.realpath(path)
    beside = None
    try:
        handle, beside = tempfile.mkstemp(
            dir=os.path.dirname(file_path), prefix=os.path.basename(file_path) + "."
        )
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(beside, 0o666 & ~mask)
        os.replace(beside, file_path)
    except BaseException as error:
        if beside:
            with contextlib.suppress(OSError):
                os.unlink(beside)
        if isinstance(error, OSError):
            raise WriteError(f"cannot write '{path}': {error.strerror}") from None
        raise


def write_json(path, value):
    write_whole(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path):
    """Parses strictly: what the standard forbids and Python's parser lets pass is a ValueError."""

    def unique(pairs):
        keys = [key for key, _ in pairs]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise ValueError(f"key {json.dumps(twice[0])} stands twice in one object")
        return dict(pairs)

    def no_constant(text):
        raise ValueError(f"{text} is no JSON")

    def finite(text):
        value = float(text)
        if not math.isfinite(value):
            raise ValueError(f"{text} is out of range")
        return value

    with open(path, encoding="utf-8") as file:
        return json.load(
            file, object_pairs_hook=unique, parse_constant=no_constant, parse_float=finite
        )


def read_with(use, path, what):
    """use(what the JSON file holds). A file that cannot be read, or in which `use` does not find
    what it looks for, is a UsageError: it is not `what`."""
    try:
        return use(read_json(path))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path}: not {what}: {error}") from None
    except (KeyError, TypeError, AttributeError, ZeroDivisionError, RecursionError):
        raise UsageError(f"{path}: not {what}") from None


# What only writing meets.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
# How long after a signal the next one is its echo: `timeout` signals its child and then the group.
ECHO_S = 1.0


@contextlib.contextmanager
def interruptible():
    """Within it SIGINT, SIGTERM and SIGHUP raise Interrupted, so that whatever a script has begun
    is ended: its processes, its folders."""
    last = -math.inf

    def interrupt(number, _):
        nonlocal last
        before, last = last, time.monotonic()
        if last - before > ECHO_S:
            raise Interrupted(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # What is ignored, by nohup say, stays so.
    old = {number: signal.getsignal(number) for number in numbers}
    old = {number: handler for number, handler in old.items() if handler != signal.SIG_IGN}
    for number in old:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def complain(name, words):
    with contextlib.suppress(OSError):  # stderr may be as full as the rest
        print(f"{name}: {words}", file=sys.stderr, flush=True)


def drop_output():
    """What stdout still holds cannot be written, so that Python must not try again at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def script_name():
    return os.path.basename(sys.argv[0]).removesuffix(".py") or "python"


def missing(error):
    """For a library that only scripts/look.sh brings: what to do, before there is a main."""
    name, what = script_name(), " ".join(str(error).split())
    complain(name, f"{what}: scripts/look.sh {name} … brings what is needed")
    sys.exit(2)


def before_main(kind, error, trace):
    """Libraries take seconds to load, and an interrupt then needs no more words than later."""
    if issubclass(kind, KeyboardInterrupt):
        complain(script_name(), "interrupted")
    else:
        sys.__excepthook__(kind, error, trace)


sys.excepthook = before_main


def run(main, name):
    """The exit status of main(arguments), and one line for what ended it: 2 for wrong usage (it
    raises UsageError), 3 if something could not be written, 128 + N after signal N."""
    try:
        with interruptible():
            try:
                status = main(sys.argv[1:])
            except SystemExit as end:  # of --help
                status = end.code
            if sys.stdout:
                sys.stdout.flush()
            return status
    except UsageError as error:
        complain(name, error)
        return 2
    except WriteError as error:
        complain(name, error)
        return 3
    except BrokenPipeError:
        # Whoever read us, `head` say, has seen enough.
        drop_output()
        return 0
    except OSError as error:
        # Files that are read are UsageErrors. stdout has no name here.
        written = not error.filename or error.errno in FULL
        what = f"'{error.filename}'" if error.filename else "the output"
        complain(name, f"cannot {'write' if written else 'use'} {what}: {error.strerror or error}")
        drop_output()
        return 3
    except Interrupted as end:
        complain(name, end)
        return 128 + end.number
