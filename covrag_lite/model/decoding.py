"""Greedy decoding of one batch: free text, and verdicts forced into their schema.

What the schema fixes is appended, only the gaps are decoded, so a verdict always parses and costs about a third of the
forward passes of free decoding. What all prompts of a batch begin with is read once, and rows that are done leave the
batch. `local` calls this; it is apart because it knows the schema and the cache, and nothing of how a model is loaded.
"""

import os.path
from collections.abc import Sequence

import torch

from covrag_lite.prompts import JUDGMENTS, VERDICT_ROOM

SHARED = 16  # tokens of a common beginning from which reading it by itself pays


def write_answers(model, prompts: Sequence[str], limit: int) -> list[str]:
    """What greedy decoding adds to each prompt of one batch."""
    writer = Writer(model, prompts, limit)
    written = writer.write_free(writer.rows, model.end_id, limit)
    return [model.tokenizer.decode(written[row], skip_special_tokens=True).strip() for row in range(len(prompts))]


def write_verdicts(model, prompts: Sequence[str]) -> list[tuple[str, dict[str, float]]]:
    """For each prompt of one batch the text of a verdict, and the probabilities behind it."""
    return write_schema(Writer(model, prompts, VERDICT_ROOM + model.config.max_revised_tokens))


def write_schema(writer: "Writer") -> list[tuple[str, dict[str, float]]]:
    """Verdicts behind whatever the writer holds.

    Their probabilities are the expectation of each score, the probability of the judgment "true" and that of an empty
    revision, each among what the schema allows at that place.
    """
    for part in writer.model.schema:
        match part:
            case str():
                writer.append(part)
            case "score", name:
                writer.write_score(name)
            case "judgment", _:
                writer.note("true", writer.write_choice(JUDGMENTS)[1][:, JUDGMENTS.index("true")])
            case "text", _:
                writer.write_text(writer.model.config.max_revised_tokens)
    return list(zip(writer.texts, writer.probabilities))


def continue_ids(tokenizer, text: str) -> list[int]:
    """The tokens of a text that continues another one: tokenised behind a line break, which is then cut off."""
    anchor = tokenizer("\n", add_special_tokens=False).input_ids
    ids = tokenizer("\n" + text, add_special_tokens=False).input_ids
    return ids[len(anchor):] if ids[:len(anchor)] == anchor else tokenizer(text, add_special_tokens=False).input_ids


