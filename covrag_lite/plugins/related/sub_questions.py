"""What FaVe, UoQ and CoQ share: documents of sub-questions, and a conclusion from their answers."""

from collections.abc import Sequence
from dataclasses import dataclass

from covrag_lite.plugins.related.answer_quality import remove_citations
from covrag_lite.plugins.related.tools import RelatedTools
from covrag_lite.records import CITATION, Passage, Prediction, Question, Round

DOCUMENTS = 2  # M, the documents that a sub-question is answered from


@dataclass(frozen=True)
class Ranked:
    """The top M documents of a sub-question, and the relevance score of the first."""

    documents: tuple[Passage, ...]
    top_score: float


def search_documents(sub_questions: Sequence[str], tools: RelatedTools) -> list[Ranked]:
    """Search for each sub-question, and keep its top M documents by their relevance scores."""
    results = tools.search(sub_questions)
    ranked = []
    for passages, scores in zip(results, tools.score(sub_questions, results)):
        order = sorted(range(len(passages)), key=lambda place: -scores[place])[:DOCUMENTS]
        top_score = scores[order[0]] if order else 0.0
        ranked.append(Ranked(tuple(passages[place] for place in order), top_score))
    return ranked


def answer_apart(
    sub_questions: Sequence[str], ranked: Sequence[Ranked], tools: RelatedTools
) -> list[Round]:
    """Answer sub-questions, each from its own documents only: FaVe's factored answers."""
    documents = [candidate.documents for candidate in ranked]
    answers = tools.answer(sub_questions, list(map(list, documents)))
    return [Round(*parts) for parts in zip(sub_questions, documents, answers)]


def as_references(steps: Sequence[Round]) -> list[Passage]:
    """Return sub-questions with their answers, so that they can be read like passages."""
    return [
        Passage("", step.query, f"{step.query} {remove_citations(step.answer, ' ')}")
        for step in steps
    ]


def conclude(
    questions: Sequence[Question],
    steps: Sequence[Sequence[Round]],
    notes: Sequence[str],
    tools: RelatedTools,
    is_chain: bool = False,
) -> list[Prediction]:
    """Predict the final answers from the sub-answers; they cite the passages of the sub-answers.

    In a chain, the references of a sub-answer include the sub-answers before it.
    """
    x = [question.question for question in questions]
    answers = tools.answer(x, [as_references(turns) for turns in steps])
    predictions = []
    for question, turns, answer, note in zip(questions, steps, answers, notes):
        documents: dict[Passage, None] = {}  # of all steps, each once, in order
        for step in turns:
            documents |= dict.fromkeys(step.passages)
        union = tuple(documents)
        cited = trace_citations(turns, is_chain)
        query = " | ".join(step.query for step in turns)
        final = Round(query, union, cite_documents(answer, cited, union), note=note)
        predictions.append(Prediction(question, tools.name, (*turns, final)))
    return predictions


def trace_citations(steps: Sequence[Round], is_chain: bool) -> list[list[Passage]]:
    """Return the documents that each sub-answer cites, also through earlier ones in a chain."""
    cited: list[list[Passage]] = []
    for step in steps:
        sources = [[document] for document in step.passages]  # what each reference stands for
        if is_chain:
            sources += cited
        documents: dict[Passage, None] = {}
        for number in CITATION.findall(step.answer):
            if 0 < int(number) <= len(sources):
                documents |= dict.fromkeys(sources[int(number) - 1])
        cited.append(list(documents))
    return cited


def cite_documents(
    answer: str, cited: Sequence[Sequence[Passage]], union: Sequence[Passage]
) -> str:
    """Replace each citation of a sub-answer by citations of the documents that it cites."""
    marks = {}
    for number, documents in enumerate(cited, 1):
        marks[number] = "".join(f"[{union.index(document) + 1}]" for document in documents)
    return CITATION.sub(lambda mark: marks.get(int(mark[1]), ""), answer)
