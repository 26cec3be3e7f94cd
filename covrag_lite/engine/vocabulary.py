"""Texts to tokens and back: prompts as user turns, continuations, and what may be quoted."""

import re
from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import AutoTokenizer

# The text of a token inside a JSON string, and of one that ends it, with or without letters before.
INSIDE = re.compile(r'[^"\\\x00-\x1f]+')
ENDING = re.compile(r'[^"\\\x00-\x1f]*"')


class Quoted(NamedTuple):
    """The tokens that may be written in a JSON string."""

    ends: Collection[int]  # tokens that end it
    forbidden: torch.Tensor  # (vocabulary), tokens that would make it invalid


class Vocabulary:
    """The tokenizer of a model folder, used in the same way for answering and for training."""

    def __init__(self, folder: Path):
        self.tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
        self.tokenizer.pad_token = self.tokenizer.pad_token or self.tokenizer.eos_token
        self.pieces: dict[str, list[int]] = {}  # pieces of the schema and their tokens

    @cached_property
    def end_id(self) -> int:
        """Return the token that ends the model's turn in its chat template.

        The tokenizer's own end token is sometimes another one.
        """
        if not self.tokenizer.chat_template:
            return self.tokenizer.eos_token_id
        turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "§"}]
        ending = self.tokenizer.apply_chat_template(turns, tokenize=False).split("§")[-1]
        if not ending:
            return self.tokenizer.eos_token_id
        return self.tokenizer(ending, add_special_tokens=False).input_ids[0]

    def tokenise(self, prompts: Sequence[str]) -> list[list[int]]:
        """Tokenise each prompt, as a user turn if the tokenizer has a chat template."""
        if not prompts:
            return []
        if not self.tokenizer.chat_template:
            return self.tokenizer(list(prompts)).input_ids
        turns = [[{"role": "user", "content": prompt}] for prompt in prompts]
        rendered = self.tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True
        )
        return self.tokenizer(rendered, add_special_tokens=False).input_ids

    def continue_ids(self, text: str) -> list[int]:
        """Tokenise a text as a continuation: after a line break, which is then removed."""
        line_break = self.tokenizer("\n", add_special_tokens=False).input_ids
        ids = self.tokenizer("\n" + text, add_special_tokens=False).input_ids
        if ids[: len(line_break)] == line_break:
            return ids[len(line_break) :]
        return self.tokenizer(text, add_special_tokens=False).input_ids

    def piece(self, text: str) -> list[int]:
        """Return the tokens of a piece of the schema; each piece is tokenised once."""
        if text not in self.pieces:
            self.pieces[text] = self.continue_ids(text)
        return self.pieces[text]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of these tokens without special ones."""
        return self.tokenizer.decode(tokens, skip_special_tokens=True)

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        if not texts:
            return []
        return list(map(len, self.tokenizer(list(texts), add_special_tokens=False).input_ids))

    def find_quoted(self, size: int, device: str) -> Quoted:
        """Return which of the first `size` tokens may be written in a JSON string."""
        texts = self.tokenizer.batch_decode([[token] for token in range(size)])
        special = set(self.tokenizer.all_special_ids)
        ends = set()
        allowed = []
        for token, text in enumerate(texts):
            is_end = token not in special and ENDING.fullmatch(text) is not None
            is_inside = token not in special and INSIDE.fullmatch(text) is not None
            if is_end:
                ends.add(token)
            allowed.append(is_end or is_inside)
        return Quoted(ends, ~torch.tensor(allowed, device=device))
