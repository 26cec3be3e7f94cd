"""The main text of an HTML page, by trafilatura in a process of its own.

A page can be built to keep a parser busy for hours or to break it. So the parser runs in a child with little memory,
which is killed when its time is up; `Extractor` starts it and speaks with it in lines of JSON. The child runs this very
file, outside of the package.
"""

import json
import subprocess
import sys
import threading

SECONDS = 20.0  # for one page; an ordinary one takes a tenth of a second
MEMORY = 2 * 1024**3  # bytes of the child's address space


class Extractor:
    """A child process that reads pages; use it in a `with` block."""

    def __init__(self, seconds: float | None = None):
        self.seconds = SECONDS if seconds is None else seconds
        self.child: subprocess.Popen | None = None

    def __enter__(self) -> "Extractor":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def extract(self, html: str) -> tuple[str, str] | None:
        """Title and main text, both empty where there is none; None where the page could not be read in its time."""
        if self.child is None:
            self.child = self.start()
        child, line = self.child, ""
        timer = threading.Timer(self.seconds, child.kill)
        timer.start()
        try:
            child.stdin.write(json.dumps(html) + "\n")
            child.stdin.flush()
            line = child.stdout.readline()
        except BrokenPipeError:  # it is dead
            pass
        timer.cancel()
        if not line.endswith("\n"):
            self.stop()
            return None
        title, text = json.loads(line)
        return title, text

    def start(self) -> subprocess.Popen:
        """A new child; -I keeps its path free of this room's files, and what it logs is a stranger's text."""
        child = subprocess.Popen(
            [sys.executable, "-I", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="ascii",
        )
        if not child.stdout.readline():  # it says when it is ready: loading the parser is not reading a page
            raise RuntimeError("the child that reads pages does not start; is trafilatura installed as env/ pins it?")
        return child

    def stop(self) -> None:
        """End the child."""
        if self.child is not None:
            self.child.kill()
            self.child.communicate()
            self.child = None


def serve() -> None:
    """The child: a page a line comes in, its title and text go out."""
    import resource

    import trafilatura

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    print("ready", flush=True)
    for line in sys.stdin:
        found = trafilatura.bare_extraction(json.loads(line), include_comments=False, with_metadata=True)
        title, text = (found.title or "", found.text or "") if found else ("", "")
        print(json.dumps([title, text]), flush=True)


if __name__ == "__main__":
    serve()
