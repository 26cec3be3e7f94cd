"""The engine behind any OpenAI-compatible server: model="endpoint:<name>".

Server and key come from the environment alone (OPENAI_BASE_URL, OPENAI_API_KEY); the key stays inside the client and
reaches no journal, no manifest and no error. With adapters = "served" the server knows our adapters as models of their
own names, as vLLM does with `--enable-lora --lora-modules rag=<folder> cov=<folder>`.
"""

import copy
import json
import math
import os
import re
import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import openai
from openai.types.chat import ChatCompletion, ChatCompletionTokenLogprob

from covrag_lite.config import Model
from covrag_lite.engine.interface import Completion, Schema, report_fallback
from covrag_lite.engine.slots import DIGITS, Slot, probabilities_of
from covrag_lite.journal import key_of
from covrag_lite.prompts import JUDGMENTS, fill
from covrag_lite.records import SCORES

PREFIX = "endpoint:"
REQUESTS = 12  # under way at once
RETRIES = 6  # the client waits 0.5 s, twice as long each time up to 8 s, or what Retry-After says: half a minute in all
TIMEOUT = 180.0  # seconds until a reply begins: two verdicts at once took 76 on two cores; giving up writes them twice
VERDICT_TOKENS = 200  # a verdict without its revised question takes about 100; some servers indent their JSON
TOP = 20  # tokens at each place whose probabilities are asked for, the most that servers tell
# Fields that a server may refuse -> what becomes of that, and why it matters little.
REFUSABLE = {
    "logprobs": ("probabilities are not told", "likelihoods and expected scores are not known"),
    "response_format": ("verdicts are not forced", "those that do not parse are counted"),
}
DROPPED = ((), ("logprobs",), ("response_format",), tuple(REFUSABLE))  # what is left out, in this order
SCORE = re.compile(r'"(\w+)":\s*([01])\.(\d)(\d?)')


class EndpointError(RuntimeError):
    """The server did not answer, after every retry; what it had answered before is not lost."""


def load(settings: Model, execution: str) -> "Endpoint":
    """The engine of a served model; how passes run is the server's affair."""
    return Endpoint(settings)


