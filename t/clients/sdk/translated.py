"""Chat with a group that speaks messages: models with every kind of option of
the model line, and as their upstream a messages API that refuses what the real
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


class ScriptedChat(Translated):
    """says() scripts the model's answers: the first one, the one after a round
    of tool calls, and so on; see messages_api.MessagesApi.

    close() checks that the upstream has refused nothing."""

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
def make_chat(translating, tag):
    """make_chat("sync") or make_chat("async") makes a client."""
    made = []

    def make(form):
        made.append(ScriptedChat(translating, form, tag))
        return made[-1]

    yield make
    for chat in made:
        chat.close()


@pytest.fixture(params=["sync", "async"])
def chat(request, make_chat):
    return make_chat(request.param)


@pytest.fixture
def sync(make_chat):
    """For tests that need one of the two forms only."""
    return make_chat("sync")
