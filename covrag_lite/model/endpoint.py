"""A model behind any OpenAI-compatible server, with the two calls of `local.LanguageModel`: `generate` and `verify`.

`load_model` returns it for model="endpoint:<name>". Server and key come from the environment alone (OPENAI_BASE_URL,
OPENAI_API_KEY); the key stays inside the client and reaches no journal, no manifest and no error. ENDPOINT_PRICES, if set,
says what a million prompt and a million completion tokens cost, as in "0.15,0.60".
"""

import copy
import json
import os
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import openai

from covrag_lite import config as configs
from covrag_lite.journal import key_of
from covrag_lite.prompts import DIRECT, JUDGMENTS, SCHEMA, fill
from covrag_lite.records import SCORES

PREFIX = "endpoint:"
RETRIES = 6  # the client waits 0.5 s, twice as long each time up to 8 s, or what Retry-After says: half a minute in all
TIMEOUT = 180.0  # seconds without a byte: two verdicts at once took 76 on two CPU cores, and giving up early has them written twice
VERDICT_TOKENS = 200  # a verdict without its revised question takes about 100; some servers indent their JSON
MAY_MEAN_NO_SCHEMA = (
    openai.BadRequestError,
    openai.UnprocessableEntityError,
)  # 400 and 422: how servers refuse a field
REFUSED_KEY = (openai.AuthenticationError, openai.PermissionDeniedError)


class EndpointError(RuntimeError):
    """The server did not answer, after every retry; what it had answered before is not lost."""


