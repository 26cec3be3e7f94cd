"""CoQ, the chain of queries that FaVe is compared with (Kim et al. 2025, Figures 1a, 3 and 8).

Implemented: the alternation of Figure 8. Prompt A writes the next sub-question from the question
and all earlier sub-questions and answers (chain C1); its documents are retrieved; prompt B answers
it from them and from the earlier answers (chain C2). The chain ends at "[END]".

Differences from that paper:

- Our answers have a few words, so the model reads the sub-answers again to conclude; the paper does
  this for such questions too.
- A sub-question's own search results are reranked by CRAG's evaluator. The paper reranks the
  question's top 100 with a cross-encoder.
- The base model writes prompt A's sub-questions, the trained reader prompt B's answers. The
  reader's prompt has no place for earlier answers, so it sees them as further references behind
  the documents. In the paper, one model writes both.
- A chain has at most three sub-questions; one that repeats an earlier sub-question ends. A chain
  that ends at once searches for the question itself.
- The demonstration is ours, and decoding is greedy.
"""

from collections.abc import Sequence

from covrag_lite.engine.task_model import TaskModel
from covrag_lite.plugins.related.search_session import MAX_SUB_QUESTIONS, SUB_QUESTION_TOKENS
from covrag_lite.plugins.related.sub_questions import as_references, conclude, search_documents
from covrag_lite.plugins.related.tools import RelatedTools
from covrag_lite.records import Prediction, Question, Round

END = "[END]"
# The example in the prompt. Small models copy it; a copied sub-question ends the chain.
EXAMPLE_QUESTION = "How old was Tolstoy when War and Peace appeared?"
EXAMPLE_SUB_QUESTIONS = ("When was Tolstoy born?", "When did War and Peace appear?")
EXAMPLE_ANSWERS = ("1828", "1869")


def coq(questions: Sequence[Question], tools: RelatedTools) -> list[Prediction]:
    """Ask a sub-question, answer it, ask the next one from both, until the chain ends; conclude."""
    x = [question.question for question in questions]
    steps: list[list[Round]] = [[] for _ in x]
    unfinished = list(range(len(x)))
    for _ in range(MAX_SUB_QUESTIONS):
        # Prompt A. Chain C1: earlier answers lead to the next sub-question.
        written = write_sub_questions(
            tools.author, [x[i] for i in unfinished], [steps[i] for i in unfinished]
        )
        chosen = {}
        for i, sub_question in zip(unfinished, written):
            earlier = [step.query for step in steps[i]]
            if not earlier:
                sub_question = sub_question or x[i]  # at least the question itself
            if sub_question and sub_question not in earlier:
                chosen[i] = sub_question
        unfinished = list(chosen)
        sub_questions = list(chosen.values())
        ranked = search_documents(sub_questions, tools)
        # Prompt B. Chain C2: earlier answers are read with the documents.
        references = [
            [*candidate.documents, *as_references(steps[i])]
            for i, candidate in zip(unfinished, ranked)
        ]
        answers = tools.answer(sub_questions, references)
        for i, candidate, answer in zip(unfinished, ranked, answers):
            steps[i].append(Round(chosen[i], candidate.documents, answer))
    return conclude(questions, steps, [""] * len(x), tools, is_chain=True)


def write_sub_questions(
    author: TaskModel, x: Sequence[str], steps: Sequence[Sequence[Round]]
) -> list[str]:
    """Write the next sub-question of each chain; "" ends it."""
    prompts = [build_next(question, turns) for question, turns in zip(x, steps)]
    return [parse_next(text) for text in author.write("follow-up", prompts, SUB_QUESTION_TOKENS)]


def build_next(question: str, steps: Sequence[Round]) -> str:
    """Return the prompt of the next sub-question (prompt A)."""
    example = list(zip(EXAMPLE_SUB_QUESTIONS, EXAMPLE_ANSWERS))
    earlier = [(step.query, step.answer) for step in steps]
    return (
        "Answer a question by simple searches, one after the other. Write the next search, a short "
        f"question, or {END} when the outputs answer the question.\n"
        f"Question: {EXAMPLE_QUESTION}\n{build_steps(example)}Search: {END}\n"
        f"Question: {question}\n{build_steps(earlier)}Search:"
    )


def build_steps(steps: Sequence[tuple[str, str]]) -> str:
    """Return sub-questions and answers as a part of the prompt."""
    return "".join(f"Search: {query}\nOutput: {answer}\n" for query, answer in steps)


def parse_next(text: str) -> str:
    """Return the first line as the next sub-question; "" if the chain ends."""
    line = text.strip().split("\n")[0].removeprefix("Search:").strip()
    has_words = any(letter.isalnum() for letter in line)
    is_end = END in line.upper() or line in EXAMPLE_SUB_QUESTIONS
    return line if has_words and not is_end else ""
