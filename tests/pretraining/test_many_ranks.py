"""What 256 ranks read of an epoch, from `PretrainingTrainer`'s own loaders as sharded by accelerate."""

import pytest
import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.data_loader import DataLoaderShard
from accelerate.state import AcceleratorState, GradientState
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.data import Subset
from transformers import Trainer, TrainingArguments

from mybert.modeling_mybert import IGNORE_INDEX
from mybert.pretraining import PretrainingDataset, PretrainingTrainer, TokenStore, build_token_store

RANKS = 256
BATCH = 2  # per rank and micro-batch


def what_they_are(rows):
    """Collate rows to their indices and contents, instead of a batch."""
    return {"rows": [(row["example"], row["input_ids"].tobytes()) for row in rows]}


def forget_processes():
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, documents, tokenizer):
    path = tmp_path_factory.mktemp("store") / "store.safetensors"
    build_token_store((document for _ in range(20) for document in documents), tokenizer, path, show_progress=False)
    return PretrainingDataset(TokenStore(path), cls_token_id=2, sep_token_id=3, max_length=16)


@pytest.fixture
def as_rank(tmp_path, monkeypatch, dataset, make_model):
    """Create the trainer of a rank, from (rank, ranks, ...), in a process group without communication."""
    model = make_model(vocab_size=40, hidden_size=8)

    def trainer(rank, ranks, accumulation=1, **settings):
        forget_processes()
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
            monkeypatch.delenv(name, raising=False)
        if ranks > 1:
            place = {"RANK": rank, "LOCAL_RANK": rank % 8, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": 8}
            for name, value in (place | {"MASTER_ADDR": "localhost"}).items():
                monkeypatch.setenv(name, str(value))
            dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
        arguments = TrainingArguments(
            output_dir=str(tmp_path),
            per_device_train_batch_size=BATCH,
            per_device_eval_batch_size=BATCH,
            gradient_accumulation_steps=accumulation,
            use_cpu=True,
            disable_tqdm=True,
            **settings,
        )
        made = PretrainingTrainer(model=model, args=arguments, train_dataset=dataset, data_collator=what_they_are)
        assert (made.args.world_size, made.args.process_index) == (ranks, rank)
        return made

    yield trainer
    forget_processes()


def global_order(batches_of_ranks):
    """The rows of all ranks in the order of the training steps."""
    assert len({len(batches) for batches in batches_of_ranks}) == 1
    return [row for batches in zip(*batches_of_ranks, strict=True) for batch in batches for row in batch["rows"]]


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "accumulation"), [(RANKS, 1), (8, 3)])
def test_all_ranks_together_read_what_one_reads(as_rank, ranks, accumulation):
    total = ranks * BATCH * accumulation
    alone = as_rank(0, 1, ranks * accumulation)
    assert alone.get_total_train_batch_size(alone.args) == total
    length = len(alone.train_dataset)
    assert length > 3 * total and length % total  # the end is uneven

    def epochs(trainer):
        loader = trainer.get_train_dataloader()
        assert isinstance(loader, DataLoaderShard)
        for epoch in (0, 1):
            loader.set_epoch(epoch)
            yield list(loader)

    expected = [global_order([batches]) for batches in epochs(alone)]
    assert expected[0] != expected[1]
    for rows in expected:
        assert len({example for example, _ in rows}) == len(rows) == length // total * total
    found = []
    for rank in range(ranks):
        found.append(list(epochs(as_rank(rank, ranks, accumulation))))
        assert {len(batch["rows"]) for batches in found[-1] for batch in batches} == {BATCH}
    for epoch, rows in enumerate(expected):
        assert global_order([batches[epoch] for batches in found]) == rows


@pytest.mark.slow
def test_a_resumed_run_reads_on_where_it_stopped(as_rank, tmp_path, monkeypatch):
    """`Trainer`'s own loop on some of the ranks, without computing anything."""
    accumulation, seen = 2, []

    def note(trainer, model, inputs, items=None):
        seen.append(inputs["rows"])
        return torch.zeros(())

    monkeypatch.setattr(Accelerator, "prepare_model", lambda self, model, **settings: model)  # DDP would wait for all
    monkeypatch.setattr(Trainer, "training_step", note)
    steps = len(as_rank(0, RANKS, accumulation).get_train_dataloader()) // accumulation
    stop = steps + 2  # in the second epoch
    assert 2 < stop - steps + 1 < steps
    for rank in (0, 131, 255):
        settings = {"max_steps": 2 * steps, "save_steps": stop, "logging_strategy": "no"}
        seen.clear()
        as_rank(rank, RANKS, accumulation, **settings).train()
        whole = seen.copy()
        assert len(whole) == 2 * steps * accumulation
        seen.clear()
        as_rank(rank, RANKS, accumulation, **settings).train(str(tmp_path / f"checkpoint-{stop}"))
        assert seen == whole[stop * accumulation :] != []


def test_an_evaluation_counts_each_example_once(as_rank, dataset, monkeypatch):
    """Evaluation loaders pad the last round with the first examples, whose labels do not count."""
    counted = []

    def count(trainer, model, inputs, *args):
        counted.extend(label for label in inputs["labels"].flatten().tolist() if label != IGNORE_INDEX)

    def numbers(rows):
        return {"labels": torch.tensor([[row["example"][1]] for row in rows])}

    monkeypatch.setattr(Trainer, "prediction_step", count)
    length = 3 * RANKS * BATCH + 41  # of the last round most ranks have none
    validation = Subset(dataset, range(length))
    for rank in range(RANKS):
        trainer = as_rank(rank, RANKS)
        trainer.data_collator = numbers
        for batch in trainer.get_eval_dataloader(validation):
            assert len(batch["labels"]) == BATCH
            trainer.prediction_step(trainer.model, batch, True)
    assert sorted(counted) == sorted(dataset[index]["example"][1] for index in range(length))


def test_an_epoch_that_is_shorter_than_a_step_is_filled_up(as_rank, dataset):
    """No example is dropped; a smaller batch avoids the repetition."""
    rows = Subset(dataset, range(300))
    found = []
    for rank in range(RANKS):
        trainer = as_rank(rank, RANKS)
        trainer.train_dataset = rows
        found.append(list(trainer.get_train_dataloader()))
    order = [dataset[index]["example"] for index in range(300)]
    assert [example for example, _ in global_order(found)] == [*order, *order[: RANKS * BATCH - 300]]
