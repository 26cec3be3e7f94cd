"""Greedy decoding of one batch: free text, and verdicts forced into their schema (the paper's Table 7).

What the schema fixes is appended and only the gaps are decided, so a verdict always parses. A first pass reads up to
the gaps that tell most, and the next one a whole verdict as it is guessed to go on. At the first gap that the model
fills otherwise, the guess is corrected and what was read after it is masked out. So most verdicts cost a few passes
where each token would cost one, and none comes out differently. `local` calls this; `reading` feeds the network and
`gaps` knows the schema.
"""

import os.path
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from transformers import PreTrainedTokenizerBase

from covrag_lite.engine.decode_session import Course
from covrag_lite.engine.prefill import Batch
from covrag_lite.engine.sampling import Dice, Pick, greedily
from covrag_lite.engine.slots import QUOTES, TELLING, Choices, Filled, Gap, Guesses, gaps_of, probabilities_of
from covrag_lite.prompts import VERDICT_ROOM

if TYPE_CHECKING:
    from covrag_lite.engine.local import LanguageModel

EXAMPLES = 2  # prompts of a batch that are compared with their verification prompts
SLACK = 2  # tokens before the place where examples part, where others may part already


def write_answers(model: "LanguageModel", prompts: Sequence[str], limit: int) -> list[tuple[str, dict[str, float]]]:
    """What greedy decoding adds to each prompt of one batch, and how likely the model holds it."""
    return Writer(model, prompts, limit).write_answers(limit)


def write_samples(model: "LanguageModel", prompts: Sequence[str], limit: int, number: int) -> list[str]:
    """One sample of what may follow each prompt; another number gives another sample."""
    writer = Writer(model, prompts, limit)
    written = writer.write_free(writer.rows, {model.end_id}, limit, pick=Dice(prompts, number))
    return [writer.tokenizer.decode(ids, skip_special_tokens=True).strip() for ids in written.values()]


def write_verdicts(model: "LanguageModel", prompts: Sequence[str]) -> list[tuple[str, dict[str, float]]]:
    """For each prompt of one batch the text of a verdict, and the probabilities behind it."""
    room = VERDICT_ROOM + model.config.max_revised_tokens
    return Writer(model, prompts, room).write_verdicts()


def write_both(
    model: "LanguageModel", prompts: Sequence[str], thens: Sequence[Callable[[str], str]], limit: int
) -> list[tuple[str, dict[str, float], str, dict[str, float]]]:
    """Answers, and the verdicts on them, each with the probabilities behind; `thens` make the verification prompts.

    A verification prompt begins like the prompt of its answer, and this beginning is read once for both.
    """
    verdict_room = VERDICT_ROOM + model.config.max_revised_tokens
    writer = Writer(model, prompts, limit + verdict_room)
    asked = model.encode(prompts, limit)
    own = writer.pending
    read_already = writer.n_common
    ends = [max(0, n - read_already) for n in find_alike(model, asked, thens)]
    writer.pending = [ids[:end] for ids, end in zip(own, ends)]
    writer.logits()
    beginning = writer.snapshot()

    writer.pending = [ids[end:] for ids, end in zip(own, ends)]
    answers = writer.write_answers(limit)

    verify_prompts = [then(answer) for then, (answer, _) in zip(thens, answers)]
    verify_ids = model.encode(verify_prompts, verdict_room)
    read = [ids[: read_already + end] for ids, end in zip(asked, ends)]
    if all(ids[: len(begun)] == begun for ids, begun in zip(verify_ids, read)):
        writer.go_back(beginning)
        writer.pending = [ids[len(begun) :] for ids, begun in zip(verify_ids, read)]
        model.used["prompt_tokens"] += sum(map(len, writer.pending))
    else:  # some go on otherwise than the examples did
        writer = Writer(model, verify_prompts, verdict_room)
    verdicts = writer.write_verdicts()
    return [(*answer, *verdict) for answer, verdict in zip(answers, verdicts)]


def find_alike(
    model: "LanguageModel", asked: Sequence[Sequence[int]], thens: Sequence[Callable[[str], str]]
) -> list[int]:
    """How many tokens of each prompt its verification prompt is taken to begin with.

    All prompts end alike, so that a few examples tell where the two part: tokenising all of them takes longer than
    reading a few tokens twice.
    """
    examples = model.encode([then("") for then in thens[:EXAMPLES]], 0)
    apart = max(len(ids) - len(os.path.commonprefix([ids, other])) for ids, other in zip(asked, examples))
    return [len(ids) - apart - SLACK for ids in asked]


def continue_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """The tokens of a text that continues another one: tokenised behind a line break, which is then cut off."""
    anchor = tokenizer("\n", add_special_tokens=False).input_ids
    ids = tokenizer("\n" + text, add_special_tokens=False).input_ids
    if ids[: len(anchor)] == anchor:
        return ids[len(anchor) :]
    return tokenizer(text, add_special_tokens=False).input_ids