class Writer:
    """Completes a batch of prompts part by part: fixed text costs no forward pass of its own, gaps are decoded greedily."""

    def __init__(self, model, prompts: Sequence[str], room: int):
        from transformers import DynamicCache

        self.model, self.tokenizer, self.network = model, model.tokenizer, model.quick_network
        self.pending = model.encode(prompts, room)  # of each prompt, what the model has not read yet
        self.rows = list(range(len(prompts)))  # which prompt each row of the batch belongs to
        self.texts = [""] * len(prompts)
        self.probabilities = [{} for _ in prompts]
        self.cache = DynamicCache(config=self.network.config)
        self.mask = torch.zeros(len(prompts), 0, dtype=torch.long, device=model.device)
        shared = min(len(os.path.commonprefix(self.pending)), min(map(len, self.pending)) - 1)
        if len(prompts) > 1 and shared >= SHARED:
            self.read([self.pending[0][:shared]], self.mask[:1])
            self.cache.batch_repeat_interleave(len(prompts))
            self.mask = self.mask.new_ones(len(prompts), shared)
            self.pending = [ids[shared:] for ids in self.pending]

    def ids(self, text: str) -> list[int]:
        return continue_ids(self.tokenizer, text)

    def append(self, text: str, rows: Sequence[int] | None = None) -> None:
        """Add a text the schema fixes; it reaches the model with the next decision."""
        for row in self.rows if rows is None else rows:
            self.pending[row] += self.ids(text)
            self.texts[row] += text

    def read(self, ids: Sequence[Sequence[int]], mask):
        """One forward pass over rows aligned at their ends; returns what follows, (rows, vocabulary), and the mask so far."""
        width = max(1, *map(len, ids))
        padded = torch.tensor([[self.tokenizer.pad_token_id] * (width - len(row)) + list(row) for row in ids])
        real = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in ids]).to(mask)
        positions = (mask.sum(1, keepdim=True) + real.cumsum(1) - 1).clamp(min=0)
        mask = torch.cat([mask, real], 1)
        with torch.inference_mode():
            out = self.network(input_ids=padded.to(mask.device), attention_mask=mask, position_ids=positions, use_cache=True,
                               past_key_values=self.cache, logits_to_keep=1)
        return out.logits[:, -1].float(), mask

    def logits(self):
        """Feed everything pending and return what follows: (rows, vocabulary)."""
        logits, self.mask = self.read([self.pending[row] for row in self.rows], self.mask)
        for row in self.rows:
            self.pending[row] = []
        return logits

    def keep(self, rows: Sequence[int]) -> None:
        """Let all other rows leave the batch."""
        if 0 < len(rows) < len(self.rows):
            wanted = set(rows)
            places = torch.tensor([i for i, row in enumerate(self.rows) if row in wanted], device=self.mask.device)
            self.cache.batch_select_indices(places)
            self.mask = self.mask[places]
        self.rows = list(rows)

    def note(self, name: str, values) -> None:
        """Remember a probability of each row."""
        for row, value in zip(self.rows, values.tolist()):
            self.probabilities[row][name] = float(f"{value:.6g}")

    def write_choice(self, choices: Sequence[str], rows: Sequence[int] | None = None):
        """Let rows choose the likeliest of a few texts, by their first tokens; returns every row's choice, and the probabilities of all."""
        first = [self.ids(choice)[0] for choice in choices]
        if len(set(first)) < len(choices):
            raise ValueError(f"the tokenizer of {self.model.config.model!r} cannot tell {choices} apart; use verdicts = 'free'")
        logits = self.logits()[:, first]
        best = {row: choices[i] for row, i in zip(self.rows, logits.argmax(1).tolist())}
        for row in self.rows if rows is None else rows:
            self.append(best[row], [row])
        return best, logits.softmax(1)

    def write_score(self, name: str) -> None:
        """A number from 0.00 to 1.00: after a leading 1 the rest is fixed."""
        digits = [str(digit) for digit in range(10)]
        whole, chances = self.write_choice(("0", "1"))
        self.append(".")
        rest = [row for row in self.rows if whole[row] == "0"]
        self.append("00", [row for row in self.rows if whole[row] == "1"])
        # What would follow a leading 0 is not asked of rows that wrote a 1: there the expectation is P(1) alone, a lower bound.
        asked = torch.tensor([float(whole[row] == "0") for row in self.rows], device=chances.device)
        expected, values = chances[:, 1], torch.arange(10.0, device=chances.device)
        for unit in (0.1, 0.01) if rest else ():
            expected = expected + asked * chances[:, 0] * unit * (self.write_choice(digits, rest)[1] @ values)
        self.note(name, expected)

    def write_text(self, limit: int) -> None:
        """A quoted string: first whether it is empty, then free text up to its closing mark or up to the limit."""
        opening, empty, end = self.ids(' "')[0], self.ids(' ""')[0], self.ids('"')[0]
        quoted = self.rows
        if opening != empty:  # where both begin with the same token, emptiness shows in the next one
            choice, chances = self.write_choice((' "', ' ""'))
            self.note("empty", chances[:, 1])
            quoted = [row for row in quoted if choice[row] == ' "']
        else:
            self.append(' "')
        everyone = self.rows
        written = self.write_free(quoted, end, limit, self.forbidden(end))
        for row in quoted:
            self.texts[row] += self.tokenizer.decode(written[row], skip_special_tokens=True) + '"'
        self.rows = everyone  # they have left the batch, but not the verdict

    def write_free(self, rows: Sequence[int], end: int, limit: int, forbidden=None) -> dict[int, list[int]]:
        """Tokens of these rows until `end` or the limit; a row that is done leaves the batch, as do all others."""
        written = {row: [] for row in rows}
        self.keep(rows)
        while self.rows and limit:
            logits = self.logits() if forbidden is None else self.logits().masked_fill(forbidden, float("-inf"))
            best, limit = dict(zip(self.rows, logits.argmax(1).tolist())), limit - 1
            self.keep([row for row in self.rows if best[row] != end])
            for row in self.rows:
                self.pending[row].append(best[row])
                written[row].append(best[row])
        return written

    def forbidden(self, end: int):
        """Which tokens would break out of a JSON string: quotation marks, backslashes, control and special tokens."""
        base = self.model.base  # one for all adapters
        if not hasattr(base, "_forbidden"):
            size = self.network.config.vocab_size
            tokens = self.tokenizer.batch_decode([[i] for i in range(size)])
            bad = [any(c in '"\\' or ord(c) < 32 for c in text) or not text for text in tokens]
            mask = torch.tensor(bad)
            mask[[i for i in self.tokenizer.all_special_ids if i < size]] = True
            mask[end] = False
            base._forbidden = mask.to(self.mask.device)
        return base._forbidden
