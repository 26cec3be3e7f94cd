"""RRR, Rewrite-Retrieve-Read (Ma et al. 2023; a row of Table 2 and Table 4 of the CoV-RAG paper).

Implemented: the three steps of that method. A rewriter turns the input x into a query x̃; the
retriever finds passages with x̃; the reader answers x from them.

The rewriter is the trained adapter `rewrite`. With the parameter adapters = "none" it is the base
model with the same prompt, as in the CoV-RAG paper, which prompts GPT-4. The reader is the adapter
`rag`, as in every row of the related table.

Differences from Ma et al.:

- The rewriter learns by supervision only: from revised questions that retrieve what the question
  itself missed. That paper warms a T5 up in a similar way, then trains it with PPO on a reward of
  the reader's score and a hit indicator.
- It writes one query, greedily; theirs may write several.
- The reader is trained; theirs is a frozen ChatGPT or Vicuna.
- An empty rewrite is replaced by the question.

The recorded run `real/former/qwen2.5-coder-1.5b/seed-1` had another rewriter, trained in one step
on the reader's reward.
"""

from collections.abc import Sequence

from covrag_lite.method import Tools, start_revise
from covrag_lite.records import Prediction, Question


def rrr(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Rewrite the question, retrieve with the rewritten one, read: Start-Revise with two models."""
    return start_revise(questions, tools)
