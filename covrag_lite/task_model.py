"""One model behind the journal: it writes the text of every task, and writes none twice.

`evaluation` hands these methods to the systems; `training` lets a seed model answer by them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from covrag_lite import config, prompts
from covrag_lite.completion import complete, complete_both, probabilities_of
from covrag_lite.records import Passage, Verdict
from covrag_lite.runs.journal import Journal

if TYPE_CHECKING:
    from covrag_lite.engine.endpoint import Endpoint
    from covrag_lite.engine.local import LanguageModel


GUESS_TOKENS = 40  # of a guessed sentence


@dataclass(frozen=True)
class TaskModel:
    """A model, bare or with an adapter, as the author of answers, verdicts and rewritten questions."""

    settings: config.Model
    model: "LanguageModel | Endpoint"
    journal: Journal
    count: Callable[..., None] | None = None  # called after `write` with self and what was asked for, to count its cost

    def write(self, stage: str, texts: Sequence[str], limit: int, sample: int | None = None) -> list[str]:
        """Complete prompts through the journal, greedily or, for a number, by chance."""
        timed = self.count is not None
        made = complete(stage, texts, limit, self.model, self.journal, sample, timed)
        if timed:
            self.count(self, stage, texts, limit, sample)
        return made

    def answer(self, x: Sequence[str], k: Sequence[Sequence[Passage]]) -> list[str]:
        """Answer questions from their passages."""
        asked = [prompts.build_answer(*one, self.settings.layout) for one in zip(x, k)]
        return self.write("answer", asked, self.settings.max_answer_tokens)

    def verify(self, x: Sequence[str], k: Sequence[Sequence[Passage]], y: Sequence[str]) -> list[Verdict]:
        """Verify answers to questions from their passages."""
        limit = self.settings.max_revised_tokens
        asked = [prompts.build_verify(*one, self.settings.layout) for one in zip(x, k, y)]
        texts = self.write("verify", asked, limit)
        chances = probabilities_of("verify", asked, limit, self.model, self.journal)
        return [prompts.parse_verdict(text, self.model.schema, chance) for text, chance in zip(texts, chances)]

    def likelihoods(self, x: Sequence[str], k: Sequence[Sequence[Passage]]) -> list[float | None]:
        """The mean logarithmic probability of journaled answers' tokens, None where it is not known."""
        asked = [prompts.build_answer(*one, self.settings.layout) for one in zip(x, k)]
        chances = probabilities_of("answer", asked, self.settings.max_answer_tokens, self.model, self.journal)
        return [one["likelihood"] if one else None for one in chances]

    def guess(self, x: Sequence[str]) -> list[str]:
        """A sentence that might answer each question, from memory: words that the right passage may hold."""
        return self.write("guess", [prompts.build_alone("guess", one) for one in x], GUESS_TOKENS)

    def name_terms(self, x: Sequence[str]) -> list[str]:
        """The names and terms that each question is about."""
        return self.write("terms", [prompts.build_alone("terms", one) for one in x], GUESS_TOKENS)

    def name_options(self, x: Sequence[str]) -> list[str]:
        """Several possible answers to each question, from memory."""
        return self.write("options", [prompts.build_alone("options", one) for one in x], GUESS_TOKENS)

    def rewrite(self, x: Sequence[str]) -> list[str]:
        """Rewrite questions for a search engine, without having seen any passage."""
        return self.write("rewrite", [prompts.build_rewrite(one) for one in x], self.settings.max_revised_tokens)

    def recall(self, x: Sequence[str]) -> list[str]:
        """Answer questions from memory alone."""
        asked = [prompts.build_alone("closed-book", one) for one in x]
        return self.write("closed-book", asked, self.settings.max_answer_tokens)

    def foresee(self, x: Sequence[str], k: Sequence[Sequence[Passage]]) -> None:
        """Journal first answers and the verdicts on them in one go; the prompts are in the shared layout."""
        asked = [prompts.build_answer(*one, "shared") for one in zip(x, k)]
        thens = [_verification_of(*one) for one in zip(x, k)]
        settings = self.settings
        complete_both(asked, thens, settings.max_answer_tokens, settings.max_revised_tokens, self.model, self.journal)


def _verification_of(question: str, passages: Sequence[Passage]) -> Callable[[str], str]:
    """The function that makes the verification prompt of an answer yet to be written."""

    def build(answer: str) -> str:
        return prompts.build_verify(question, passages, answer, "shared")

    return build
