"""Greedy decoding of one batch: free text, and verdicts forced into their schema.

What the schema fixes is appended, only the gaps are decided, so a verdict always parses. A pass reads the whole verdict
as it is guessed to go on; the first gap that the model fills otherwise is corrected and what was read after it is masked
out, so that most verdicts cost a few passes where each token would cost one, and none comes out differently. What all
prompts of a batch begin with is read once, and rows that are done leave the batch. `local` calls this; it is apart
because it knows the schema and the cache, and nothing of how a model is loaded.
"""

import os.path
from collections.abc import Callable, Sequence

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from covrag_lite.model.gaps import QUOTES, Gap, Guesses, fixed, gaps_of, probabilities_of, softmax
from covrag_lite.model.serving import roomy_cache
from covrag_lite.prompts import VERDICT_ROOM

# All but cuDNN's, which plans anew for every new shape: each step of decoding brings one, and the plan costs several times the step.
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
SHARED = 16  # tokens of a common beginning from which reading it by itself pays


def write_answers(model, prompts: Sequence[str], limit: int) -> list[str]:
    """What greedy decoding adds to each prompt of one batch."""
    return Writer(model, prompts, limit).write_answers(limit)


def write_verdicts(model, prompts: Sequence[str]) -> list[tuple[str, dict[str, float]]]:
    """For each prompt of one batch the text of a verdict, and the probabilities behind it."""
    return Writer(model, prompts, VERDICT_ROOM + model.config.max_revised_tokens).write_verdicts()


def write_both(
    model, prompts: Sequence[str], thens: Sequence[Callable[[str], str]], limit: int
) -> list[tuple[str, str, dict[str, float]]]:
    """Answers, and the verdicts on them: `thens` make each answer's verification prompt, and what it begins with like the first is not read again."""
    writer = Writer(model, prompts, limit + VERDICT_ROOM + model.config.max_revised_tokens)
    alike = [
        len(os.path.commonprefix(pair))
        for pair in zip(model.encode(prompts, limit), model.encode([then("") for then in thens], 0))
    ]
    own = writer.pending
    ends = [n - writer.mask.shape[1] for n in alike]  # what all prompts begin with has been read
    writer.pending = [ids[:end] for ids, end in zip(own, ends)]
    writer.logits()
    before = writer.state
    writer.pending = [ids[end:] for ids, end in zip(own, ends)]
    answers = writer.write_answers(limit)
    writer.state = before
    asked = model.encode(
        [then(answer) for then, answer in zip(thens, answers)], VERDICT_ROOM + model.config.max_revised_tokens
    )
    writer.pending = [ids[n:] for ids, n in zip(asked, alike)]
    return [(answer, *verdict) for answer, verdict in zip(answers, writer.write_verdicts())]


def continue_ids(tokenizer, text: str) -> list[int]:
    """The tokens of a text that continues another one: tokenised behind a line break, which is then cut off."""
    anchor = tokenizer("\n", add_special_tokens=False).input_ids
    ids = tokenizer("\n" + text, add_special_tokens=False).input_ids
    return ids[len(anchor) :] if ids[: len(anchor)] == anchor else tokenizer(text, add_special_tokens=False).input_ids


