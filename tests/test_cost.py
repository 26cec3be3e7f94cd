"""What a run costs: told before and after, in seconds and tokens."""

from collections import Counter

import pytest
from conftest import ScriptedModel

from covrag_lite import config
from covrag_lite.engine.interface import load_engine
from covrag_lite.prompts import SCHEMA
from covrag_lite.runs import cost
from covrag_lite.runs.journal import Journal


class Counting(ScriptedModel):
    """Counts a hundred tokens read and ten written for every answer."""

    def complete(self, prompts, max_tokens, sample=None):
        self.used += Counter(requests=len(prompts), prompt_tokens=100 * len(prompts), completion_tokens=10)
        return super().complete(prompts, max_tokens)


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "journal.jsonl")


def test_after_a_run_what_it_used_is_told():
    model = Counting()
    assert cost.tell_spent(model, 3.0) == "cost: 3 s, no text: all were journaled"
    model.complete(["a", "b"], 9)
    assert cost.tell_spent(model, 170.0) == "cost: 3 min, 2 texts, 200 tokens read and 10 written"


def test_a_local_model_counts_what_it_reads_and_writes_whichever_adapter_it_has(tiny_folder):
    model = load_engine(config.Model(model=str(tiny_folder), max_revised_tokens=6, device="cpu"))
    asked = ["who wrote it?", "where was the author born, and when?"]
    answers = [one.text for one in model.complete(asked, 8)]
    read, written = map(sum, zip(*model.count_tokens(asked, answers)))
    assert model.used == {"requests": 2, "prompt_tokens": read, "completion_tokens": written}
    model.with_adapter("").fill(asked, SCHEMA, 6)
    assert (model.used["requests"], model.used["prompt_tokens"]) == (4, 2 * read)
