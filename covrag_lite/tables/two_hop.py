"""Two-hop questions: does the title of a first passage find more than a guess?

CoV-RAG reads the first passages before it writes a query, query expansion does not. On two-hop
questions the first passages often name what to search for next. Here every question is searched
again with several second queries, and a search counts if a passage contains a gold answer. Nothing
is answered. results/real/plan.md says what was fixed before the run.

    python -m covrag_lite.tables.two_hop <folder of a recorded run> <folder of the data> <folder>
"""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from covrag_lite import metrics
from covrag_lite.data import load_passages, load_questions
from covrag_lite.files import read_rows
from covrag_lite.records import Passage, Question, Search
from covrag_lite.retrieval import load_retriever
from covrag_lite.runs.recorded import Recorded
from covrag_lite.runs.redaction import core, restore
from covrag_lite.systems import names
from covrag_lite.tables.comparisons.pairs import ALL_SETS
from covrag_lite.tables.facts import facts_of_rows
from covrag_lite.tables.labels import label_of_set
from covrag_lite.tables.paired import describe_pair
from covrag_lite.tables.search_again import (
    describe_search,
    facts_of_comparisons,
    load_counts,
    run_command,
    save_counts,
)
from covrag_lite.tables.table import Table

SETS = ("y_2wiki", "y_musique")  # the two-hop sets of that run
N_TITLES = 3  # number of first passages whose titles are tried

QUESTION = "question"
EXPANSION = "expanded query"
FIRST_TITLE = "title of the first passage"
BEST_TITLE = "best of three titles"
NAMED_TITLES = "gold titles that only the first passages name"
GOLD_TITLES = "titles of the gold passages"
QUERIES = (QUESTION, EXPANSION, FIRST_TITLE, BEST_TITLE, NAMED_TITLES, GOLD_TITLES)

NOTES = (
    "Found: one of the five passages of this search contains a gold answer in whole words. With "
    "the question: this search or that of the question finds one.",
    "Titles are put behind the question. The best of three titles is an oracle choice: it counts "
    "as found if one of the three searches finds an answer. The titles of the gold passages are an "
    "upper bound. Those that the five first passages name, in their titles or texts, and the "
    "question does not, are an upper bound of what a reader of these passages could add (post "
    "hoc); without such a title, the question is searched.",
    "Detectable: the minimum detectable effect at 80 % power, in points.",
)


def load_expanded(run: Recorded, questions: Mapping[str, Question]) -> dict[str, str]:
    """Return the recorded expanded query of each of these questions."""
    queries = {}
    for row in read_rows(run.predictions()):
        answered = row["systems"].get(names.EXPANSION)
        if answered and row["id"] in questions:
            second = row["rounds"][answered[0][1]]
            text = core(questions[row["id"]].question)
            queries[row["id"]] = restore(second["query"] or "", text, questions)
    return queries


def search_all(
    questions: Sequence[Question],
    expanded: Mapping[str, str],
    passages: Sequence[Passage],
    search: Search,
) -> pd.DataFrame:
    """Search every question with every query; returns whether each search finds an answer."""
    titles = {passage.id: passage.title for passage in passages}
    x = [question.question for question in questions]
    first = search(x)

    def find(queries: Sequence[str]) -> list[bool]:
        results = search(queries)
        return [is_found(*pair) for pair in zip(questions, results)]

    found = {QUESTION: [is_found(*pair) for pair in zip(questions, first)]}
    found[EXPANSION] = find([expanded[question.id] for question in questions])
    by_title = []
    for place in range(N_TITLES):
        by_title.append(find([append(q, [k[place].title]) for q, k in zip(x, first)]))
    found[FIRST_TITLE] = by_title[0]
    found[BEST_TITLE] = [any(of_question) for of_question in zip(*by_title)]
    gold_titles = []
    for question in questions:
        gold_titles.append([titles[identity] for identity in question.gold_passages])
    named = [select_named(*of_question) for of_question in zip(x, gold_titles, first)]
    found[NAMED_TITLES] = find([append(*pair) for pair in zip(x, named)])
    found[GOLD_TITLES] = find([append(*pair) for pair in zip(x, gold_titles)])
    about = {"dataset": [q.dataset for q in questions], "id": [q.id for q in questions]}
    return pd.DataFrame(about | found)


def append(question: str, titles: Sequence[str]) -> str:
    """Return the question followed by these titles."""
    return " ".join([question, *titles])


