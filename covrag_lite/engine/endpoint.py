"""The engine for any OpenAI-compatible server: model="endpoint:<name>".

Server and key come only from the environment (OPENAI_BASE_URL, OPENAI_API_KEY). The key stays
inside the client: it never appears in a journal, a manifest or an error. With adapters = "served"
the server offers our adapters as models under their own names, as vLLM does with
`--enable-lora --lora-modules rag=<folder> cov=<folder>`.
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
REQUESTS = 12  # at the same time
# The client waits 0.5 s, doubles this up to 8 s, or follows Retry-After: half a minute in total.
RETRIES = 6
# Seconds until a reply begins. Two simultaneous verdicts took 76 s on two cores; after a timeout
# the server would write them again.
TIMEOUT = 180.0
# A verdict without its revised question takes about 100 tokens; some servers indent their JSON.
VERDICT_TOKENS = 200
TOP = 20  # tokens per position whose probabilities are requested: the most that servers report
# Fields that a server may refuse -> what happens then, and its effect.
REFUSABLE = {
    "logprobs": ("probabilities are not reported", "likelihoods and expected scores are not known"),
    "response_format": ("verdicts are not forced", "those that do not parse are counted"),
}
# The fields that are left out, attempt by attempt.
DROPPED = ((), ("logprobs",), ("response_format",), tuple(REFUSABLE))
SCORE = re.compile(r'"(\w+)":\s*([01])\.(\d)(\d?)')


class EndpointError(RuntimeError):
    """The server did not answer after all retries; its earlier answers are in the journal."""


def load(settings: Model, execution: str) -> "Endpoint":
    """Build the engine of a served model; the server itself decides on the execution."""
    return Endpoint(settings)


class Endpoint:
    """A language model on a server."""

    device = "endpoint"
    at_once = REQUESTS
    adapter: Path | None = None
    weights = None

    def __init__(self, settings: Model, retries: int = RETRIES, timeout: float = TIMEOUT):
        self.settings = settings
        self.name = settings.model.removeprefix(PREFIX)
        if not (self.name and os.environ.get("OPENAI_API_KEY")):
            raise ValueError(
                f"model {settings.model!r} needs a name after its colon, a key in OPENAI_API_KEY "
                "(any word if the server asks for none) and the server's address in OPENAI_BASE_URL"
            )
        self.client = openai.OpenAI(max_retries=retries, timeout=timeout)  # reads the environment
        url = self.client.base_url
        # Without user, password and query, because these may contain a key.
        self.server = f"{url.netloc.decode()}{url.path}".rstrip("/")
        # It replaces the hash of weights that are not on this machine.
        self.weights_hash = key_of(server=self.server, model=self.name)[:16]
        self.used = Counter()
        self.counting = threading.Lock()
        self.refused: set[str] = set()

    @property
    def fingerprint(self) -> str:
        return f"{self.weights_hash}+{self.adapter}" if self.adapter else self.weights_hash

    def with_adapter(self, name: str) -> "Endpoint":
        """Return a view that uses the server's adapter of that name, if adapters are served."""
        if not name or self.settings.adapters != "served":
            return self
        view = copy.copy(self)
        view.adapter = Path(name)
        return view

    def batches(self, prompts: Sequence[str], room: int) -> list[list[str]]:
        """Put each prompt into a batch of its own: each answer is journaled at once."""
        return [[prompt] for prompt in prompts]

    def complete(self, prompts: Sequence[str], max_tokens: int, sample: int | None = None) -> list[Completion]:
        """Complete each prompt as one user turn; a server without seeds draws other samples."""
        chance = {"logprobs": True} if sample is None else {"temperature": 1, "seed": sample}
        made = []
        for prompt in prompts:
            text, tokens = self._ask(prompt, max_tokens=max_tokens, **chance)
            # The mean does not include the token that ends the text.
            mean = sum(one.logprob for one in tokens) / len(tokens) if tokens else None
            made.append(Completion(text, {"likelihood": round(mean, 5)} if tokens else None))
        return made

    def fill(self, prompts: Sequence[str], schema: Schema | None, max_tokens: int) -> list[Completion]:
        """Write verdicts as JSON in the schema if the server can force it, or else freely."""
        options = {"max_tokens": VERDICT_TOKENS + max_tokens}
        if schema is not None:
            form = {"name": "verdict", "strict": True, "schema": json_schema(schema)}
            options["response_format"] = {"type": "json_schema", "json_schema": form}
            options |= {"logprobs": True, "top_logprobs": TOP}
        made = [self._ask(prompt, **options) for prompt in prompts]
        return [Completion(text, expected_scores(tokens) or None) for text, tokens in made]

    def count_tokens(self, prompts: Sequence[str], texts: Sequence[str]) -> list[tuple[float, float]]:
        """Return NaN for each text: only the server counts tokens."""
        return [(math.nan, math.nan)] * len(texts)

    def _ask(self, prompt: str, **options) -> tuple[str, list[ChatCompletionTokenLogprob]]:
        """Return the text for one prompt, and its tokens if the server reports probabilities.

        If the model refuses, the text is its refusal.
        """
        try:
            choice = self._request(prompt, options).choices[0]
            text = (choice.message.content or choice.message.refusal or "").strip()
            return text, getattr(choice.logprobs, "content", None) or []
        except openai.APIError as error:
            trouble = self._describe(error)
        # The client does not check replies.
        except (json.JSONDecodeError, AttributeError, IndexError, TypeError):
            trouble = "its reply is not a chat completion in JSON; check OPENAI_BASE_URL"
        # Raised outside `except`, because the client's own error contains the request and the key.
        raise EndpointError(f"{self.name!r} at {self.server}: {trouble}")

    def _request(self, prompt: str, options: dict) -> ChatCompletion:
        """Send one request and return the reply; the client repeats it while that may help.

        If a field may have caused a refusal, the request is repeated without it, and then without
        all such fields.
        """
        # `max_tokens`, not its successor: vLLM, llama.cpp and `transformers serve` all accept it.
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
            for name in dropped:  # only now is it clear that the rest of the request was accepted
                self.refused.add(name)
                way, effect = REFUSABLE[name]
                report_fallback(self.used, way, f"the server refuses {name}", effect)
            self.used["requests"] += 1
            for name in ("prompt_tokens", "completion_tokens"):
                self.used[name] += getattr(usage, name, None) or 0
        return reply

    def _describe(self, error: openai.APIError) -> str:
        """Describe an error without the key, which a server may quote in whole or in part."""
        if isinstance(error, (openai.AuthenticationError, openai.PermissionDeniedError)):
            refused = f"it refused the key in OPENAI_API_KEY (status {error.status_code})"
            return f"{refused}; set the key of this server"
        if isinstance(error, openai.APIStatusError):
            said = " ".join(error.response.text.split()).replace(self.client.api_key, "…")[:200]
            return f"status {error.status_code}" + (said and f", {said}")
        if isinstance(error, openai.APITimeoutError):
            return f"no answer within {self.client.timeout} s"
        return "the connection failed; set OPENAI_BASE_URL to its address, http://… or https://…"


