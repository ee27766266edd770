"""What the Python scripts share: the model, bad usage in one line, files that are whole."""

import argparse
import json
import math
import os
import sys
import tempfile

CLASSES = 1000
LABELS = 10


class UsageError(Exception):
    """The command line asks for something that cannot be: one line, exit status 2."""


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


def check_writable(path):
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.path.basename(path):
        raise UsageError(f"cannot write '{path}': it is a folder, a file name is needed")
    if not os.path.isdir(folder):
        raise UsageError(f"cannot write '{path}': there is no folder '{folder}'")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write '{path}': no permission to write in '{folder}'")


def write_whole(path, text):
    """Writes beside and renames: a reader sees the old file or the new one, whole."""
    folder = os.path.dirname(os.path.abspath(path))
    handle, beside = tempfile.mkstemp(dir=folder, prefix=os.path.basename(path) + ".")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(beside, 0o666 & ~mask)
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
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
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path}: not {what}: {error}") from None
    except (KeyError, TypeError, AttributeError, ZeroDivisionError, RecursionError):
        raise UsageError(f"{path}: not {what}") from None


def run(main, name):
    """The exit status of main(arguments), which raises UsageError for wrong usage: one line, 2."""
    try:
        return main(sys.argv[1:])
    except UsageError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # Whoever read us, `head` say, has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