def select_named(question: str, titles: Sequence[str], passages: Sequence[Passage]) -> list[str]:
    """Return the titles that these passages name, in whole words, and the question does not."""
    seen = [f"{passage.title} {passage.text}" for passage in passages]
    return [title for title in titles if is_named(title, seen) and not is_named(title, [question])]


def is_named(title: str, texts: Sequence[str]) -> bool:
    """Return whether one of these texts contains the title in whole words."""
    return any(metrics.score(text, [title], "whole") for text in texts)


def is_found(question: Question, passages: Sequence[Passage]) -> bool:
    """Return whether a passage contains a gold answer in whole words."""
    return bool(metrics.holds_answer(passages, question.answers, "whole"))


def record(run: Recorded, data: str, folder: Path) -> Recorded:
    """Search the two-hop questions of a recorded run again, and write what is found."""
    start = time.monotonic()
    config = run.config.change(data=data, datasets=SETS, n_questions=0)
    passages = load_passages(config)
    every = {question.id: question for question in load_questions(config)}
    expanded = load_expanded(run, every)
    questions = [question for question in every.values() if question.id in expanded]
    search = load_retriever(config.retrieval, passages)
    table = search_all(questions, expanded, passages, search)
    text = table.astype({kind: int for kind in QUERIES}).to_csv(index=False, lineterminator="\n")

    seconds = time.monotonic() - start
    of_data = {"questions": questions, "passages": passages}
    config = config.change(data=Path(data).name)  # the name only, not the path
    searched = Recorded(folder, "two_hop", describe_search(run, config, seconds, **of_data))
    save_counts(searched, run, text)
    return searched


def load(run: Recorded) -> pd.DataFrame:
    """Load what was found, one row per question."""
    return load_counts(run)


def build(counts: pd.DataFrame, run: Recorded) -> Table:
    """Build the table from what was found."""
    shares = pd.DataFrame(measure(counts))
    comparisons = pd.DataFrame(compare(counts))
    parts = {
        "Questions whose answer is found, in %": shares,
        "Paired differences, in points": comparisons,
    }
    facts = facts_of_rows(
        shares,
        "{questions} {second query}",
        {
            "": "{found}",
            "with": "{with the question}",
            "n": "{n}",
        },
    )
    facts |= facts_of_comparisons(comparisons)
    return Table("two_hop", shares, parts, NOTES, facts)


def measure(counts: pd.DataFrame) -> Iterator[dict[str, str]]:
    """Return one row per group of questions and query."""
    groups = {ALL_SETS: counts} | dict(list(counts.groupby("dataset", sort=False)))
    for name, of_group in groups.items():
        for kind in QUERIES:
            either = np.maximum(of_group[QUESTION], of_group[kind])
            yield {
                "questions": label_of_set(name),
                "second query": kind,
                "n": f"{len(of_group):,}",
                "found": f"{100 * of_group[kind].mean():.1f}",
                "with the question": f"{100 * either.mean():.1f}",
            }


def compare(counts: pd.DataFrame) -> Iterator[dict[str, object]]:
    """Compare queries with the expanded one, each alone and together with the question."""
    for kind in (QUESTION, FIRST_TITLE, BEST_TITLE, NAMED_TITLES, GOLD_TITLES):
        pair = describe_pair(counts[EXPANSION].tolist(), counts[kind].tolist())
        yield {"comparison": f"{EXPANSION} → {kind}"} | pair
    before = np.maximum(counts[QUESTION], counts[EXPANSION]).tolist()
    for kind in (FIRST_TITLE, BEST_TITLE, NAMED_TITLES, GOLD_TITLES):
        after = np.maximum(counts[QUESTION], counts[kind]).tolist()
        pair = describe_pair(before, after)
        yield {"comparison": f"with the question: {EXPANSION} → {kind}"} | pair


def main(words: Sequence[str] | None = None) -> None:
    """Search the two-hop questions of a recorded run again, and write what is found."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("source", type=Path, help="the folder of a recorded run")
    parser.add_argument("data", help=f"a folder with a corpus and {', '.join(SETS)}")
    parser.add_argument("folder", type=Path, help="the folder to write")
    options = parser.parse_args(words)
    searched = run_command(
        parser, options.source, lambda run: record(run, options.data, options.folder)
    )
    print(build(load(searched), searched).save(options.folder))


if __name__ == "__main__":
    main()
