"""Rows of any table as questions: which column, or which part of a nested one, holds what. `hub` calls this."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from covrag_lite.metrics import normalise
from covrag_lite.records import Question

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class Columns:
    """The columns of a table, a.b where one is nested."""

    question: str
    answers: tuple[str, ...]  # all their texts together are the answers
    identity: str = ""  # empty: "id" if there is one, else the number of the row


def read_questions(rows: "Dataset", columns: Columns, dataset: str, prefix: str, where: str) -> list[Question]:
    """The rows as questions; a row that repeats an earlier one's id and question is left out."""
    identity = find_identity(rows, columns)
    wanted = [find_column(path, rows, where) for path in (columns.question, *columns.answers)]
    if identity:
        wanted.append(find_column(identity, rows, where))
    made: dict[str, Question] = {}
    for number, row in enumerate(rows.select_columns(list(dict.fromkeys(wanted)))):
        here = f"{where}, row {number}"
        name = str(row[identity]) if identity else f"{prefix}-{number}"
        one = Question(name, dataset, pick_question(row, columns, here), pick_answers(row, columns, here))
        first = made.setdefault(name, one)
        if normalise(first.question) != normalise(one.question):
            raise ValueError(f"{here}: the id {name!r} is another question's already")
    return list(made.values())


def find_identity(rows: "Dataset", columns: Columns) -> str:
    """The column with the rows' ids, if there is one."""
    return columns.identity or ("id" if "id" in rows.column_names else "")


def find_column(path: str, rows: "Dataset", where: str) -> str:
    """The column that a path begins with."""
    for name in (path, path.partition(".")[0]):
        if name in rows.column_names:
            return name
    raise ValueError(
        f"{where} has no column {path!r}, only {', '.join(rows.column_names)}; "
        f"name them by question_column and answers_column"
    )


def pick_question(row: dict, columns: Columns, where: str) -> str:
    """The one text of the question's column."""
    texts = pick(row, columns.question, where)
    if len(texts) != 1 or not texts[0].strip():
        raise ValueError(f"{where}: {columns.question!r} holds {texts or 'nothing'}, which is not one question")
    return texts[0]


def pick_answers(row: dict, columns: Columns, where: str) -> tuple[str, ...]:
    """The texts of the answers' columns, none twice."""
    texts = [text for path in columns.answers for text in pick(row, path, where)]
    return tuple(dict.fromkeys(texts))


def pick(value: object, path: str, where: str) -> list[str]:
    """The texts at the end of a dotted path, through lists and groups; a missing one is named."""
    if value is None:
        return []
    if isinstance(value, list):
        return [text for one in value for text in pick(one, path, where)]
    if not isinstance(value, dict):
        if path:
            raise ValueError(f"{where}: there is no {path!r} in {value!r}; a path ends where a text is")
        return [str(value)]
    for name, rest in ((path, ""), path.partition(".")[::2]):
        if name in value:
            return pick(value[name], rest, where)
    raise ValueError(f"{where}: there is no {path!r}, only {', '.join(value)}; a nested column is written a.b")
