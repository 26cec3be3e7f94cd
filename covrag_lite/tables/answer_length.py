"""Long cited answers next to short ones: accuracy after the same number of words.

By the paper's rule an answer is right if it contains a gold answer, so a longer answer is right
more easily. A run is in <backbone>/answer-length/<reader>; readers are named by the length and the
number of the answers that they learnt. Each has the recorded counts of the table "citations".
results/real/plan.md says which of the comparisons were fixed before the run.
"""

from collections.abc import Mapping, Sequence

import pandas as pd

from covrag_lite.systems.names import COV_RAG, RAG, RAG_TRAINED
from covrag_lite.tables.facts import facts_of_rows
from covrag_lite.tables.intervals import share
from covrag_lite.tables.paired import describe_pair
from covrag_lite.tables.table import Table

FOLDER = "answer-length"
LONG = "long-688"
SHORT = "short-688"
MORE_SHORT = "short-5308"
PREFIXES = (10, 20)  # words after which accuracy is measured too
ALL_WORDS = "all"

Answers = tuple[str, str]  # a reader and one of its systems
SHOWN: Mapping[Answers, str] = {
    (SHORT, RAG): "RAG (untuned), up to 24 tokens",
    (LONG, RAG): "RAG (untuned), up to 128 tokens",
    (SHORT, RAG_TRAINED): "RAG (trained), 688 short answers",
    (MORE_SHORT, RAG_TRAINED): "RAG (trained), 5,308 short answers",
    (MORE_SHORT, COV_RAG): "CoV-RAG, 5,308 short answers",
    (LONG, RAG_TRAINED): "RAG (trained), 688 long answers",
    (LONG, COV_RAG): "CoV-RAG, 688 long answers",
}
# What is compared, the one expected to be worse first.
PAIRS: Sequence[tuple[Answers, Answers]] = (
    ((LONG, RAG_TRAINED), (LONG, COV_RAG)),
    ((SHORT, RAG_TRAINED), (LONG, RAG_TRAINED)),
    ((SHORT, RAG), (LONG, RAG)),
    ((LONG, RAG), (LONG, RAG_TRAINED)),
    ((MORE_SHORT, RAG_TRAINED), (LONG, RAG_TRAINED)),
)
NOTES = (
    "An answer is right if its normalised text contains a gold answer, the paper's rule; after "
    "10 words means that the text is cut there.",
    "Detectable: the minimum detectable effect at 80 % power, in points.",
)


def build(counts: Mapping[str, pd.DataFrame]) -> Table:
    """Build the table from the counts of every reader's answers."""
    accuracies = measure_readers(counts)
    comparisons = compare_readers(counts)
    parts = {
        "Accuracy in %": accuracies.drop(columns=["answers", "low", "high"]),
        "Paired differences, in points": comparisons.drop(columns="pair"),
    }
    forms = {f"after {words} words": f"{{after {words} words}}" for words in PREFIXES}
    forms |= {"": "{accuracy}", "interval": "[{low:.0f}–{high:.0f}]"}
    forms["words per answer"] = "{words per answer}"
    facts = facts_of_rows(accuracies, "{answers}", forms)
    differences = {name: f"{{{name}}}" for name in ("p", "gained", "lost", "n", "detectable")}
    differences |= {"": "{difference}", "interval": "{95 % interval}"}
    facts |= facts_of_rows(comparisons, "{pair} {words read}", differences)
    return Table("answer_length", accuracies, parts, NOTES, facts)


def measure_readers(counts: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return one row per reader and system: words per answer, and accuracy by words read."""
    rows = []
    for name, label in SHOWN.items():
        answers = select(counts, name)
        accuracy, low, high = share(right_after(answers).tolist())
        row = {
            "answers": " ".join(name),
            "system": label,
            "words per answer": f"{answers.words.mean():.1f}",
        }
        for words in PREFIXES:
            value, _, _ = share(right_after(answers, words).tolist())
            row[f"after {words} words"] = f"{value:.1f}"
        rows.append(row | {"accuracy": f"{accuracy:.1f}", "low": low, "high": high})
    return pd.DataFrame(rows)


def select(counts: Mapping[str, pd.DataFrame], name: Answers) -> pd.DataFrame:
    """Return the counts of one reader's answers by one system."""
    reader, system = name
    return counts[reader][counts[reader].system == system]


def right_after(answers: pd.DataFrame, words: int | None = None) -> pd.Series:
    """Return by id whether each answer that can be scored is right; cut after so many words."""
    scored = answers[answers.right.notna()].set_index("id")
    if words is None:
        return scored.right.astype(bool)
    return scored.right_after <= words  # false for an answer that is never right


def compare_readers(counts: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the paired differences, for whole answers and after each number of words."""
    rows = []
    for before, after in PAIRS:
        for words in (None, *PREFIXES):
            baseline = right_after(select(counts, before), words)
            other = right_after(select(counts, after), words)[baseline.index]
            names = {
                "pair": f"{' '.join(before)} → {' '.join(after)}",
                "comparison": f"{SHOWN[before]} → {SHOWN[after]}",
                "words read": words or ALL_WORDS,
            }
            rows.append(names | describe_pair(baseline.tolist(), other.tolist()))
    return pd.DataFrame(rows)
