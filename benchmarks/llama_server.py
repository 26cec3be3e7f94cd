"""A server of llama.cpp with the OpenAI API, from the wheel `xllamacpp`, in its own process.

    python -m benchmarks.llama_server model.gguf --port 8080

`LlamaServer` starts and stops such a process, for tests and for the comparison in `llama_cpp`.
"""

import argparse
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

CONTEXT = 4096  # tokens per slot: two prompts of five passages fit


class LlamaServer:
    """A server process on this machine; it can be killed and started again at the same address.

    Example:
        with LlamaServer(Path("model.gguf")) as server:
            print(server.url)  # http://127.0.0.1:<port>
    """

    def __init__(self, model: Path, threads: int = 2, slots: int = 1):
        self.model = model
        self.threads = threads
        self.slots = slots
        self.port = 0  # the system chooses a free one at the first start
        self.process: subprocess.Popen | None = None

    @property
    def url(self) -> str:
        """Return the address without the path of the API."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the process and wait until the model is loaded."""
        options = {"port": self.port, "threads": self.threads, "slots": self.slots}
        words = [sys.executable, "-m", __name__, str(self.model)]
        for name, value in options.items():
            words += [f"--{name}", str(value)]
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        address = self.process.stdout.readline().strip()
        if not address:
            raise RuntimeError(f"the server did not start; try: {' '.join(words)}")
        self.port = int(address.rpartition(":")[2])

    def kill(self) -> None:
        """End the process at once, in the middle of whatever it writes."""
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            self.process = None

    def __enter__(self) -> "LlamaServer":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


def main() -> None:
    """Serve a GGUF file on this machine until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("--port", type=int, default=0, help="0 chooses a free one")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--slots", type=int, default=1, help="texts written at the same time")
    options = parser.parse_args()

    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = options.model
    settings.hostnames = ["127.0.0.1"]
    settings.port = options.port
    settings.n_ctx = CONTEXT * options.slots
    settings.n_parallel = options.slots
    settings.cpuparams.n_threads = options.threads
    settings.cpuparams_batch.n_threads = options.threads
    settings.n_gpu_layers = 0
    settings.ui = False
    settings.warmup = False
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