def without(options: Mapping[str, object], names: Collection[str]) -> dict[str, object]:
    """Return the options without these and without those that belong to them."""
    return {key: value for key, value in options.items() if key.removeprefix("top_") not in names}


def expected_scores(tokens: Sequence[ChatCompletionTokenLogprob]) -> dict[str, float]:
    """Return the expectation of each score, if the model writes numbers digit by digit."""
    # By position in the text: the probabilities of single-character tokens.
    letters, text = {}, ""
    for one in tokens:
        if len(one.token) == 1:
            letters[len(text)] = {other.token: math.exp(other.logprob) for other in one.top_logprobs}
        text += one.token
    slots, chances = [], []
    for found in SCORE.finditer(text):
        # The decimals of a 1 are zeros.
        n_asked = 1 if found[2] == "1" else 1 + len(found[3] + found[4])
        asked = [Slot(found[1], "", DIGITS if digit else DIGITS[:2], digit) for digit in range(n_asked)]
        told = [letters.get(found.start(slot.digit + 2), {}) for slot in asked]
        among = [[chance.get(digit, 0.0) for digit in slot.choices] for slot, chance in zip(asked, told)]
        if all(map(sum, among)):
            slots += asked
            chances += [[p / sum(own) for p in own] for own in among]
    return probabilities_of(slots, chances)


def json_schema(schema: Schema) -> dict:
    """Return the JSON schema of a verdict, derived from an example so that they cannot differ."""

    def describe(value: dict | float | str) -> dict:
        if isinstance(value, dict):
            properties = {key: describe(part) for key, part in value.items()}
            return {"type": "object", "properties": properties, "required": list(value), "additionalProperties": False}
        if isinstance(value, float):
            return {"type": "number", "minimum": 0, "maximum": 1}
        return {"type": "string"} | ({"enum": list(JUDGMENTS)} if value in JUDGMENTS else {})

    return describe(json.loads("".join(fill(schema, [0.5] * len(SCORES), JUDGMENTS[0], ""))))
