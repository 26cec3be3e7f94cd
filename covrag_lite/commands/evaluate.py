"""`covrag eval FOLDER`: test systems on your own documents, with questions and their answers.

The folder has documents and `questions.csv` with the columns `question` and `answer`. The results
are those of notebooks/table2.ipynb, in figures/<name>, and every answer in answers.csv.
"""

import argparse
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from covrag_lite.commands import answers, own_folder
from covrag_lite.commands.messages import Parser, plain_messages
from covrag_lite.commands.screen import paragraph, table
from covrag_lite.config import Chain, Config, expand_home
from covrag_lite.data import load_questions
from covrag_lite.engine.progress import count
from covrag_lite.files import write_text
from covrag_lite.parameters import typed
from covrag_lite.records import Prediction, Question
from covrag_lite.runs.recorded import save_run
from covrag_lite.systems import find_system
from covrag_lite.systems.names import COV_RAG
from covrag_lite.tables import find_table
from covrag_lite.tables.labels import label_of

PROG = "covrag eval"
TABLE = "table2"
TRACKED = ("embedded", "badges")  # folders of figures/ that belong to the repository


def main(words: Sequence[str] | None = None) -> None:
    """Run the command."""
    options = build_parser().parse_args(words)
    with plain_messages(PROG):
        print(evaluate_folder(options))


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command's arguments."""
    parser = Parser(PROG, description="Test systems on your documents and your questions.csv.")
    own_folder.add_options(parser)
    parser.add_argument(
        "--systems",
        default=";".join(Chain().systems),
        help="names of systems, separated by commas or semicolons; default: those of Table 2",
    )
    parser.add_argument("--n", type=int, default=0, help="use only the first N questions")
    parser.add_argument(
        "--name", default="", help="results go to figures/NAME; default: the folder's name"
    )
    return parser


def evaluate_folder(options: argparse.Namespace) -> str:
    """Answer the questions with every system, save the results, and return what to print."""
    from covrag_lite.systems import evaluate

    systems = typed("--systems", options.systems, ("",))
    for system in systems:
        find_system(system)  # an unknown name stops here
    name = choose_name(options.name, options.folder)
    folder = own_folder.load_folder(options.folder, options.model, options.k, name)
    config = folder.config.change(systems=systems, n_questions=options.n, record="none")
    questions = load_own_questions(config)
    for note in (*folder.notes, describe_work(questions, systems)):
        print(paragraph(note, indent="  ", first=f"{PROG}: "), file=sys.stderr)
    start = time.perf_counter()
    resources = evaluate.load_resources(config, folder.passages)
    predictions = evaluate.run(config, resources, questions)
    seconds = time.perf_counter() - start
    data = {"questions": questions, "passages": folder.passages}
    place = config.folder()
    run = save_run(place, TABLE, {"": predictions}, config, resources.model, seconds, data)
    find_table(TABLE).build(predictions, run).save(place)
    rows = answers.answer_table(predictions)
    write_text(place / "answers.csv", rows.to_csv(index=False, lineterminator="\n"))
    return summarise(predictions, rows, place, name)


def choose_name(name: str, folder: str) -> str:
    """Return the run's name: by default the folder's, with letters, digits and dashes only."""
    if not name:
        stem = re.sub(r"[^\w-]+", "-", expand_home(folder).resolve().name).strip("-")
        return f"{stem}-own".strip("-") if stem in TRACKED or not stem else stem
    if name in TRACKED or not re.fullmatch(r"[\w][\w.-]*", name):
        raise ValueError(
            f"--name is {name!r}, but must be letters, digits, dots and dashes, and none of "
            f"{', '.join(TRACKED)}"
        )
    return name


def load_own_questions(config: Config) -> list[Question]:
    """Load the questions of a folder."""
    if config.data.n_questions < 0:
        raise ValueError(f"--n is {config.data.n_questions}, but must be 0 (all) or more")
    return load_questions(config)


def describe_work(questions: Sequence[Question], systems: Sequence[str]) -> str:
    """Return what will be done, in one sentence."""
    n_questions = count(len(questions), "question")
    n_systems = count(len(systems), "system")
    return f"{n_questions} for {n_systems}; a stopped run resumes"


def summarise(predictions: Sequence[Prediction], rows: pd.DataFrame, place: Path, name: str) -> str:
    """Return the accuracy of every system, the answers of one, and where everything is."""
    systems = list(dict.fromkeys(prediction.system for prediction in predictions))
    counts = []
    for system in systems:
        results = rows[rows.system == system].right
        n_scored = int((results != "not scored").sum())
        counts.append((label_of(system), f"{int((results == 'right').sum())} of {n_scored}"))
    shown = COV_RAG if COV_RAG in systems else systems[-1]
    parts = [
        table(("system", "right"), counts, (3, 1)),
        f"Answers of {label_of(shown)}:\n\n{answers.show_answers(rows, shown)}",
        paragraph(
            "An answer is right if it contains a gold answer; case and punctuation do not count."
        ),
        f"All answers:  {place / 'answers.csv'}\n"
        f"Tables:       {place / (TABLE + '.md')}\n"
        f"Step by step: covrag browse {name}",
    ]
    return "\n\n".join(parts)