class Endpoint:
    """A served model."""

    device = "endpoint"
    at_once = REQUESTS
    adapter: Path | None = None
    weights = None

    def __init__(self, settings: Model, retries: int = RETRIES, timeout: float = TIMEOUT):
        self.settings = settings
        self.name = settings.model.removeprefix(PREFIX)
        if not (self.name and os.environ.get("OPENAI_API_KEY")):
            needed = "a name behind its colon, a key in OPENAI_API_KEY (any word where none is asked for)"
            raise ValueError(f"model {settings.model!r} needs {needed}, and the server's address in OPENAI_BASE_URL")
        self.client = openai.OpenAI(max_retries=retries, timeout=timeout)  # reads the environment
        url = self.client.base_url
        # Without user, password and query, because a key may stand there.
        self.server = f"{url.netloc.decode()}{url.path}".rstrip("/")
        self.weights_hash = key_of(server=self.server, model=self.name)[:16]  # for weights that cannot be seen
        self.used = Counter()
        self.counting = threading.Lock()
        self.refused: set[str] = set()

    @property
    def fingerprint(self) -> str:
        return f"{self.weights_hash}+{self.adapter}" if self.adapter else self.weights_hash

    def with_adapter(self, name: str) -> "Endpoint":
        """The adapter that the server knows by that name; itself where it is not said to have any."""
        if not name or self.settings.adapters != "served":
            return self
        view = copy.copy(self)
        view.adapter = Path(name)
        return view

    def batches(self, prompts: Sequence[str], room: int) -> list[list[str]]:
        """Every prompt by itself: each is journaled as soon as it is answered."""
        return [[prompt] for prompt in prompts]

    def complete(self, prompts: Sequence[str], max_tokens: int, sample: int | None = None) -> list[Completion]:
        """Each prompt completed as one user's turn; servers that know no seed draw a sample anew."""
        chance = {"logprobs": True} if sample is None else {"temperature": 1, "seed": sample}
        made = []
        for prompt in prompts:
            text, tokens = self._ask(prompt, max_tokens=max_tokens, **chance)
            mean = sum(one.logprob for one in tokens) / len(tokens) if tokens else None  # without the end's
            made.append(Completion(text, {"likelihood": round(mean, 5)} if tokens else None))
        return made

    def fill(self, prompts: Sequence[str], schema: Schema | None, max_tokens: int) -> list[Completion]:
        """Verdicts in the schema's JSON where the server can force it, else in the model's own words."""
        options = {"max_tokens": VERDICT_TOKENS + max_tokens}
        if schema is not None:
            form = {"name": "verdict", "strict": True, "schema": json_schema(schema)}
            options["response_format"] = {"type": "json_schema", "json_schema": form}
            options |= {"logprobs": True, "top_logprobs": TOP}
        made = [self._ask(prompt, **options) for prompt in prompts]
        return [Completion(text, expected_scores(tokens) or None) for text, tokens in made]

    def count_tokens(self, prompts: Sequence[str], texts: Sequence[str]) -> list[tuple[float, float]]:
        """Unknown text by text: the server counts its own."""
        return [(math.nan, math.nan)] * len(texts)

    def _ask(self, prompt: str, **options) -> tuple[str, list[ChatCompletionTokenLogprob]]:
        """One prompt's text, a refusal included, and its tokens where the server tells their probabilities."""
        try:
            choice = self._request(prompt, options).choices[0]
            text = (choice.message.content or choice.message.refusal or "").strip()
            return text, getattr(choice.logprobs, "content", None) or []
        except openai.APIError as error:
            trouble = self._describe(error)
        except (json.JSONDecodeError, AttributeError, IndexError, TypeError):  # the client does not look at replies
            trouble = "it answered with something that is no chat completion in JSON"
        # Raised outside of `except`, because the client's own error holds the request, key and all.
        raise EndpointError(f"{self.name!r} at {self.server}: {trouble}")

    def _request(self, prompt: str, options: dict) -> ChatCompletion:
        """The reply to one request, repeated by the client while that may help.

        Where a field may be to blame for a refusal, the request is repeated without it, and without all of them.
        """
        # `max_tokens` rather than its successor: vLLM, llama.cpp and `transformers serve` all know it.
        asked = {"model": str(self.adapter or self.name), "messages": [{"role": "user", "content": prompt}]}
        asked |= {"temperature": 0} | without(options, self.refused)
        ways = [names for names in DROPPED if asked.keys() >= set(names)]
        for dropped in ways:
            try:
                reply = self.client.chat.completions.create(**without(asked, dropped))
                break
            except (openai.BadRequestError, openai.UnprocessableEntityError):  # 400 and 422
                if dropped == ways[-1]:
                    raise
        usage = getattr(reply, "usage", None)
        with self.counting:
            for name in dropped:  # only now: the request itself was good
                self.refused.add(name)
                way, effect = REFUSABLE[name]
                report_fallback(self.used, way, f"the server refuses {name}", effect)
            self.used["requests"] += 1
            for name in ("prompt_tokens", "completion_tokens"):
                self.used[name] += getattr(usage, name, None) or 0
        return reply

    def _describe(self, error: openai.APIError) -> str:
        """What happened, in words without the key: a server may quote it back, whole or in part."""
        if isinstance(error, (openai.AuthenticationError, openai.PermissionDeniedError)):
            return f"it refused the key in OPENAI_API_KEY (status {error.status_code})"
        if isinstance(error, openai.APIStatusError):
            said = " ".join(error.response.text.split()).replace(self.client.api_key, "…")[:200]
            return f"status {error.status_code}" + (said and f", {said}")
        if isinstance(error, openai.APITimeoutError):
            return f"no answer within {self.client.timeout} s"
        return "the connection failed or broke off; OPENAI_BASE_URL has its address, http://… or https://…"


def without(options: Mapping[str, object], names: Collection[str]) -> dict[str, object]:
    """The options but for these, and what belongs to them."""
    return {key: value for key, value in options.items() if key.removeprefix("top_") not in names}


def expected_scores(tokens: Sequence[ChatCompletionTokenLogprob]) -> dict[str, float]:
    """Each score's expectation, where the model writes numbers digit by digit."""
    letters, text = {}, ""  # by their places, the chances of tokens of one letter
    for one in tokens:
        if len(one.token) == 1:
            letters[len(text)] = {other.token: math.exp(other.logprob) for other in one.top_logprobs}
        text += one.token
    slots, chances = [], []
    for found in SCORE.finditer(text):
        n_asked = 1 if found[2] == "1" else 1 + len(found[3] + found[4])  # the decimals of a 1 are zeros
        asked = [Slot(found[1], "", DIGITS if digit else DIGITS[:2], digit) for digit in range(n_asked)]
        told = [letters.get(found.start(slot.digit + 2), {}) for slot in asked]
        among = [[chance.get(digit, 0.0) for digit in slot.choices] for slot, chance in zip(asked, told)]
        if all(map(sum, among)):
            slots += asked
            chances += [[p / sum(own) for p in own] for own in among]
    return probabilities_of(slots, chances)


def json_schema(schema: Schema) -> dict:
    """The verdict as a JSON schema, read off an example, so that there is one description of it and not two."""

    def describe(value: dict | float | str) -> dict:
        if isinstance(value, dict):
            properties = {key: describe(part) for key, part in value.items()}
            return {"type": "object", "properties": properties, "required": list(value), "additionalProperties": False}
        if isinstance(value, float):
            return {"type": "number", "minimum": 0, "maximum": 1}
        return {"type": "string"} | ({"enum": list(JUDGMENTS)} if value in JUDGMENTS else {})

    return describe(json.loads("".join(fill(schema, [0.5] * len(SCORES), JUDGMENTS[0], ""))))