class Tail(NamedTuple):
    """How a verdict is guessed to go on."""

    ids: list[int]  # its tokens up to the last gap
    places: list[int]  # of each gap, where the token before it stands; counted from the end, so the last is -1
    guessed: Sequence[str]  # what each gap is guessed to hold


class Chances:
    """The probabilities of the choices at some places of every row, from the logits there: (rows, places, vocabulary).

    Only those that are asked for become numbers of Python's.
    """

    def __init__(self, logits: torch.Tensor, choices: Choices, places: Sequence[int]):
        first_tokens = logits[..., choices.tokens].cpu().double()
        self.tables = {}  # of each tuple of choices: (rows, places, choices)
        for one, columns in choices.columns.items():
            self.tables[one] = first_tokens[..., columns].softmax(-1).numpy()
        self.numbers = {place: number for number, place in enumerate(places)}

    def at(self, row: int, gap: Gap, place: int) -> list[float]:
        """Of the choices at a gap that stands at this place of a row."""
        return self.tables[gap.choices][row, self.numbers[place]].tolist()


class Quoted(NamedTuple):
    """Which tokens may be written in a JSON string."""

    ends: Collection[int]  # those that end it, by themselves or with the last letters before its quotation mark
    forbidden: torch.Tensor  # whether each would break out of it otherwise, (vocabulary)


