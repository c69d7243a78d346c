"""`--torch_compile`: one graph for encoder and sparse head, whatever number of labels and sequences a batch has."""

import pytest
import torch
from torch._dynamo.utils import counters
from transformers import TrainingArguments

from mybert import MyBertModel
from mybert.modeling_mybert import attention_mybert
from mybert.pretraining import PretrainingCollator, PretrainingTrainer, pretrain

LENGTH = 24


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


class Watching(PretrainingCollator):
    """Records the lengths that change from batch to batch."""

    def __call__(self, examples):
        batch = super().__call__(examples)
        names = {"prediction_indices", "cu_seq_lens_q"} & batch.keys()
        self.seen = {*getattr(self, "seen", set()), tuple(len(batch[name]) for name in sorted(names))}
        return batch


@pytest.fixture
def train(make_dataset, make_model, tokenizer, tmp_path):
    """Train; return the log's last masked-LM and next-sentence loss, and the batches' different shapes."""

    def run(pack, steps, **settings):
        model = make_model(max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        collator = Watching(tokenizer, fixed_length=LENGTH if settings else None)
        fixed = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "learning_rate": 1e-3}
        settings |= {"save_strategy": "no", "disable_tqdm": True, "use_cpu": True, "logging_steps": steps}
        trainer = PretrainingTrainer(
            model=model,
            args=TrainingArguments(output_dir=str(tmp_path), max_steps=steps, **fixed, **settings),
            train_dataset=make_dataset(max_length=LENGTH, pack=pack, row_length=2 * LENGTH if pack else None),
            data_collator=collator,
        )
        trainer.train()
        logged = next(entry for entry in trainer.state.log_history if "mlm_loss" in entry)
        return [logged[name] for name in ("mlm_loss", "nsp_loss", "mlm_accuracy")], collator.seen

    return run


def graphs() -> tuple[int, int]:
    """Numbers of compiled graphs and of graph breaks."""
    return counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())


@pytest.mark.slow
@pytest.mark.parametrize("pack", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize(
    ("backend", "steps"),
    [("eager", 20), ("inductor", 200)],
)
def test_one_graph_for_all_batches(train, pack, backend, steps):
    settings = {"torch_compile": True, "torch_compile_backend": backend}
    compiled, seen = train(pack, steps, **settings)
    assert graphs() == (1, 0)
    assert len(seen) >= 3
    expected, _ = train(pack, steps)
    assert compiled == pytest.approx(expected, abs=5e-3)


def test_the_kernel_of_a_gpu_is_in_the_graph(train, monkeypatch):

    def varlen_attn(query, key, value, borders, key_borders, longest, longest_key, *, scale, window_size):
        return query * (longest + 0 * borders.sum())

    monkeypatch.setattr(MyBertModel, "_supports_varlen", lambda model, words: True)
    monkeypatch.setattr(attention_mybert, "varlen_attn", varlen_attn, raising=False)
    train(True, 5, torch_compile=True, torch_compile_backend="eager")
    assert graphs() == (1, 0)


def test_lengths_that_are_not_marked_are_compiled_anew(train, monkeypatch):
    """The count above can differ: the check is not vacuous."""
    monkeypatch.setattr(torch._dynamo, "maybe_mark_dynamic", lambda tensor, dimension: None)
    train(True, 4, torch_compile=True, torch_compile_backend="eager")
    assert graphs()[0] > 1


def test_the_head_stays_sparse(make_dataset, make_model, tokenizer):
    """In a compiled step the vocabulary product runs only on labeled positions."""
    dataset = make_dataset(max_length=LENGTH)
    batch = PretrainingCollator(tokenizer, fixed_length=LENGTH)([dataset[index] for index in range(4)])
    model = make_model()
    outputs = torch.compile(model.train(), backend="eager", fullgraph=True)(**batch)
    assert batch["input_ids"].shape == (4, LENGTH)
    assert outputs.prediction_logits.shape == (int((batch["labels"] != -100).sum()), len(tokenizer))


def test_a_fixed_length(make_dataset, tokenizer):
    dataset = make_dataset(max_length=LENGTH)
    examples = [dataset[index] for index in range(3)]
    batch = PretrainingCollator(tokenizer, fixed_length=40)(examples)
    plain = PretrainingCollator(tokenizer)(examples)
    length = plain["input_ids"].shape[1]
    assert batch["input_ids"].shape == (3, 40)
    assert torch.equal(batch["labels"][:, :length], plain["labels"])
    assert batch["attention_mask"].sum() == plain["attention_mask"].sum()
    with pytest.raises(ValueError, match=r"An example has \d+ tokens; expected at most 5"):
        PretrainingCollator(tokenizer, fixed_length=5)(examples)


@pytest.mark.parametrize("pack", [False, True], ids=["padded", "packed"])
def test_pretrain_compiled_has_one_graph(arguments, pack):
    compiled = {"torch_compile": True, "torch_compile_backend": "eager", "save_strategy": "no"}
    pretrain(
        arguments(**compiled, pack=pack, row_length=2 * LENGTH if pack else None, max_steps=6, validation_split=0.0)
    )
    assert graphs()[0] == 1
