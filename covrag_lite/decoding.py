"""Verdicts forced into their schema: what the schema fixes is appended, only the gaps are decoded, greedily.

So a verdict always parses and costs about a third of the forward passes of free decoding. `model` calls this; it is
apart because it knows the schema and the cache, and nothing of how a model is loaded.
"""

from collections.abc import Sequence

import torch

from covrag_lite.prompts import JUDGMENTS


def write_verdicts(model, prompts: Sequence[str]) -> list[str]:
    """The text of a verdict for each prompt of one batch."""
    writer = SchemaWriter(model, prompts)
    for part in model.schema:
        match part:
            case str():
                writer.append(part)
            case "score", _:
                writer.write_score()
            case "judgment", _:
                writer.write_choice(JUDGMENTS)
            case "text", _:
                writer.write_text(model.config.max_revised_tokens)
    return writer.texts


def continue_ids(tokenizer, text: str) -> list[int]:
    """The tokens of a text that continues another one: tokenised behind a line break, which is then cut off."""
    anchor = tokenizer("\n", add_special_tokens=False).input_ids
    ids = tokenizer("\n" + text, add_special_tokens=False).input_ids
    return ids[len(anchor):] if ids[:len(anchor)] == anchor else tokenizer(text, add_special_tokens=False).input_ids


class SchemaWriter:
    """Completes a batch of prompts part by part: fixed text costs no forward pass of its own, gaps are decoded greedily."""

    def __init__(self, model, prompts: Sequence[str]):
        from transformers import DynamicCache

        self.model, self.tokenizer = model, model.tokenizer
        batch = model.encode(prompts, 128 + model.config.max_revised_tokens)
        self.cache = DynamicCache(config=model.network.config)
        self.mask = batch.attention_mask[:, :0]
        self.pending = [ids[ids_mask.bool()].tolist() for ids, ids_mask in zip(batch.input_ids, batch.attention_mask)]
        self.texts = [""] * len(prompts)

    def ids(self, text: str) -> list[int]:
        return continue_ids(self.tokenizer, text)

    def append(self, text: str, rows: Sequence[int] | None = None) -> None:
        """Add a text the schema fixes; it reaches the model with the next decision."""
        for row in range(len(self.texts)) if rows is None else rows:
            self.pending[row] += self.ids(text)
            self.texts[row] += text

    def logits(self):
        """Feed everything pending, rows aligned at their ends, and return what follows: (rows, vocabulary)."""
        width = max(1, *map(len, self.pending))
        ids = torch.tensor([[self.tokenizer.pad_token_id] * (width - len(row)) + row for row in self.pending])
        real = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in self.pending]).to(self.mask)
        before = self.mask.sum(1, keepdim=True)
        self.mask = torch.cat([self.mask, real], 1)
        with torch.inference_mode():
            out = self.model.network(input_ids=ids.to(self.mask.device), attention_mask=self.mask, use_cache=True,
                                     position_ids=(before + real.cumsum(1) - 1).clamp(min=0),
                                     past_key_values=self.cache, logits_to_keep=1)
        self.pending = [[] for _ in self.pending]
        return out.logits[:, -1].float()

    def write_choice(self, choices: Sequence[str], rows: Sequence[int] | None = None) -> list[str]:
        """Let every row choose the likeliest of a few texts, by their first tokens."""
        rows = range(len(self.texts)) if rows is None else rows
        first = [self.ids(choice)[0] for choice in choices]
        if len(set(first)) < len(choices):
            raise ValueError(f"the tokenizer of {self.model.config.model!r} cannot tell {choices} apart; use verdicts = 'free'")
        best = self.logits()[:, first].argmax(1).tolist()
        for row in rows:
            self.append(choices[best[row]], [row])
        return [choices[i] for i in best]

    def write_score(self) -> None:
        """A number from 0.00 to 1.00: after a leading 1 the rest is fixed."""
        digits, everyone = [str(digit) for digit in range(10)], range(len(self.texts))
        whole = self.write_choice(("0", "1"))
        self.append(".")
        rest = [row for row in everyone if whole[row] == "0"]
        self.append("00", [row for row in everyone if whole[row] == "1"])
        for _ in range(2 if rest else 0):
            self.write_choice(digits, rest)

    def write_text(self, limit: int) -> None:
        """A quoted string: first whether it is empty, then free text up to its closing mark or up to the limit."""
        opening, empty, end = self.ids(' "')[0], self.ids(' ""')[0], self.ids('"')[0]
        going = list(range(len(self.texts)))
        if opening != empty:  # where both begin with the same token, emptiness shows in the next one
            going = [row for row, choice in enumerate(self.write_choice((' "', ' ""'))) if choice == ' "']
        else:
            self.append(' "')
        quoted, written = going, {row: [] for row in going}
        for _ in range(limit if going else 0):
            best = self.logits().masked_fill(self.forbidden(end), float("-inf")).argmax(1).tolist()
            going = [row for row in going if best[row] != end]
            if not going:
                break
            for row in going:
                self.pending[row].append(best[row])
                written[row].append(best[row])
        for row in quoted:
            self.texts[row] += self.tokenizer.decode(written[row], skip_special_tokens=True) + '"'

    def forbidden(self, end: int):
        """Which tokens would break out of a JSON string: quotation marks, backslashes, control and special tokens."""
        if not hasattr(self.model, "_forbidden"):
            size = self.model.network.config.vocab_size
            tokens = self.tokenizer.batch_decode([[i] for i in range(size)])
            bad = [any(c in '"\\' or ord(c) < 32 for c in text) or not text for text in tokens]
            mask = torch.tensor(bad)
            mask[[i for i in self.tokenizer.all_special_ids if i < size]] = True
            mask[end] = False
            self.model._forbidden = mask.to(self.mask.device)
        return self.model._forbidden
