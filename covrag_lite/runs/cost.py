"""What a run will cost and has cost: seconds and tokens."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from covrag_lite.config import Config
from covrag_lite.engine.interface import Engine
from covrag_lite.method import closed_book, rag
from covrag_lite.runs.journal import Journal, keys_of
from covrag_lite.runs.manifest import peak_memory
from covrag_lite.systems import find_system


def estimate(config: Config, asked: Sequence[str], model: Engine, journal: Journal) -> str:
    """What a table costs at most whose first answers have these prompts, from one answer outside the journal."""
    limit = config.model.max_answer_tokens
    left = sum(key not in journal for key in keys_of("answer", asked, limit, model).values())
    if not left:
        return f"first answers to all {len(asked)} questions are journaled: only what is missing after them is computed"
    # A GPU takes hardly longer for a batch than for one answer; an endpoint may cost money.
    sample = asked[: 32 if model.device == "cuda" else 1]
    model.batches(sample, limit)  # loads the weights, which is not answering
    before = Counter(model.used)
    start = time.perf_counter()
    model.complete(sample, limit)
    each = (time.perf_counter() - start) / len(sample)
    times = left * count_answers(config)
    tokens = {name: times * (model.used[name] - before[name]) / len(sample) for name in model.used}
    return (
        f"{left} of {len(asked)} questions to do: at most {tell_time(times * each)} ({each:.1f} s an answer here, less "
        f"in full batches), {tell_tokens(tokens)}; {peak_memory():.1f} GB of memory so far"
    )


def count_answers(config: Config) -> int:
    """How many answers' time a question takes at worst; a verdict takes that of two, equal prompts that of one."""
    chosen = [find_system(name) for name in config.chain.systems]
    verifying = {system.adapter for system in chosen if system.verifies}
    total = 0
    for system in chosen:
        rounds = config.change(**system.settings).chain.max_rounds
        if system.verifies:
            total += rounds + 2 * (rounds - 1)
        elif system.run is not rag or system.adapter not in verifying:  # else its answers are the verified ones
            total += 1 if system.run in (rag, closed_book) else 2
    return total


def tell_spent(model: Engine, seconds: float) -> str:
    """What this process has used for a table that took so long."""
    used = model.used
    if not used["requests"]:
        return f"cost: {tell_time(seconds)}, no text: all were journaled"
    return f"cost: {tell_time(seconds)}, {used['requests']} texts, {tell_tokens(used)}"


def tell_time(seconds: float) -> str:
    """Seconds, or minutes where there are many."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def tell_tokens(used: Mapping[str, float]) -> str:
    """Tokens read and written."""
    return f"{used.get('prompt_tokens', 0):,.0f} tokens read and {used.get('completion_tokens', 0):,.0f} written"
