"""The paper's own test questions of public sets, found by their hashes.

The paper tests on samples that were published with WebGLM: 400 questions of Natural Questions and
400 of WebQuestions. Their text is not part of this repository. paper_questions.txt has a hash of
each, which is compared with the hashes of all test questions of the set.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from covrag_lite.data.folder import hash_text
from covrag_lite.metrics import normalise
from covrag_lite.records import Question

FILE = Path(__file__).with_name("paper_questions.txt")
DIGITS = 16  # of each hash that the file keeps


def hash_question(question: str) -> str:
    """Return the hash of a question, which ignores case and punctuation."""
    return hash_text(normalise(question))[:DIGITS]


def load_hashes(dataset: str) -> list[str]:
    """Return the hashes of the paper's questions of a set, in their order; [] without a list."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    return [digits for name, digits in rows if name == dataset]


def select(questions: Sequence[Question], dataset: str) -> list[Question]:
    """Return the paper's questions among all test questions of a set, in the paper's order.

    The paper's samples repeat some questions. A repetition gets its own id, such as `17#2`.
    """
    by_hash: dict[str, Question] = {}
    for question in questions:
        by_hash.setdefault(hash_question(question.question), question)
    hashes = load_hashes(dataset)
    times = Counter()
    selected = []
    for digits in hashes:
        if digits not in by_hash:
            continue
        question = by_hash[digits]
        times[digits] += 1
        repeated = replace(question, id=f"{question.id}#{times[digits]}")
        selected.append(question if times[digits] == 1 else repeated)
    if not selected:
        has_none = f"the {len(questions)} test questions of {dataset!r} include none of the paper's"
        raise ValueError(f"{has_none}; set sampling to 'random', or check the set in data/hub.toml")
    report(dataset, len(selected), len(hashes))
    return selected


@cache  # once per process: a run loads its questions several times
def report(dataset: str, n_found: int, n_paper: int) -> None:
    """Print how many of the paper's questions a set contains."""
    n_missing = n_paper - n_found
    rest = f"; the other {n_missing} are left out, so results differ" if n_missing else ""
    print(f"{dataset}: {n_found} of the paper's {n_paper} test questions found{rest}")
