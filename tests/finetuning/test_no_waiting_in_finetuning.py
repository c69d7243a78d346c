"""A step of fine-tuning, of every kind of task, reads no value of an accelerator."""

import json

import pytest
from transformers import TrainerCallback

from mybert.finetuning import FinetuningArguments
from mybert.finetuning.training.preparation import read_run, starting_model
from mybert.finetuning.training.trainer import TaskTrainer

WORDS = "the cat sat on the mat and the dog ran".split()
SENTENCES = [" ".join(WORDS[: 2 + number]) for number in range(8)]
DATA = {
    "classification": [{"text": text, "label": number % 2} for number, text in enumerate(SENTENCES)],
    "tagging": [{"tokens": text.split(), "tags": ["DET", *["X"] * (len(text.split()) - 1)]} for text in SENTENCES],
    "multiple_choice": [{"text": "the cat", "choices": [text, "fish"], "label": 1} for text in SENTENCES],
    "question_answering": [{"question": "what ?", "context": text, "answers": "cat"} for text in SENTENCES],
}


class EnoughError(Exception):
    """Ends training after the steps; later code may read values."""


class AfterTwoSteps(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 2:
            raise EnoughError


@pytest.mark.usefixtures("like_a_gpu")
@pytest.mark.parametrize(
    ("task", "settings"),
    [
        *((task, {}) for task in DATA),
        ("classification", {"window_pooling": "mean", "max_length": 9}),
        ("classification", {"class_weights": "balanced"}),
    ],
)
def test_steps_read_nothing(tmp_path, pretrained, no_value_read, task, settings):
    trainer = trainer_of(tmp_path, pretrained, task, **settings)
    with pytest.raises(EnoughError), no_value_read():
        trainer.train()
    assert next(trainer.model.parameters()).is_meta


@pytest.mark.usefixtures("like_a_gpu")
def test_the_proof_can_fail(tmp_path, pretrained, no_value_read):
    trainer = trainer_of(tmp_path, pretrained, "classification")
    trainer.data_collator = trainer.data_collator.args[0]
    with pytest.raises(AssertionError, match="reads values"), no_value_read():
        trainer.train()


def test_batches_whose_rows_begin_with_padding_are_looked_at(tmp_path, pretrained):
    trainer = trainer_of(tmp_path, pretrained, "classification", use_cpu=True)
    rows = [trainer.train_dataset[row] for row in range(3)]
    batch = trainer.data_collator(rows)
    assert batch["token_indices"].tolist() == batch["attention_mask"].flatten().nonzero()[:, 0].tolist()
    trainer.run.tokenizer.padding_side = "left"
    assert "token_indices" not in trainer.data_collator(rows)


def trainer_of(tmp_path, pretrained, task, **settings) -> TaskTrainer:
    (tmp_path / "data.json").write_text(json.dumps(DATA[task]))
    arguments = FinetuningArguments(
        task=task,
        model=str(pretrained),
        train_file=str(tmp_path / "data.json"),
        output_dir=str(tmp_path / "out"),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        max_steps=100,
        logging_steps=100,
        save_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        **{"max_length": 32, **settings},
    )
    run = read_run(arguments, arguments.resolve_task())
    network, _ = starting_model(run, arguments, seed=0)
    return TaskTrainer(run, arguments, model=network, callbacks=[AfterTwoSteps()])