class Writer:
    """Completes a batch of prompts: what each row has not read yet is pending, what it has read is in the cache and its mask."""

    def __init__(self, model, prompts: Sequence[str], room: int):
        self.model, self.tokenizer, self.network = model, model.tokenizer, model.quick_network
        self.pending = model.encode(prompts, room)  # of each prompt, what the model has not read yet
        self.rows = list(range(len(prompts)))  # which prompt each row of the batch belongs to
        self.cache = roomy_cache(self.network.config)
        self.mask = torch.zeros(len(prompts), 0, dtype=torch.long, device=model.device)
        shared = min(len(os.path.commonprefix(self.pending)), min(map(len, self.pending)) - 1)
        if len(prompts) > 1 and shared >= SHARED:
            self.read([self.pending[0][:shared]], self.mask[:1])
            self.cache.batch_repeat_interleave(len(prompts))
            self.mask = self.mask.new_ones(len(prompts), shared)
            self.pending = [ids[shared:] for ids in self.pending]

    def ids(self, text: str) -> list[int]:
        return continue_ids(self.tokenizer, text)

    @property
    def state(self):
        """What has been read: to come back to, since a cache only ever grows behind its end."""
        return self.rows, self.mask, [(layer.keys, layer.values) for layer in self.cache.layers]

    @state.setter
    def state(self, state) -> None:
        self.rows, self.mask, kept = state
        for layer, (keys, values) in zip(self.cache.layers, kept):
            layer.keys, layer.values = keys, values

    def read(self, ids: Sequence[Sequence[int]], mask, places: Sequence[int] = (-1,)):
        """One forward pass over rows aligned at their ends; returns what follows at these places, (rows, places, vocabulary), and the mask so far."""
        width = max(1, *map(len, ids))
        padded = torch.tensor([[self.tokenizer.pad_token_id] * (width - len(row)) + list(row) for row in ids])
        real = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in ids]).to(mask)
        positions = (mask.sum(1, keepdim=True) + real.cumsum(1) - 1).clamp(min=0)
        mask = torch.cat([mask, real], 1)
        with torch.inference_mode(), sdpa_kernel(KERNELS):
            out = self.network(
                input_ids=padded.to(mask.device),
                attention_mask=mask,
                position_ids=positions,
                use_cache=True,
                past_key_values=self.cache,
                logits_to_keep=torch.tensor([width + place for place in places], device=mask.device),
            )
        return out.logits, mask

    def logits(self):
        """Feed everything pending and return what follows: (rows, vocabulary)."""
        logits, self.mask = self.read([self.pending[row] for row in self.rows], self.mask)
        for row in self.rows:
            self.pending[row] = []
        return logits[:, -1].float()

    def keep(self, rows: Sequence[int]) -> None:
        """Let all other rows leave the batch."""
        if 0 < len(rows) < len(self.rows):
            wanted = set(rows)
            places = torch.tensor([i for i, row in enumerate(self.rows) if row in wanted], device=self.mask.device)
            self.cache.batch_select_indices(places)
            self.mask = self.mask[places]
        self.rows = list(rows)

    def write_answers(self, limit: int) -> list[str]:
        """Free text of every row, up to the end of the model's turn."""
        written = self.write_free(self.rows, self.model.end_id, limit)
        return [self.tokenizer.decode(ids, skip_special_tokens=True).strip() for ids in written.values()]

    def write_verdicts(self) -> list[tuple[str, dict[str, float]]]:
        """Each row's verdict and the probabilities behind it: the gaps, then the revised question of those that begin one."""
        gaps, closing = gaps_of(self.model.schema)
        made = self.write_gaps(gaps)
        end = self.ids('"')[0]
        written = self.write_free(self.rows, end, self.model.config.max_revised_tokens, self.forbidden(end))
        revised = {row: self.tokenizer.decode(ids, skip_special_tokens=True) + '"' for row, ids in written.items()}
        text = lambda row, path: (
            "".join(gap.before + choice for gap, choice in zip(gaps, path)) + revised.get(row, "") + closing
        )
        return [(text(row, path), probabilities_of(gaps, path, chances)) for row, (path, chances) in made.items()]

    def write_gaps(self, gaps: Sequence[Gap]) -> dict[int, tuple[list[str], list[list[float]]]]:
        """Each row's choices and their chances; rows with an empty revision then leave the batch."""
        first = {gap.choices: [self.ids(choice)[0] for choice in gap.choices] for gap in gaps}
        for choices, ids in first.items():
            if (
                len(set(ids)) < len(choices) and choices != QUOTES
            ):  # an empty revision may also show later, by ending at once
                raise ValueError(
                    f"the tokenizer of {self.model.config.model!r} cannot tell {choices} apart; use verdicts = 'free'"
                )
        tells_empty, known = first[QUOTES][0] != first[QUOTES][1], sorted({i for ids in first.values() for i in ids})
        place_of = {choices: [known.index(i) for i in ids] for choices, ids in first.items()}
        made, seen, ahead = {row: ([], []) for row in self.rows}, Guesses(gaps), len(gaps)
        while any(len(made[row][0]) < len(gaps) for row in self.rows):
            begun = {row: tuple(made[row][0]) for row in self.rows}
            guesses = {path: seen.guess(path) for path in set(begun.values())}
            tails = {path: self.lay_out(gaps[: len(path) + ahead], path, guesses[path]) for path in guesses}
            fed = [self.pending[row] + tails[begun[row]][0] if len(begun[row]) < len(gaps) else [] for row in self.rows]
            places = sorted({place for _, asked in tails.values() for place in asked})
            logits, self.mask = self.read(fed, self.mask, places)
            last = []  # of each row, the place of its last choice
            for row, values in zip(self.rows, logits[..., known].float().tolist()):
                path, chances = made[row]
                place = -1
                for gap, guessed, place in zip(
                    gaps[len(path) :], guesses[begun[row]][len(path) :], tails[begun[row]][1]
                ):
                    only = fixed(gap, path) or (QUOTES[0] if gap.choices == QUOTES and not tells_empty else None)
                    chances.append(
                        [] if only else softmax([values[places.index(place)][j] for j in place_of[gap.choices]])
                    )
                    path.append(only or gap.choices[chances[-1].index(max(chances[-1]))])
                    if path[-1] != guessed:
                        break
                last.append(place)
                if len(begun[row]) < len(path):
                    self.pending[row] = list(self.ids(path[-1]))
                    seen.add(path)
            read = (
                torch.arange(-self.mask.shape[1], 0, device=self.mask.device)
                <= torch.tensor(last, device=self.mask.device)[:, None]
            )
            self.mask = self.mask * read  # what was read after a row's last choice does not count
            ahead = 2 * max(
                len(made[row][0]) - len(begun[row]) for row in self.rows
            )  # no further than guesses have just been right
            self.keep([row for row in self.rows if made[row][0][-1] != QUOTES[1]])
        return made

    def lay_out(self, gaps: Sequence[Gap], path: Sequence[str], guessed: Sequence[str]) -> tuple[list[int], list[int]]:
        """The tokens that follow these choices if the guess is right, up to the last gap, and each gap's place from the end."""
        ids, places = [], []
        for number in range(len(path), len(gaps)):
            ids += self.ids(gaps[number].before)
            places.append(len(ids) - 1)
            ids += self.ids(guessed[number]) if number < len(gaps) - 1 else []
        return ids, [place - len(ids) for place in places]

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
