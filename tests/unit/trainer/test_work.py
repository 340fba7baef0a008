"""The training child: the same order gives the same weights; what cannot be trained says so; a kill costs an epoch."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file

from millstream.errors import MillstreamError
from millstream.trainer import work
from millstream.trainer.folders import content_hash, file_hash, tokenizer_hash
from millstream.trainer.orders import WorkOrder, WorkResult
from millstream.trainer.work import train


def weights(result: WorkResult) -> str:
    return file_hash(Path(result.model) / "model.safetensors")


@pytest.mark.parametrize("lora_rank", [0, 4])
@pytest.mark.parametrize(("algorithm", "options"), [("sft", {}), ("grpo", {"kl": 0.1, "sft": 0.1})])
def test_the_same_order_gives_the_same_weights(
    bench: Any, base: Path, practice: list[Any], algorithm: str, options: dict[str, Any], lora_rank: int
) -> None:
    """Twice the same manifest and seed, and once with the rollouts in another order: the same bytes, moved ones."""
    told = {"algorithm": algorithm, "options": options, "lora_rank": lora_rank}
    first = train(bench.prepare("first", base, practice, **told))
    again = train(bench.prepare("again", base, practice, **told))
    moved = train(bench.prepare("moved", base, practice[::-1], **told))
    assert first.failure == ""
    assert weights(first) == weights(again) == weights(moved)
    assert weights(first) != file_hash(base / "model.safetensors")
    assert (first.content_hash, first.steps) == (again.content_hash, again.steps)
    assert first.manifest == again.manifest != moved.manifest


def test_another_seed_gives_other_weights(bench: Any, llama: Path, practice: list[Any]) -> None:
    """The seed is part of what is pinned."""
    assert weights(train(bench.prepare("a", llama, practice, seed=1))) != weights(
        train(bench.prepare("b", llama, practice, seed=2))
    )


@pytest.mark.parametrize("lora_rank", [0, 4])
def test_the_result_is_a_plain_folder_in_the_dtype_of_its_base(
    bench: Any, base: Path, practice: list[Any], lora_rank: int
) -> None:
    """LoRA merged, the base's dtype and tensor names, its tokenizer byte for byte."""
    model = Path(train(bench.prepare("one", base, practice, lora_rank=lora_rank)).model)
    before, after = load_file(base / "model.safetensors"), load_file(model / "model.safetensors")
    assert {name: (t.dtype, t.shape) for name, t in before.items()} == {n: (t.dtype, t.shape) for n, t in after.items()}
    assert tokenizer_hash(model) == tokenizer_hash(base) != ""
    assert {p.name for p in base.iterdir() if p.is_file()} <= {p.name for p in model.iterdir()}


def test_imitation_raises_the_likelihood_of_what_it_imitates(bench: Any, base: Path, practice: list[Any]) -> None:
    """The loss of the last epoch is under that of the first, and the policy has left the champion."""
    result = train(bench.prepare("learn", base, practice, epochs=6))
    first, last = result.steps[0], result.steps[-1]
    assert first["loss"] is not None
    assert last["loss"] is not None
    assert last["loss"] < first["loss"]
    assert first["kl_champion"] == pytest.approx(0, abs=1e-6)
    assert (result.evaluation["kl_champion"] or 0) > 0
    assert set(first) >= {"loss", "kl_champion", "entropy", "gradient_norm", "clip_share", "learning_rate", "tokens"}


def test_counts_are_denominators(bench: Any, llama: Path, practice: list[Any]) -> None:
    """What was kept and what was not adds up, and the consumed ids are those that were trained on."""
    result = train(bench.prepare("counts", llama, practice, keep_per_group=1))
    assert result.counts["rollouts"] == 16
    assert result.counts["below_reward"] == 8
    assert result.counts["kept"] == len(result.consumed) == 4
    assert result.counts["trained_tokens"] == 4 * 5


@pytest.mark.parametrize(
    ("settings", "reward", "why"),
    [
        ({}, 0.0, "below_reward 4"),
        ({"algorithm": "grpo"}, 1.0, "zero_variance_groups 1"),
        ({"max_length": 3}, 1.0, "dropped_too_long 4"),
        ({}, 1.0, "dropped_unknown_token 4"),
    ],
)
def test_nothing_to_train_on_is_a_failure_with_its_counts(
    bench: Any, llama: Path, story: Any, practice: list[Any], settings: dict[str, Any], reward: float, why: str
) -> None:
    """No reward above the bar, no group with a difference (R01), no sequence that fits (R06): said, not raised."""
    rollouts = [msgspec.structs.replace(rollout, reward=reward) for rollout in practice[:4]]
    if "unknown_token" in why:
        rollouts = [story(f"u{place}").samples([1], [100_000]).rollout() for place in range(4)]
    result = train(bench.prepare("nothing", llama, rollouts, **settings))
    assert result.model == ""
    assert result.failure.startswith("nothing to train on: ")
    assert why in result.failure


def test_a_training_that_leaves_the_numbers_registers_nothing(bench: Any, llama: Path, practice: list[Any]) -> None:
    """A learning rate that drives float16 weights out of range: a failure, no model folder (M05)."""
    result = train(bench.prepare("far", llama, practice, learning_rate=1e6, max_grad_norm=1e9, epochs=4))
    assert result.failure
    assert result.model == ""
    assert not (Path(bench.root) / "far" / "result").exists()
    assert b"NaN" not in msgspec.json.encode(result)


