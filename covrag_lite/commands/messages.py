"""How a command ends after a mistake of its user: one sentence and a status, no traceback."""

import argparse
import builtins
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from covrag_lite.files import describe_error

USAGE_STATUS = 2
INTERRUPTED_STATUS = 130  # as a shell reports Ctrl-C
# Errors that a user can cause.
CAUSED = (ValueError, OSError, MemoryError, ModuleNotFoundError)
# Errors of this package that a user can cause; by name, because plug-ins define some of them.
CAUSED_NAMES = (
    "ParameterError",
    "SearchError",
    "EndpointError",
    "DataMissing",
    "DataChanged",
    "RecordDamaged",
)
# bitsandbytes recommends a kernel here that our engines do not use.
CHATTY_LOGGER = "bitsandbytes.backends.cpu.ops"
PACKAGE = str(Path(__file__).resolve().parents[1])


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence."""

    def error(self, message: str) -> NoReturn:
        fail(self.prog, f"{message} ({self.prog} --help lists all options)")


def fail(command: str, message: str, status: int = USAGE_STATUS) -> NoReturn:
    """End the program with one sentence that begins with the command that was typed."""
    print(f"{command}: {message}", file=sys.stderr)
    sys.exit(status)


def is_caused(error_name: str) -> bool:
    """Return whether a user can cause an error of this name, so that its message is enough."""
    kind = getattr(builtins, error_name, Exception)
    return error_name in CAUSED_NAMES or issubclass(kind, CAUSED)


@contextmanager
def plain_messages(command: str) -> Iterator[None]:
    """Show errors that a user can cause, and this package's warnings, as one sentence each."""

    def show_warning(message: Warning | str, category: type, filename: str, *rest: object) -> None:
        if filename.startswith(PACKAGE):  # other packages warn about their own code
            print(f"{command}: {message}", file=sys.__stderr__)

    logging.getLogger(CHATTY_LOGGER).addFilter(lambda record: "gemm_4bit" not in str(record.msg))
    with warnings.catch_warnings():
        warnings.showwarning = show_warning
        try:
            yield
        except KeyboardInterrupt:
            fail(command, "interrupted", INTERRUPTED_STATUS)
        except BrokenPipeError:  # the reader of our output, such as `head`, has ended
            sys.stdout = None
            sys.exit(0)
        except Exception as error:
            if not isinstance(error, CAUSED) and type(error).__name__ not in CAUSED_NAMES:
                raise
            fail(command, describe_error(error))
