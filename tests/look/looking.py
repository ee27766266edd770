"""What the tests of plots, report and compare share."""

import contextlib
import io
import json
import os
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
SCRIPTS = os.path.join(ROOT, "scripts")
DATA = os.path.join(ROOT, "tests", "data", "results")
RECORDED = ("bench", "interleaved", "simulated", "skipped", "google_benchmark")
sys.path.insert(0, SCRIPTS)

import common  # noqa: E402


def data(name):
    return os.path.join(DATA, name + ".json")


def loaded(name):
    with open(data(name), encoding="utf-8") as file:
        return json.load(file)


@contextlib.contextmanager
def folder_of(**files):
    """A folder with these files: a text as it is, anything else as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        for name, value in files.items():
            with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as file:
                file.write(value if isinstance(value, str) else json.dumps(value))
        yield folder


def call(main, *arguments):
    """(exit status, stdout, stderr) of a script's main as the shell sees it."""
    out, err = io.StringIO(), io.StringIO()
    before = sys.argv
    sys.argv = ["script", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = common.run(main, "script")
    finally:
        sys.argv = before
    return status, out.getvalue(), err.getvalue()
