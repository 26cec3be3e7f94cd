"""How papermill runs our notebooks: an encrypted kernel, and a bar that shows a cell's progress.

papermill's own bar counts cells, so it does not move while one cell runs for minutes. Here the bar
ends with the bar of the running cell, such as "answer: 3/12 batch, 00:30 left".
"""

import os
import sys
from typing import Any

from nbformat import NotebookNode
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, NotebookExecutionManager, papermill_engines
from papermill.log import logger
from traitlets.config import Config

from covrag_lite.engine.progress import TEXT_BARS, ticking

NAME = "covrag"
# Without its own key, a kernel warns that other users of this machine could read along.
ENCRYPTED = Config({"KernelManager": {"transport_encryption": "auto"}})
BAR = "{desc}: {n_fmt}/{total_fmt} cells |{bar:20}| {elapsed}{postfix}"


class NotebookClient(PapermillNotebookClient):
    """Shows the progress of the running cell at the end of papermill's bar."""

    def process_message(self, message: dict, cell: NotebookNode, cell_index: int) -> Any:
        """Process a message of the kernel, and show the bars that the cell writes to its stderr."""
        content = message["content"]
        if message["msg_type"] == "stream" and content["name"] == "stderr":
            self.show_progress(content["text"])
        elif message["msg_type"] == "status":
            self.show_progress("\r")
        return super().process_message(message, cell, cell_index)

    def show_progress(self, text: str) -> None:
        """Show the last state of a bar; text that does not return to the line's start is no bar."""
        papermill_bar = self.nb_man.pbar
        if papermill_bar is not None and "\r" in text:
            states = [state.strip() for state in text.split("\r")]
            papermill_bar.set_postfix_str(states[-1])


class NotebookEngine(NBClientEngine):
    """papermill's engine with our client."""

    @classmethod
    def execute_managed_notebook(
        cls, nb_man: NotebookExecutionManager, kernel_name: str, **options: Any
    ) -> NotebookNode:
        """Run the cells of a notebook."""
        options.pop("input_path", None)
        start_timeout = options.pop("start_timeout", 60)
        timeout = options.pop("execution_timeout", None)
        client = NotebookClient(
            nb_man,
            config=ENCRYPTED,
            kernel_name=kernel_name,
            startup_timeout=start_timeout,
            timeout=timeout,
            coalesce_streams=True,
            log=logger,
            **options,
        )
        if nb_man.pbar is None:
            return client.execute()
        nb_man.pbar.bar_format = BAR
        with ticking(nb_man.pbar):
            return client.execute()


def register() -> str:
    """Register the engine with papermill, and return its name."""
    if sys.stderr.isatty():
        os.environ[TEXT_BARS] = "1"  # the kernel inherits it
    papermill_engines.register(NAME, NotebookEngine)
    return NAME
