"""Chat with a group that speaks messages: its models, of every kind that the
model line knows, and as their upstream a messages API that refuses as the real
one does."""

import pytest

import gateway
import messages_api
from messages_api import Model
from sdk.apis import Translated

LEVELS = ("low", "medium", "high")

# service id: the upstream's, what it can do

MODELS = {
    "fam-a-large": ("large-2026-01-01", Model()),
    "fam-a-one-of": ("one-of-1", Model(
        sampling="one_of", thinking="adaptive", effort=LEVELS + ("xhigh",))),
    "fam-a-newest": ("newest-1", Model(
        sampling="none", thinking="adaptive_only", effort=LEVELS + ("max",),
        prefill=False, forced_tool_choice=False)),
    "fam-a-small": ("plain-1", Model(
        thinking="none", structured="none", strict=False, max_output=8192)),
    "fam-a-full": ("full-1", Model()),
    "fam-a-silent": ("silent-1", Model()),
}

MORE = {"fam-a-full": "reasoning_output=full",
        "fam-a-silent": "reasoning_output=off"}

LINES = "\n".join("model %s %s free %s %s;" % (
    name, inner, model.options(), MORE.get(name, ""))
    for name, (inner, model) in MODELS.items())

GROUPS = gateway.group_a(models=LINES) + gateway.group_b()


def fake(secret, says=messages_api.always(messages_api.text("Hello")), **kw):
    return messages_api.MessagesApi(dict(MODELS.values()), says, secret, **kw)


class Told(Translated):
    """says() tells the model what to answer: first, when one round of tools is
    done, and so on; see messages_api.MessagesApi.

    close() is the end: whatever was asked, nothing was refused."""

    def __init__(self, *args):
        super().__init__(*args)
        self.fake = fake(self.gw.secret_a)
        self.up.reset()
        self.up.script(self.fake)
        self.faults = len(self.up.faults)

    def says(self, *answers):
        self.fake.says = messages_api.in_turn(*answers)

    def asked(self):
        """The last request that came to the upstream."""
        return self.up.last().json()

    def close(self):
        self.up.reset()
        assert self.fake.refused == []
        assert self.up.faults[self.faults:] == []


@pytest.fixture(scope="module")
def translating(module_gateway):
    return module_gateway(groups=GROUPS)


@pytest.fixture
def tell(translating, tag):
    """tell("sync") or tell("async") makes the client that is told."""
    made = []

    def make(form):
        made.append(Told(translating, form, tag))
        return made[-1]

    yield make
    for chat in made:
        chat.close()


@pytest.fixture(params=["sync", "async"])
def told(request, tell):
    return tell(request.param)


@pytest.fixture
def once(tell):
    """For what needs no client of either form."""
    return tell("sync")
