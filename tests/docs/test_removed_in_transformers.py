"""The facts of `docs/removed_in_transformers_5.md`, with the transformers that is installed."""

import importlib
import inspect
import re
from pathlib import Path

import pytest
import torch
import transformers
from packaging.version import Version
from transformers import BertConfig, BertForMaskedLM, BertForPreTraining, BertModel, BertTokenizer, TrainingArguments

gone_since_5_20 = pytest.mark.skipif(
    Version(transformers.__version__) < Version("5.20"),
    reason=f"some of it left with transformers 5.20; {transformers.__version__} is installed",
)
GONE = """
AdamW DataCollatorForWholeWordMask DataProcessor FlaxBertModel GlueDataset InputExample LineByLineTextDataset
QuestionAnsweringPipeline SquadDataset SquadV1Processor TFBertModel TextDataset TextDatasetForNextSentencePrediction
glue_compute_metrics glue_processors load_tf_weights_in_bert squad_convert_examples_to_features
"""


PAGE = (Path(__file__).parents[2] / "docs" / "removed_in_transformers_5.md").read_text(encoding="utf-8")


@gone_since_5_20
@pytest.mark.parametrize("name", GONE.split())
def test_names_are_gone(name):
    assert not hasattr(transformers, name)


def said_by(statement: str) -> str:
    """The last line of a traceback, as its readers search for it."""
    with pytest.raises(Exception) as caught:
        exec(statement)
    return f"{type(caught.value).__name__}: {caught.value}"


@gone_since_5_20
@pytest.mark.parametrize("message", re.findall(r"`((?:ImportError: )?cannot import name '(?:\w+)'[^`]*)`", PAGE))
def test_the_page_has_what_imports_say(message):
    name = re.search(r"'(\w+)'", message)[1]
    assert message.removeprefix("ImportError: ") in said_by(f"from transformers import {name}")


@gone_since_5_20
@pytest.mark.parametrize("module", re.findall(r"`No module named '([\w.]+)'`", PAGE))
def test_the_page_has_what_missing_modules_say(module):
    assert said_by(f"import {module}") == f"ModuleNotFoundError: No module named '{module}'"


def test_the_page_has_what_wrong_arguments_say():
    messages = re.findall(r"`(TypeError: (\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)')`", PAGE)
    assert {class_name for _, class_name, _ in messages} == {"Trainer", "TrainingArguments"}
    for message, class_name, argument in messages:
        assert said_by(f"transformers.{class_name}(**{{'{argument}': None}})") == message


@gone_since_5_20
@pytest.mark.parametrize(
    "name",
    [
        *("data.metrics", "data.processors", "commands"),
        "models.bert.convert_bert_original_tf_checkpoint_to_pytorch",
    ],
)
def test_modules_are_gone(name):
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"transformers.{name}")


@pytest.mark.parametrize(
    "name",
    [
        *("warmup_ratio", "evaluation_strategy", "group_by_length", "overwrite_output_dir", "logging_dir"),
        *("save_safetensors", "no_cuda"),
    ],
)
def test_training_arguments_are_gone(name, tmp_path):
    with pytest.raises(TypeError, match=name):
        TrainingArguments(str(tmp_path), **{name: None})


def test_replacements_of_removed_arguments_exist(tmp_path):
    arguments = TrainingArguments(
        str(tmp_path), warmup_steps=0.1, train_sampling_strategy="group_by_length", use_cpu=True
    )
    assert arguments.get_warmup_steps(100) == 10
    assert arguments.optim == "adamw_torch_fused" and arguments.adam_epsilon == 1e-8 and not arguments.report_to
    assert "whole_word_mask" in inspect.signature(transformers.DataCollatorForLanguageModeling).parameters
    parameters = inspect.signature(transformers.Trainer).parameters
    assert "processing_class" in parameters and "tokenizer" not in parameters


@pytest.mark.slow
@gone_since_5_20
def test_pipelines_are_gone_without_mybert(run_python):
    """In a process of its own: with mybert imported they are there."""
    code = """
from transformers import pipeline
for task in ("question-answering", "next-sentence-prediction"):
    try:
        pipeline(task)
    except KeyError as error:
        print(error)
"""
    said = run_python("-c", code).stdout
    assert "The task question-answering has been removed from transformers" in said
    assert "Unknown task next-sentence-prediction, available tasks are" in said


@pytest.fixture
def bert():
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    return BertConfig(vocab_size=50, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **sizes)


def test_models(bert, tmp_path):
    model = BertModel(bert)
    assert not model(torch.tensor([[1, 2, 3]]), output_attentions=True).attentions
    assert not hasattr(model, "prune_heads")
    assert "head_mask" not in inspect.signature(model.forward).parameters
    BertModel(BertConfig(**bert.to_dict() | {"position_embedding_type": "relative_key"}))  # ignored
    ids = torch.tensor([[1, 2, 3]])
    assert BertForPreTraining(bert)(ids, labels=ids).loss is None
    (tmp_path / "config.json").write_text(bert.to_json_string())
    with pytest.raises(OSError, match=r"Error no file named model\.safetensors, or pytorch_model\.bin, found in"):
        BertModel.from_pretrained(tmp_path, from_tf=True)


def test_the_loss_ignores_the_number_of_items(bert):
    """Four micro-batches of which each gives its own mean: their sum is four times the mean of all."""
    model, ids = BertForMaskedLM(bert), torch.tensor([[1, 2, 3]])
    assert torch.equal(model(ids, labels=ids).loss, model(ids, labels=ids, num_items_in_batch=12).loss)


def test_tokenizers(tmp_path):
    assert transformers.BertTokenizer is transformers.BertTokenizerFast
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat"]))
    assert BertTokenizer(vocab_file=str(vocab)).tokenize("cat") == ["[UNK]"]
    tokenizer = BertTokenizer(str(vocab))
    assert tokenizer.tokenize("cat") == ["cat"]
    tokenizer.save_pretrained(tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"tokenizer.json", "tokenizer_config.json"}


@pytest.mark.parametrize("head", "MultipleChoice NextSentencePrediction QuestionAnswering TokenClassification".split())
def test_heads_are_still_there(head):
    assert hasattr(transformers, f"BertFor{head}")
