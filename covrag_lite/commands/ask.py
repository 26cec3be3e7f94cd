"""`covrag ask FOLDER "question"`: an answer from your own documents, with its citations.

Without a question, a prompt stays open until Ctrl-D.
"""

import argparse
import contextlib
import io
import sys
from collections.abc import Callable, Iterator, Sequence

from covrag_lite.commands import own_folder
from covrag_lite.commands.messages import Parser, describe_error, plain_messages
from covrag_lite.commands.prediction_text import describe_prediction
from covrag_lite.commands.screen import paragraph
from covrag_lite.data import own_question
from covrag_lite.records import Prediction
from covrag_lite.systems import find_system
from covrag_lite.systems.names import COV_RAG

PROG = "covrag ask"
PROMPT = "question> "


def main(words: Sequence[str] | None = None) -> None:
    """Run the command."""
    options = build_parser().parse_intermixed_args(words)
    with plain_messages(PROG):
        answer = load_system(options)
        if options.question:
            print(answer(" ".join(options.question)))
        else:
            answer_until_end(answer)


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command's arguments."""
    parser = Parser(
        PROG, description="Answer questions from a folder of documents, with citations."
    )
    own_folder.add_options(parser)
    parser.add_argument(
        "question",
        nargs="*",
        default=[],  # without a default, argparse calls it required
        metavar="QUESTION",
        help="without it, a prompt stays open",
    )
    parser.add_argument(
        "--system",
        default=COV_RAG,
        help="how to answer: %(default)r (default, the paper's form), 'RAG' (search once, no "
        "verdict), or another system of covrag_lite/systems",
    )
    return parser


def load_system(options: argparse.Namespace) -> Callable[[str], str]:
    """Load documents and model; return a function from a question to the text of its answer."""
    from covrag_lite.systems.evaluate import load_resources, run_system

    find_system(options.system)  # an unknown name stops here
    folder = own_folder.load_folder(options.folder, options.model, options.k, name="ask")
    for note in folder.notes:
        print(paragraph(note, indent="  ", first=f"{PROG}: "), file=sys.stderr)
    resources = load_resources(folder.config, folder.passages)

    def answer(question: str) -> str:
        with show_status("reading the model and answering ..."):
            predictions: list[Prediction] = run_system(
                options.system, folder.config, resources, [own_question(question)]
            )
        return describe_prediction(predictions[0])

    return answer


def answer_until_end(answer: Callable[[str], str]) -> None:
    """Answer one question per line until the input ends; an error ends only its question."""
    for question in read_questions():
        try:
            print(answer(question) + "\n", flush=True)
        except (ValueError, OSError, RuntimeError) as error:
            print(f"{PROG}: {describe_error(error)}", file=sys.stderr)


def read_questions() -> Iterator[str]:
    """Yield the lines that are typed, or those of a file; empty lines are skipped."""
    is_typed = sys.stdin.isatty()
    if is_typed:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  (the arrow keys then edit the line)
        print("Type a question and press Enter; Ctrl-D ends.")
    while True:
        try:
            line = input(PROMPT if is_typed else "")
        except EOFError:
            if is_typed:
                print()
            return
        if line.strip():
            yield line.strip()


@contextlib.contextmanager
def show_status(text: str) -> Iterator[None]:
    """Show one line in a terminal while a question is answered, instead of bars of one step."""
    screen = sys.stderr
    is_terminal = screen.isatty()
    if is_terminal:
        print(text, end="", file=screen, flush=True)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        if is_terminal:
            print("\r" + " " * len(text) + "\r", end="", file=screen, flush=True)
