"""What tests do to the processes that they start."""

import signal


def default_signals():
    """Whatever started the tests may ignore them, and what is ignored stays so."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
