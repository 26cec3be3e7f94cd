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
import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import openai
from openai.types.chat import ChatCompletion

from covrag_lite.config import Model
from covrag_lite.engine.interface import Completion, Schema, report_fallback
from covrag_lite.engine.journal import key_of
from covrag_lite.engine.served_tokens import Tokens, mean_likelihood, verdict_probabilities
from covrag_lite.engine.verdict_forms import json_schema, regex_of

PREFIX = "endpoint:"
REQUESTS = 12  # at the same time
# The client waits 0.5 s, doubles this up to 8 s, or follows Retry-After: half a minute in total.
RETRIES = 6
# Seconds until a reply begins; after a timeout the server would write it again. A server without
# a GPU answers one request after another: 12 answers of a 1.5B model take 10 minutes on one core.
TIMEOUT = 900.0
# A verdict without its revised question takes about 100 tokens; some servers indent their JSON.
VERDICT_TOKENS = 200
TOP = 20  # tokens per position whose probabilities are requested: the most that servers report
NOT_FORCED = ("verdicts are not forced", "those that do not parse are counted")
# Fields that a server may refuse -> what happens then, and its effect. A verdict's form is in
# `response_format`, or for an adapter in `extra_body`.
REFUSABLE = {
    "logprobs": ("probabilities are not reported", "likelihoods and expected scores are not known"),
    "response_format": NOT_FORCED,
    "extra_body": NOT_FORCED,
}
# The fields that are left out, attempt by attempt.
DROPPED = (
    (),
    ("logprobs",),
    ("response_format",),
    ("extra_body",),
    ("logprobs", "response_format"),
    ("logprobs", "extra_body"),
)


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
        self.refused: set[str] = set()  # the fields that the server has refused

    @property
    def fingerprint(self) -> str:
        return f"{self.weights_hash}+{self.adapter}" if self.adapter else self.weights_hash

    def with_adapter(self, name: str) -> "Endpoint":
        """Return a view that uses the server's adapter of that name, if adapters are served."""
        view = copy.copy(self)
        is_served = name and self.settings.adapters == "served"
        view.adapter = Path(name) if is_served else None
        return view

    def batches(self, prompts: Sequence[str], room: int) -> list[list[str]]:
        """Put each prompt into a batch of its own: each answer is journaled at once."""
        return [[prompt] for prompt in prompts]

    def complete(
        self, prompts: Sequence[str], max_tokens: int, sample: int | None = None
    ) -> list[Completion]:
        """Complete each prompt as one user turn; a server without seeds draws other samples."""
        if sample is None:
            options = {"logprobs": True}
        else:
            options = {"temperature": 1, "seed": sample}
        completions = []
        for prompt in prompts:
            text, tokens = self._ask(prompt, max_tokens=max_tokens, **options)
            completions.append(Completion(text, mean_likelihood(tokens)))
        return completions

    def fill(
        self, prompts: Sequence[str], schema: Schema | None, max_tokens: int
    ) -> list[Completion]:
        """Write verdicts as JSON in the schema if the server can force it, or else freely.

        Our adapters learnt verdicts with fixed blanks, and a JSON schema says nothing about blanks.
        With other blanks, served adapters were seen to judge differently. So an adapter gets a
        regular expression, in the field that vLLM has for it; a server that ignores this field lets
        the adapter write freely.
        """
        options: dict[str, object] = {"max_tokens": VERDICT_TOKENS + max_tokens}
        if schema is not None:
            if self.adapter:
                expression = regex_of(schema, max_tokens)
                options["extra_body"] = {"structured_outputs": {"regex": expression}}
            else:
                form = {"name": "verdict", "strict": True, "schema": json_schema(schema)}
                options["response_format"] = {"type": "json_schema", "json_schema": form}
            options["logprobs"] = True
            options["top_logprobs"] = TOP
        completions = []
        for prompt in prompts:
            text, tokens = self._ask(prompt, **options)
            completions.append(Completion(text, verdict_probabilities(tokens) or None))
        return completions

    def count_tokens(
        self, prompts: Sequence[str], texts: Sequence[str]
    ) -> list[tuple[float, float]]:
        """Return NaN for each text: only the server counts tokens."""
        return [(math.nan, math.nan)] * len(texts)

    def _ask(self, prompt: str, **options) -> tuple[str, Tokens]:
        """Return the text for one prompt, and its tokens if the server reports probabilities.

        If the model refuses, the text is its refusal.
        """
        try:
            choice = self._request(prompt, options).choices[0]
            text = (choice.message.content or choice.message.refusal or "").strip()
            return text, getattr(choice.logprobs, "content", None) or []
        except openai.APIError as error:
            reason = self._explain(error)
        # The client does not check replies.
        except (json.JSONDecodeError, AttributeError, IndexError, TypeError):
            reason = "its reply is not a chat completion in JSON; check OPENAI_BASE_URL"
        # Raised outside `except`, because the client's own error contains the request and the key.
        raise EndpointError(
            f"{self.name!r} at {self.server}: {reason}; finished texts are kept, "
            "and the same command continues at the same address"
        )

    def _request(self, prompt: str, options: Mapping[str, object]) -> ChatCompletion:
        """Send one request and return the reply; the client repeats it while that may help.

        If a field may have caused a refusal, the request is repeated without it, and then without
        all such fields.
        """
        # `max_tokens`, not its successor: vLLM, llama.cpp and `transformers serve` all accept it.
        request = {
            "model": str(self.adapter or self.name),
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
        }
        request |= without(options, self.refused)
        attempts = [fields for fields in DROPPED if request.keys() >= set(fields)]
        for dropped in attempts:
            try:
                reply = self.client.chat.completions.create(**without(request, dropped))
                break
            except (openai.BadRequestError, openai.UnprocessableEntityError):  # 400 and 422
                if dropped == attempts[-1]:
                    raise
        self._check_adapter(reply)
        self._count(reply, dropped)
        return reply

    def _check_adapter(self, reply: ChatCompletion) -> None:
        """Raise an error if another model than the adapter replied.

        A server that does not know adapters by name, such as llama.cpp's, ignores the name and
        replies with its base model.
        """
        if self.adapter and reply.model != str(self.adapter):
            raise EndpointError(
                f"{self.name!r} at {self.server}: the adapter {str(self.adapter)!r} was requested, "
                f"but {reply.model!r} replied; serve each adapter as a model of that name "
                "(vLLM: --enable-lora --lora-modules rag=<folder> cov=<folder>), "
                "or set adapters to 'none'"
            )

    def _count(self, reply: ChatCompletion, dropped: Collection[str]) -> None:
        """Count a reply and its tokens, and the fields that were left out to get it."""
        usage = getattr(reply, "usage", None)
        with self.counting:
            for field in dropped:  # only now is it clear that the rest of the request was accepted
                self.refused.add(field)
                way, effect = REFUSABLE[field]
                report_fallback(self.used, way, f"the server refuses {field}", effect)
            self.used["requests"] += 1
            for name in ("prompt_tokens", "completion_tokens"):
                self.used[name] += getattr(usage, name, None) or 0

    def _explain(self, error: openai.APIError) -> str:
        """Explain an error without the key, which a server may quote in whole or in part."""
        if isinstance(error, (openai.AuthenticationError, openai.PermissionDeniedError)):
            return (
                f"it refused the key in OPENAI_API_KEY (status {error.status_code}); "
                "set the key of this server"
            )
        if isinstance(error, openai.APIStatusError):
            body = " ".join(error.response.text.split())
            excerpt = body.replace(self.client.api_key, "…")[:200]
            return f"status {error.status_code}" + (f", {excerpt}" if excerpt else "")
        if isinstance(error, openai.APITimeoutError):
            return f"no answer within {self.client.timeout} s"
        address = "set OPENAI_BASE_URL to its address, http://… or https://…"
        return f"the connection failed; start the server if it has stopped, and {address}"


def without(options: Mapping[str, object], names: Collection[str]) -> dict[str, object]:
    """Return the options without these and without those that belong to them."""
    return {key: value for key, value in options.items() if key.removeprefix("top_") not in names}