def test_a_gradient_that_is_not_finite_is_counted_and_not_followed(
    bench: Any, llama: Path, practice: list[Any], tmp_path: Path
) -> None:
    """Weights of infinity give no finite gradient: every step is skipped (R07) and the training failed (M05)."""
    broken = tmp_path / "broken"
    shutil.copytree(llama, broken)
    tensors = load_file(broken / "model.safetensors")
    from safetensors.torch import save_file

    tensors["model.norm.weight"] = torch.full_like(tensors["model.norm.weight"], float("inf"))
    save_file(tensors, broken / "model.safetensors", {"format": "pt"})
    result = train(bench.prepare("skipped", broken, practice))
    assert result.failure
    assert all(step["gradient_norm"] is None for step in result.steps)


class _Killed(BaseException):
    """Stands for kill -9: nothing catches it."""


@pytest.mark.parametrize("lora_rank", [0, 4])
def test_a_killed_training_goes_on_from_its_last_epoch(
    bench: Any, llama: Path, practice: list[Any], lora_rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after its second epoch of three, it trains the third only, to the same bytes."""
    whole = train(bench.prepare("whole", llama, practice, epochs=3, lora_rank=lora_rank))
    order = bench.prepare("killed", llama, practice, epochs=3, lora_rank=lora_rank)
    save = work.save_checkpoint

    def save_then_die(*args: Any) -> Path:
        path = save(*args)
        if path.name == "epoch-0002":
            raise _Killed
        return path

    with monkeypatch.context() as patch:
        patch.setattr(work, "save_checkpoint", save_then_die)
        with pytest.raises(_Killed):
            train(order)
    resumed = train(order)
    assert resumed.resumed_epoch == 2
    assert (weights(resumed), resumed.steps) == (weights(whole), whole.steps)
    assert not (Path(order.folder) / "checkpoints").exists()


def test_a_finished_order_is_not_done_again(bench: Any, llama: Path, practice: list[Any]) -> None:
    """The result that is there is returned as it is; one whose model was changed is made anew."""
    order = bench.prepare("done", llama, practice)
    first = train(order)
    assert train(order) == first
    (Path(first.model) / "config.json").write_text("{}")
    assert train(order).content_hash == first.content_hash


def test_a_changed_manifest_is_refused(bench: Any, llama: Path, practice: list[Any]) -> None:
    """A manifest whose id does not match its content is not trained on; neither is another archive."""
    order = bench.prepare("changed", llama, practice)
    path = Path(order.folder) / "manifest.json"
    text = path.read_text()
    path.write_text(text.replace('"seed": 0', '"seed": 7'))
    with pytest.raises(MillstreamError, match="was changed after it was written"):
        train(order)
    path.write_text(text)
    shutil.copy(Path(bench.prepare("other", llama, practice[1:]).folder) / "rollouts.ndjson.gz", path.parent)
    with pytest.raises(MillstreamError, match="not the archive of its manifest"):
        train(order)


def test_start_from_a_candidate_measures_kl_to_the_champion(bench: Any, llama: Path, practice: list[Any]) -> None:
    """A training that starts from a candidate is away from the champion at its first step."""
    candidate = train(bench.prepare("candidate", llama, practice)).model
    order = bench.prepare("second", llama, practice)
    result = train(WorkOrder(folder=order.folder, start=candidate, champion=order.champion))
    assert (result.steps[0]["kl_champion"] or 0) > 1e-3


def test_pad_and_end_may_be_the_same_token(bench: Any, qwen: Path, practice: list[Any]) -> None:
    """A tokenizer without a pad token pads with its end: the sampled end tokens are trained all the same (R11)."""
    result = train(bench.prepare("pad", qwen, practice))
    assert result.failure == ""
    assert result.counts["trained_tokens"] == sum(5 for _ in result.consumed)


def test_rendered_runs_are_imitated(bench: Any, qwen: Path, story: Any) -> None:
    """`tokens_source = "rendered"` trains runs that came as text."""
    rollouts = [
        story(name).user("question").says(f"answer {name}").rollout(1.0, group=name) for name in ("a", "b", "c")
    ]
    assert "dropped_no_logged_tokens 3" in train(bench.prepare("logged", qwen, rollouts)).failure
    result = train(bench.prepare("rendered", qwen, rollouts, tokens_source="rendered"))
    assert (result.failure, result.counts["kept"]) == ("", 3)


def test_the_child_answers_in_json(bench: Any, llama: Path, practice: list[Any]) -> None:
    """Orders and results travel as bytes; an unknown call is refused by name."""
    order = bench.prepare("bytes", llama, practice, epochs=1)
    result = msgspec.json.decode(work.handle("train", msgspec.json.encode(order)), type=WorkResult)
    assert content_hash(Path(result.model)) == result.content_hash
    assert work.handle("warm", str(llama).encode()) == torch.__version__.encode()
    with pytest.raises(MillstreamError, match="'dance'"):
        work.handle("dance", b"")
