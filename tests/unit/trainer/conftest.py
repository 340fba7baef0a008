"""Small real policies with random weights: a Llama with a plain template, a Qwen2 whose template has tool calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from millstream.events import (
    EventId,
    Interface,
    MessageReceived,
    ModelResponded,
    Task,
    TaskId,
    ToolCall,
    ToolReturned,
    TrajectoryEnded,
    TrajectoryId,
    TrajectoryStarted,
)
from millstream.policy import TrainingRequested
from millstream.rollout import Rollout, RolloutFacts, RolloutId
from millstream.settings import TrainerSettings
from millstream.trainer.folders import content_hash, template_hash, tokenizer_hash
from millstream.trainer.manifest import Origin, make_manifest, write_manifest, write_payload
from millstream.trainer.orders import WorkOrder, training_settings
from millstream.trajectory import Trajectory

WORDS = (
    "You are a careful analyst. What was the revenue of Acme in 2019? search load calculator answer "
    '<tool_call> {"name": "search", "arguments": {"query": "acme 2019"}} </tool_call> revenue 12.5 error: none '
    "# Tools tool_response assistant user system 0 1 2 3 4 5 6 7 8 9 the sum of both is I think so"
)
PLAIN_TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] }}"
    "{% if m['role'] == 'assistant' %}{{ '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
QWEN_TEMPLATE = """{%- if tools %}{{- '<|im_start|>system\n# Tools\n' }}{%- for tool in tools %}{{- tool | tojson }}{{- '\n' }}{%- endfor %}{{- '<|im_end|>\n' }}{%- endif %}
{%- for m in messages %}
{%- if m.role == 'tool' %}{{- '<|im_start|>user\n<tool_response>\n' + m.content + '\n</tool_response><|im_end|>\n' }}
{%- else %}{{- '<|im_start|>' + m.role + '\n' + m.content }}
{%- for call in m.tool_calls or [] %}{{- '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + '}\n</tool_call>' }}{%- endfor %}
{{- '<|im_end|>\n' }}{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""  # noqa: E501


def make_tokenizer(folder: Path, template: str, special: Sequence[str], *, pad: str | None, end: str) -> Any:
    """A byte-level BPE learned on a few words."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([WORDS] * 3, trainer)
    extra = {} if pad is None else {"pad_token": pad}
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end, **extra)
    wrapped.chat_template = template
    wrapped.save_pretrained(folder)
    return wrapped


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of random weights, kept as float16, with a plain template."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("llama")
    special = ("<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|system|>")
    tokenizer = make_tokenizer(folder, PLAIN_TEMPLATE, special, pad="<|pad|>", end="<|end|>")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=48,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        initializer_range=0.1,
    )
    LlamaForCausalLM(config).to(torch.float16).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen2 of random weights: byte-level BPE, tool calls in the template, context 4,096, no pad token."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    folder = tmp_path_factory.mktemp("qwen2")
    tokenizer = make_tokenizer(folder, QWEN_TEMPLATE, ("<|im_start|>", "<|im_end|>"), pad=None, end="<|im_end|>")
    torch.manual_seed(1)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=48,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        initializer_range=0.1,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def example(root: Path) -> Path:
    """The base policy of the example, as it ships."""
    return root / "examples" / "finqa" / "base"


@pytest.fixture(scope="session", params=["llama", "qwen", "example"])
def base(request: pytest.FixtureRequest) -> Path:
    """Each of the random-weight policies, and the one that ships."""
    folder: Path = request.getfixturevalue(request.param)
    return folder


@pytest.fixture(scope="session")
def load_tokenizer() -> Callable[[Path], Any]:
    """The tokenizer of a folder."""
    from transformers import AutoTokenizer

    return lambda folder: AutoTokenizer.from_pretrained(folder, local_files_only=True)


KNOWN = Interface(tools="a", system="b", template="c", tokenizer="d")
SEARCH = {
    "type": "function",
    "function": {"name": "search", "description": "", "parameters": {"type": "object", "properties": {}}},
}


class Story:
    """A trajectory told event by event."""

    def __init__(self, name: str = "t1", **started: Any) -> None:
        self.name = name
        self.events: list[Any] = []
        self.add(TrajectoryStarted, task=Task(id=TaskId("task-1")), **started)

    def add(self, kind: type[Any], **fields: Any) -> Story:
        place = len(self.events)
        self.events.append(kind(id=EventId(f"{self.name}-{place}"), trajectory_id=TrajectoryId(self.name), **fields))
        return self

    def user(self, content: str, **fields: Any) -> Story:
        return self.add(MessageReceived, content=content, **fields)

    def says(self, text: str = "", *, calls: Sequence[tuple[str, dict[str, Any]]] = (), **fields: Any) -> Story:
        made = tuple(ToolCall(id=call, name="search", arguments=arguments) for call, arguments in calls)
        return self.add(ModelResponded, text=text, tool_calls=made, **fields)

    def samples(self, prompt: Sequence[int], ids: Sequence[int], **fields: Any) -> Story:
        """A response with token ids and processed log-probs at .7 (of −.1, −.2, … each)."""
        told = {
            "prompt_token_ids": tuple(prompt),
            "token_ids": tuple(ids),
            "logprobs": tuple(-0.1 * (place + 1) for place in range(len(ids))),
            "logprob_kind": "processed",
            "temperature": 0.7,
        }
        return self.add(ModelResponded, **(told | fields))

    def tool(self, call: str, output: str, **fields: Any) -> Story:
        return self.add(ToolReturned, call_id=call, output=output, **fields)

    def end(self) -> Story:
        return self.add(TrajectoryEnded)

    def rollout(self, reward: float = 1.0, **facts: Any) -> Rollout:
        """The story as a rollout of group g1 by version 1."""
        told: dict[str, Any] = {"group": "g1", "task_id": TaskId("task-1"), "policy_version": 1, "interface": KNOWN}
        return Rollout(
            id=RolloutId(f"r-{self.name}"),
            trajectory=Trajectory(id=TrajectoryId(self.name), events=tuple(self.events)),
            reward=reward,
            facts=RolloutFacts(**(told | facts)),
        )


@pytest.fixture
def story() -> type[Story]:
    """Tell a trajectory."""
    return Story


class Bench:
    """A folder in which trainings are prepared and done, without a log around them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def prepare(self, name: str, base: Path, rollouts: Sequence[Rollout], **settings: Any) -> WorkOrder:
        """Write manifest and payload; the order to train them."""
        folder = self.root / name
        told = TrainerSettings(**({"epochs": 2, "tokens_per_batch": 40, "learning_rate": 1e-2} | settings))
        request = TrainingRequested(
            id="training-1",
            lineage="policy",
            parent=1,
            rollout_ids=tuple(rollout.id for rollout in rollouts),
            algorithm=told.algorithm,
            seed=told.seed,
            namespace="default",
            reason="test",
        )
        origin = Origin(
            base=content_hash(base),
            champion=content_hash(base),
            tokenizer=tokenizer_hash(base),
            template=template_hash(base),
            code={},
            settings=training_settings(told, {}),
        )
        payload = write_payload(folder, rollouts)
        write_manifest(folder, make_manifest(request, rollouts, {}, origin, payload))
        return WorkOrder(folder=str(folder), start=str(base), champion=str(base))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Where trainings are done."""
    return Bench(tmp_path)


@pytest.fixture
def practice(story: type[Story]) -> list[Rollout]:
    """Four groups of four, half of each right, with token ids of both vocabularies."""
    made = []
    for place in range(16):
        told = story(f"p{place:02d}").samples([10, 11, 12 + place], [20 + place, 30, 1])
        told = told.samples([10, 11, 12 + place, 20 + place, 30, 1, 40, 41], [50 + place % 3, 1])
        group = f"g{place // 4}"
        made.append(told.rollout(float(place % 2), group=group, task_id=TaskId(group)))
    return made
