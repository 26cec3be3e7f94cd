"""UoQ, union of queries (Kim et al. 2025, Section 3.1): FaVe without its session verification.

Implemented: the three stages of Section 3.1. One search session of sub-questions is generated
before anything is answered (no chain C1 from answers to queries); documents are retrieved for each
sub-question; each is answered from its own documents only (no chain C2 between answers).

Differences from that paper:

- Our answers have a few words, so the model reads the sub-answers again to conclude; the paper does
  this for such questions too.
- A sub-question's own search results are reranked by CRAG's evaluator. The paper reranks the
  question's top 100 with a cross-encoder.
- The session has at most three sub-questions and is decoded greedily; the paper samples.
- The base model writes the session, the trained reader the answers; in the paper, one model writes
  both. The prompts are in our own words.
"""

from collections.abc import Sequence

from covrag_lite.plugins.related.search_session import write_sessions
from covrag_lite.plugins.related.sub_questions import answer_apart, conclude, search_documents
from covrag_lite.plugins.related.tools import RelatedTools
from covrag_lite.records import Prediction, Question, Round


def uoq(questions: Sequence[Question], tools: RelatedTools) -> list[Prediction]:
    """Write one session per question, answer its sub-questions apart, then conclude."""
    x = [question.question for question in questions]
    sessions = write_sessions(tools.author, x)  # search session generation
    owners = []  # for each sub-question, the index of its question
    sub_questions = []
    for i, session in enumerate(sessions):
        owners += [i] * len(session)
        sub_questions += session
    ranked = search_documents(sub_questions, tools)  # document retrieval
    steps: list[list[Round]] = [[] for _ in x]
    answered = answer_apart(sub_questions, ranked, tools)  # factored answer generation
    for i, step in zip(owners, answered):
        steps[i].append(step)
    return conclude(questions, steps, [""] * len(x), tools)