class Writer(Batch):
    """Completes a batch of prompts."""

    def ids(self, text: str) -> list[int]:
        """The tokens of a piece of the schema that goes on after what was written; each piece is tokenised once."""
        known = self.model.base.__dict__.setdefault("_pieces", {})  # one for all adapters
        if text not in known:
            known[text] = continue_ids(self.tokenizer, text)
        return known[text]

    def write_answers(self, limit: int) -> list[tuple[str, dict[str, float]]]:
        """Free text of every row, up to the end of the model's turn, and how likely the model holds it."""
        written = self.write_free(self.rows, {self.model.end_id}, limit)
        texts = [self.tokenizer.decode(ids, skip_special_tokens=True).strip() for ids in written.values()]
        means = [sum(logs) / len(logs) if logs else 0.0 for logs in self.logs.values()]
        return [(text, {"likelihood": float(f"{mean:.5g}")}) for text, mean in zip(texts, means)]

    def write_verdicts(self) -> list[tuple[str, dict[str, float]]]:
        """Each row's verdict and the probabilities behind it: the gaps first, then the revised questions they begin."""
        gaps, closing = gaps_of(self.model.schema)
        made = self.write_gaps(gaps)
        limit = self.model.config.max_revised_tokens
        revised = self.write_free(self.rows, self.quoted.ends, limit, self.quoted.forbidden)
        verdicts = []
        for row, filled in made.items():
            text = "".join(gap.before + choice for gap, choice in zip(gaps, filled.path))
            if row in revised:
                ids = revised[row] + self.ended.get(row, [])
                text += self.tokenizer.decode(ids, skip_special_tokens=True).removesuffix('"') + '"'
            verdicts.append((text + closing, probabilities_of(gaps, filled.chances)))
        return verdicts

    def write_free(
        self,
        rows: Sequence[int],
        ends: Collection[int],
        limit: int,
        forbidden: torch.Tensor | None = None,
        pick: Pick = greedily,
    ) -> dict[int, list[int]]:
        """Tokens of these rows until one of `ends` or the limit; a row that is done leaves the batch, as do all others.

        What has ended a row is kept in `ended`.
        """
        written = {row: [] for row in rows}
        self.ended = {}
        self.logs = {row: [] for row in rows}  # of each token written, its logarithmic probability
        self.keep(rows)
        active = list(rows)
        course = None  # steps of fixed shapes, taken once the prompts are read
        for number in range(limit):
            if not active:
                break
            tokens, logs = course.take() if course else self.next_tokens(forbidden, pick)
            going = [place for place, token in enumerate(tokens) if token not in ends]
            for row, token, log in zip(active, tokens, logs):
                self.logs[row].append(log)
                if token in ends:
                    self.ended[row] = [token]
            for place in going:
                self.pending[active[place]].append(tokens[place])
                written[active[place]].append(tokens[place])
            active = [active[place] for place in going]
            if course:
                course.keep(going)
                continue
            self.keep(active)
            if active and number == 0 and pick is greedily:
                course = self.begin_course(limit - 1, forbidden)
        self.keep(active)
        return written

    def next_tokens(self, forbidden: torch.Tensor | None, pick: Pick) -> tuple[list[int], list[float]]:
        """Read all that is pending; the next token of each row, and its logarithmic probability."""
        logits = self.logits()
        if forbidden is not None:
            logits = logits.masked_fill(forbidden, float("-inf"))
        picked, tokens = pick(self.rows, logits)
        logs = picked - logits.logsumexp(1)
        # Both at once, because a GPU is waited for each time; every token and every log is exact in 64 bits.
        tokens, logs = torch.stack([tokens.double(), logs.double()]).tolist()
        return [int(token) for token in tokens], logs

    def begin_course(self, limit: int, forbidden: torch.Tensor | None) -> Course | None:
        """Steps of fixed shapes from here on, where this model takes such; each row has one token pending."""
        if self.model.steps is None:
            return None
        tokens = [self.pending[row][-1] for row in self.rows]
        return self.model.steps.begin(self.model.adapter, self.cache, self.mask, tokens, limit, forbidden)

    @property
    def quoted(self) -> Quoted:
        """What may be written in a JSON string; it is found out once."""
        base = self.model.base  # one for all adapters
        if not hasattr(base, "_quoted"):
            size = self.network.config.vocab_size
            texts = self.tokenizer.batch_decode([[token] for token in range(size)])
            special = set(self.tokenizer.all_special_ids)
            ends = {token for token, text in enumerate(texts) if token not in special and ends_string(text)}
            allowed = [
                token in ends or not (token in special or breaks_string(text)) for token, text in enumerate(texts)
            ]
            base._quoted = Quoted(ends, ~torch.tensor(allowed, device=self.mask.device))
        return base._quoted

    def write_gaps(self, gaps: Sequence[Gap]) -> dict[int, Filled]:
        """Each row's choices and their chances; rows with an empty revision leave the batch."""
        choices = Choices(gaps, self.ids, self.model.config.model)
        guesses = Guesses(gaps)
        made = {row: Filled([], []) for row in self.rows}
        first = [TELLING, len(gaps)]
        n_filled = 0
        while any(len(made[row].path) < len(gaps) for row in self.rows):
            ahead = first.pop(0) if first else 2 * n_filled  # not much further than guesses have just been right
            n_filled = self.fill_ahead(gaps, choices, guesses, made, ahead)
            self.keep([row for row in self.rows if made[row].path[-1] != QUOTES[1]])
        return made

    def fill_ahead(
        self, gaps: Sequence[Gap], choices: Choices, guesses: Guesses, made: dict[int, Filled], ahead: int
    ) -> int:
        """Fill up to `ahead` gaps of every row by one pass over its guess; returns the most that a row has filled."""
        begun = {row: tuple(made[row].path) for row in self.rows}
        tails = {}
        for path in set(begun.values()):
            tails[path] = self.lay_out(gaps[: len(path) + ahead], path, guesses.guess(path))
        fed = []
        for row in self.rows:
            tail = tails[begun[row]]
            fed.append(self.pending[row] + tail.ids if tail.places else [])  # a row without gaps left waits
        places = sorted({place for tail in tails.values() for place in tail.places})
        logits, self.mask = self.read(fed, self.mask, places)
        chances = Chances(logits, choices, places)
        last_places = []
        for number, row in enumerate(self.rows):
            path = made[row].path
            last_places.append(fill(made[row], gaps, choices, tails[begun[row]], partial(chances.at, number)))
            if len(path) > len(begun[row]):
                self.pending[row] = list(self.ids(path[-1]))
                guesses.add(path)
        self.forget_after(last_places)
        return max(len(made[row].path) - len(begun[row]) for row in self.rows)

    def lay_out(self, gaps: Sequence[Gap], path: Sequence[str], guessed: Sequence[str]) -> Tail:
        """The tokens that follow the choices of `path` if the guess is right, up to the last of these gaps."""
        ids = []
        ends = []
        for number in range(len(path), len(gaps)):
            ids += self.ids(gaps[number].before)
            ends.append(len(ids))
            is_last = number == len(gaps) - 1
            if not is_last:
                ids += self.ids(guessed[number])
        places = [end - 1 - len(ids) for end in ends]
        return Tail(ids, places, guessed[len(path) : len(gaps)])


def fill(
    filled: Filled, gaps: Sequence[Gap], choices: Choices, tail: Tail, chances_at: Callable[[Gap, int], list[float]]
) -> int:
    """Fill a verdict's next gaps up to the first that was guessed wrong; returns the place of the last choice."""
    last = -1  # where no gap is left
    for place, guessed in zip(tail.places, tail.guessed):
        gap = gaps[len(filled.path)]
        choice, chances = choices.choose(gap, filled.path, chances_at(gap, place))
        filled.path.append(choice)
        filled.chances.append(chances)
        last = place
        if choice != guessed:
            break
    return last


def ends_string(text: str) -> bool:
    """Whether a token's text ends a JSON string: its last letter does, and those before it belong to the string."""
    return text == '"' or text.endswith('"') and not breaks_string(text[:-1])


def breaks_string(text: str) -> bool:
    """Whether a token's text would end a JSON string or make it unreadable, or is no text at all."""
    return not text or any(letter in '"\\' or ord(letter) < 32 for letter in text)