class Endpoint:
    """A served model; `config.requests` is the number of requests under way at once."""

    device, adapter = "endpoint", None

    def __init__(self, config: configs.Model, retries: int = RETRIES, timeout: float = TIMEOUT):
        self.config, self.name, self.schema = config, config.model.removeprefix(PREFIX), SCHEMA
        if not self.name:
            raise ValueError(
                f"model {config.model!r} names no model; write '{PREFIX}' and the name the server knows it by"
            )
        if config.requests < 1:
            raise ValueError(f"requests is {config.requests}; at least one must be under way at once")
        if not os.environ.get("OPENAI_API_KEY"):
            raise ValueError(
                f"model {config.model!r} needs a key in the environment variable OPENAI_API_KEY (a server of your "
                f"own that asks for none takes any word), and the server's address in OPENAI_BASE_URL"
            )
        self.client = openai.OpenAI(max_retries=retries, timeout=timeout)
        url = self.client.base_url
        if url.scheme not in ("http", "https"):
            raise ValueError(
                "OPENAI_BASE_URL is not the address of a server; it starts with http:// or https:// and mostly ends with /v1"
            )
        self.server = f"{url.netloc.decode()}{url.path}".rstrip(
            "/"
        )  # without user, password and query: a key may stand there
        self.used = (
            Counter()
        )  # requests answered, prompt and completion tokens, and answers whose tokens were not reported
        self.counting = threading.Lock()
        self.refuses_schema = threading.Event()

    @property
    def base(self) -> "Endpoint":
        return self

    @property
    def weights_hash(self) -> str:
        """What a manifest can say of weights it cannot see."""
        return self.fingerprint

    def with_adapter(self, name: str) -> "Endpoint":
        """A server has no adapters of ours: the same model, with or without the chain in its verdicts."""
        view = copy.copy(self)  # the client, the counts and what is known of the server stay shared
        view.schema = DIRECT if name == "cov-direct" else SCHEMA
        return view

    @property
    def fingerprint(self) -> str:
        """A hash of the server's address and the model's name, which stand for weights that cannot be seen."""
        return key_of(server=self.server, model=self.name)[:16]

    def generate(self, prompts: Sequence[str], max_tokens: int) -> list[str]:
        """Each prompt completed as one user's turn, in the prompts' order."""
        return self._ask_all(prompts, max_tokens=max_tokens)

    def verify(self, prompts: Sequence[str]) -> list[str]:
        """Each verification prompt completed to what should be a verdict; `parse_verdict` says whether it is one."""
        limit = VERDICT_TOKENS + self.config.max_revised_tokens
        return self.generate(prompts, limit) if self.config.verdicts == "free" else self.write_verdicts(prompts, limit)

    def write_verdicts(self, prompts: Sequence[str], max_tokens: int) -> list[str]:
        """Verdicts in the schema's JSON where the server can force it, in the model's own words where it cannot."""
        wanted = {
            "type": "json_schema",
            "json_schema": {"name": "verdict", "strict": True, "schema": json_schema(self.schema)},
        }
        return self._ask_all(prompts, max_tokens=max_tokens, response_format=wanted)

    def cost(self, prompt_price: float, completion_price: float) -> float:
        """What this process has spent so far, from the server's prices of a million tokens."""
        return (self.used["prompt_tokens"] * prompt_price + self.used["completion_tokens"] * completion_price) / 1e6

    def bill(self) -> str:
        """A sentence on what this process has used so far, with its cost where ENDPOINT_PRICES gives prices."""
        used, prices = self.used, os.environ.get("ENDPOINT_PRICES")
        said = f"{self.name}: {used['requests']} requests, {used['prompt_tokens']:,} prompt and {used['completion_tokens']:,} completion tokens"
        if used["unreported"]:
            said += f" ({used['unreported']} answers came without a count)"
        try:
            return said + (f", at these prices {self.cost(*map(float, prices.split(','))):.4f}" if prices else "")
        except (ValueError, TypeError):
            raise ValueError(f"ENDPOINT_PRICES is {prices!r}, but must be two numbers, such as '0.15,0.60'") from None

    def _ask_all(self, prompts: Sequence[str], **options) -> list[str]:
        with ThreadPoolExecutor(self.config.requests) as pool:
            return list(pool.map(partial(self._ask, **options), prompts))

    def _ask(self, prompt: str, **options) -> str:
        """One prompt's text. The error is raised outside `except`: the client's own one holds the request, key and all."""
        if self.refuses_schema.is_set():
            options.pop("response_format", None)
        try:
            text = text_of(self._request(prompt, options))
            trouble = None if text is not None else "it answered with something that is no chat completion"
        except openai.APIError as error:
            trouble = self._describe(error)
        except json.JSONDecodeError:
            trouble = "it answered with something that is not JSON"
        if trouble:
            raise EndpointError(f"{self.name!r} at {self.server}: {trouble}")
        return text

    def _request(self, prompt: str, options: dict):
        """One request, repeated by the client while that may help, and once without the schema where it may be to blame."""
        # `max_tokens` rather than its successor: vLLM, llama.cpp and `transformers serve` all know it.
        create = partial(
            self.client.chat.completions.create,
            model=self.name,
            temperature=0,
            messages=[{"role": "user", "content": prompt}],
        )
        try:
            reply = create(**options)
        except MAY_MEAN_NO_SCHEMA:
            if "response_format" not in options:
                raise
            reply = create(max_tokens=options["max_tokens"])
            self.refuses_schema.set()  # only now: the request itself was good
        self._count(getattr(reply, "usage", None))
        return reply

    def _count(self, usage) -> None:
        tokens = (
            {"prompt_tokens": usage.prompt_tokens or 0, "completion_tokens": usage.completion_tokens or 0}
            if usage
            else {"unreported": 1}
        )
        with self.counting:
            self.used.update(requests=1, **tokens)

    def _describe(self, error: openai.APIError) -> str:
        """What happened, in words without the key: a server may quote it back, whole or in part."""
        if isinstance(error, REFUSED_KEY):
            return f"it refused the key in OPENAI_API_KEY (status {error.status_code})"
        times = int(error.request.headers.get("x-stainless-retry-count", 0)) + 1
        if isinstance(error, openai.APIStatusError):
            said = " ".join(error.response.text.split()).replace(self.client.api_key, "…")[:200]
            what = f"status {error.status_code}" + (f", {said}" if said else "")
        elif isinstance(error, openai.APITimeoutError):
            what = f"no answer within {self.client.timeout} s"
        else:
            what = "the connection failed or broke off"
        return f"{what} (asked {times} time{'s' if times > 1 else ''})"


def text_of(reply) -> str | None:
    """What the model wrote, a refusal included; None where the reply is no chat completion."""
    choices = getattr(reply, "choices", None)
    message = getattr(choices[0], "message", None) if choices else None
    text = None if message is None else message.content or message.refusal or ""
    return text.strip() if isinstance(text, str) else None


def json_schema(schema: Sequence[str | tuple[str, str]]) -> dict:
    """The verdict as a JSON schema, read off an example, so that there is one description of it and not two."""

    def describe(value) -> dict:
        match value:
            case dict():
                return {
                    "type": "object",
                    "properties": {key: describe(part) for key, part in value.items()},
                    "required": list(value),
                    "additionalProperties": False,
                }
            case float():
                return {"type": "number", "minimum": 0, "maximum": 1}
            case str() if value in JUDGMENTS:
                return {"type": "string", "enum": list(JUDGMENTS)}
            case _:
                return {"type": "string"}

    return describe(json.loads("".join(fill(schema, [0.5] * len(SCORES), JUDGMENTS[0], ""))))
