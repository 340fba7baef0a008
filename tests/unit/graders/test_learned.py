"""A learned reward model as a grader: tiny models, made here, in a real child process."""

import msgspec
import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModel, AutoTokenizer, LlamaConfig, LlamaForSequenceClassification

from millstream.adapters.children import Child
from millstream.errors import GraderError, SettingsError
from millstream.grade import Abstained, Scored
from millstream.graders.judges.natives import load_judges, read_judges
from millstream.graders.learned import Load, Score
from millstream.graders.learned_child import handle

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.xdist_group("learned")]


@pytest.fixture(scope="module")
def folder(root, tmp_path_factory):
    """A folder with a classifier, one with a language model and a head, and a file of judges."""
    place = tmp_path_factory.mktemp("models")
    tokenizer = AutoTokenizer.from_pretrained(root / "examples/finqa/base")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_labels=1,
        pad_token_id=0,
    )
    LlamaForSequenceClassification(config).save_pretrained(place / "classifier")
    base = AutoModel.from_config(config)
    base.save_pretrained(place / "headed")
    save_file({"weight": torch.full((1, 16), 0.5), "bias": torch.tensor([0.25])}, place / "headed" / "head.safetensors")
    base.save_pretrained(place / "bare")
    for name in ("classifier", "headed", "bare"):
        tokenizer.save_pretrained(place / name)
    return place


@pytest.fixture
def graded(folder, make, spawned):
    """Grade with a table of judges."""

    def grader_of(table):
        (folder / "judges.toml").write_text(f"[liked]\nkind = 'learned'\n{table}")

        def spawn(module):
            spawned.append(Child(module, env={"OMP_NUM_THREADS": "1"}))
            return spawned[-1]

        (grader,) = load_judges(folder / "judges.toml", None, spawn)
        return grader

    return grader_of


def test_a_classifier_scores_in_a_child_that_can_be_replaced(graded, make, spawned):
    """The logit, the same each time, also after the child was lost; a run without an answer is abstained from."""
    raw = graded("folder = 'classifier'\nsquash = 'none'\nrange = [-50, 50]")
    runs = [make(question="how much?", answer=text) for text in ("a lot", "none")]
    first = [raw(t) for t in runs]
    assert [type(grade) for grade in first] == [Scored, Scored]
    assert first[0].score != first[1].score
    assert isinstance(raw(make(answer=None)), Abstained)
    spawned[-1].close()
    assert raw(runs[0]) == first[0]
    raw.function.close()


def test_a_model_with_a_head_scores_and_a_bare_one_is_a_fault(folder):
    """The head's weight and bias on the last token; what has no head says what is missing (here in this process)."""

    def asked(name):
        load = Load(folder=str(folder / name))
        return msgspec.json.encode(Score(load=load, question="how much?", answer="a lot"))

    logit = msgspec.json.decode(handle("score", asked("headed")))
    assert abs(logit) < 50
    with pytest.raises(GraderError, match="has no head"):
        handle("score", asked("bare"))


def test_the_epoch_has_the_weights(folder, graded):
    """Another bias, another epoch; the same file, the same."""
    first = graded("folder = 'headed'").epoch
    assert graded("folder = 'headed'").epoch == first
    save_file({"weight": torch.full((1, 16), 0.5), "bias": torch.tensor([9.0])}, folder / "headed" / "head.safetensors")
    assert graded("folder = 'headed'").epoch != first


@pytest.mark.parametrize(
    ("table", "told"),
    [("", "folder is empty"), ("folder = 'nowhere'", "no config.json"), ("folder = 'x'\nsquash = 'tanh'", "squash")],
)
def test_a_wrong_table_says_where(graded, table, told):
    """No folder, no model in it, a word that is none."""
    with pytest.raises(SettingsError, match=told):
        graded(table)


def test_a_table_can_be_read_without_the_model(folder):
    """`doctor` reads files and loads nothing."""
    (folder / "judges.toml").write_text("[liked]\nkind = 'learned'\nfolder = 'nowhere'")
    assert set(read_judges(folder / "judges.toml")) == {"liked"}
