"""What all tests share: no network, few threads, tiny text."""

import gc
import importlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny tensors: more threads only get in each other's way
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # pytest's workers share the cores
os.environ.setdefault("PYTHONFAULTHANDLER", "1")  # a process that crashes says where

import pytest
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.utils import logging as transformers_logging

import mybert
from mybert import MyBertForPreTraining, MyBertTokenizer
from mybert.files.errors import SettingError
from mybert.finetuning import TASKS
from mybert.finetuning.tasks.registry import task_record
from mybert.modeling_mybert import flat_indices

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

WORDS = "the cat dog sat ran on under a mat tree and slept ate fish bread it was happy sad very today".split()

HEADS = (
    "Model",
    "ForPreTraining",
    "ForMaskedLM",
    "ForNextSentencePrediction",
    "ForSequenceClassification",
    "ForMultipleChoice",
    "ForTokenClassification",
    "ForQuestionAnswering",
)
TINY = {
    "vocab_size": 61,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 24,
    "type_vocab_size": 3,
}
NUM_LABELS = 3
BATCH_SIZE, NUM_CHOICES, LENGTH = 4, 2, 11


FROZEN_MODULES = set[str]()


@pytest.fixture(autouse=True)
def what_is_loaded_is_no_garbage() -> None:
    """`Trainer` collects garbage several times a run: a third of a second each, with all libraries."""
    if len(sys.modules.keys() - FROZEN_MODULES) > 50:  # commands import what they need
        FROZEN_MODULES.update(sys.modules)
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def pictures_are_their_texts(request: pytest.FixtureRequest) -> Iterator[None]:
    """Rendering takes half of a short run: only tests of pictures let matplotlib do it."""
    with pytest.MonkeyPatch.context() as patches:
        if find_spec("matplotlib") and request.path.parent.name not in ("demo", "visualization"):
            from matplotlib.figure import Figure
            from matplotlib.text import Text

            def write(figure: Figure, file: Path, **options: Any) -> None:
                file.write_text("\n".join(text.get_text() for text in figure.findobj(Text)))

            patches.setattr(Figure, "savefig", write)
        yield


@pytest.fixture(autouse=True)
def logger_left_as_it_was() -> Iterator[None]:
    """Restore the package's logger, which commands reconfigure, for the next test."""
    logger = logging.getLogger("mybert")
    handlers, propagate, level = list(logger.handlers), logger.propagate, logger.level
    yield
    logger.handlers, logger.propagate = handlers, propagate
    logger.setLevel(level)


@pytest.fixture(autouse=True)
def libraries_left_as_they_were() -> Iterator[None]:
    """Fail a test that leaves process-wide settings changed, which would affect later tests."""
    verbosity = transformers_logging.get_verbosity()
    disabled = logging.root.manager.disable
    yield
    assert (transformers_logging.get_verbosity(), logging.root.manager.disable) == (verbosity, disabled)


class NoValueRead(TorchDispatchMode):
    """Raises if a value, or a shape that depends on values, is read, which would synchronize a GPU.

    For tensors on `meta`, where code takes the same paths as on a GPU; reads that bypass the dispatcher fail there
    anyway.
    """

    READS = (
        "_local_scalar_dense",
        "nonzero",
        "masked_select",
        "_unique2",
        "unique_dim",
        "unique_consecutive",
        "equal",
    )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, or raise an error."""
        name = func.overloadpacket.__name__
        indices = args[1] if name.startswith(("index", "_index_put", "_unsafe_index")) else ()
        by_mask = isinstance(indices, (list, tuple)) and any(
            index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices
        )
        on_device = any(isinstance(arg, torch.Tensor) and arg.device.type == "meta" for arg in args)
        leaves = name == "_to_copy" and (kwargs or {}).get("device", torch.device("meta")).type != "meta"
        if on_device and (name in self.READS or by_mask or leaves):
            raise AssertionError(f"{func} reads values")
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def precision_of_products() -> Iterator[None]:
    """Arguments with torch_compile turn TF32 on for the whole process, where there is a GPU."""
    before = getattr(torch.backends, "fp32_precision", None)  # PyTorch 2.9
    yield
    if getattr(torch.backends, "fp32_precision", None) != before:
        torch.backends.fp32_precision = before


@pytest.fixture(scope="session")
def no_value_read() -> type[NoValueRead]:
    """A context in which nothing on `meta` may be read."""
    return NoValueRead


@pytest.fixture(params=[True, False], ids=["kernel", "no kernel"])
def like_a_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `Trainer` run on `meta` like on a GPU, with or without the variable-length kernel."""
    from accelerate import Accelerator
    from transformers import TrainingArguments

    from mybert import MyBertModel
    from mybert.modeling_mybert import attention_mybert

    meta = torch.device("meta")
    monkeypatch.setattr(TrainingArguments, "device", property(lambda self: self._setup_devices and meta))
    monkeypatch.setattr(Accelerator, "device", property(lambda self: meta))
    optimizers = importlib.import_module("torch.optim.optimizer")
    fused_on = optimizers._get_fused_kernels_supported_devices()
    monkeypatch.setattr(optimizers, "_get_fused_kernels_supported_devices", lambda: [*fused_on, "meta"])
    monkeypatch.setattr(MyBertModel, "_supports_varlen", lambda model, words: request.param)
    monkeypatch.setattr(attention_mybert, "varlen_attn", lambda query, *args, **kwargs: query.clone(), raising=False)


@pytest.fixture(scope="session")
def start_python() -> Callable[..., subprocess.Popen[str]]:
    """Start Python with these words, in a folder, with further environment variables; streams are pipes of text."""

    def start(*words: object, cwd: Path | None = None, stdout: Any = subprocess.PIPE, **environment: str) -> Any:
        pipes = {"stdin": subprocess.PIPE, "stdout": stdout, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([sys.executable, *map(str, words)], cwd=cwd, env=os.environ | environment, **pipes)

    return start


@pytest.fixture(scope="session")
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run Python with these words, as in `start_python`, to its end, which must be of this status."""

    def run(*words: object, status: int = 0, cwd: Path | None = None, timeout: float = 300, **environment: str) -> Any:
        command, variables = [sys.executable, *map(str, words)], os.environ | environment
        done = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=timeout)
        assert done.returncode == status, done.stderr[-8000:]
        return done

    return run


@pytest.fixture
def run_in_two_processes(tmp_path: Path, run_python: Any) -> Callable[[str], None]:
    """Run a script in two processes of one group, on CPUs; it fails if one of them does."""

    def run(script: str) -> None:
        # Threads of gloo that still free tensors abort a process whose interpreter is finalized.
        leave = "import os\nimport torch.distributed\ntorch.distributed.destroy_process_group()\nos._exit(0)\n"
        (tmp_path / "ranks.py").write_text(f"{script}\n{leave}")
        launcher = "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"
        run_python(*launcher, "ranks.py", cwd=tmp_path, timeout=180, CUDA_VISIBLE_DEVICES="")

    return run


@pytest.fixture
def run_processes_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any], list[str]]]:
    """(Module) -> the names of what its `own_process` would have started, whose work runs in this process."""
    threads = torch.get_num_threads()

    def replace(module: Any) -> list[str]:
        started: list[str] = []

        @contextmanager
        def here(name: str, make: Callable[..., Any], *arguments: Any) -> Iterator[Callable[..., Any]]:
            held = make(*arguments)
            started.append(name)
            yield lambda method, *arguments: getattr(held, method)(*arguments)

        monkeypatch.setattr(module, "own_process", here)
        return started

    yield replace
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def user_error() -> Callable[..., AbstractContextManager[Any]]:
    """Expect an error about options, "--top_k --n_best_size" for the first ones it names; or one with a message."""

    @contextmanager
    def expect(expected: str, types: Any = ValueError) -> Iterator[Any]:
        options = tuple(expected.replace("--", "").split()) if expected.startswith("--") else ()
        with pytest.raises(SettingError if options else types, match=None if options else expected) as error:
            yield error
        assert not options or error.value.options[: len(options)] == options, error.value

    return expect


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Real corpora and task data; present in CI."""
    if not DATA.is_dir():
        pytest.skip(f"the test data is not at {DATA}")
    return DATA


@pytest.fixture(scope="session")
def tokenizer() -> MyBertTokenizer:
    """A tokenizer of a few words."""
    return MyBertTokenizer(vocab=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, ".", "##s"])


@pytest.fixture(scope="session")
def tiny_model(tokenizer: MyBertTokenizer) -> Callable[..., Path]:
    """Make a model folder with random weights, the tokenizer, and these fields of the configuration.

    `labels` are the names of its classes, `task` what it was fine-tuned for, `change` is called with the model.
    """

    def make(
        folder: Path,
        model_class: Any = MyBertForPreTraining,
        *,
        labels: Sequence[str] = (),
        task: str | None = None,
        words: MyBertTokenizer = tokenizer,
        seed: int = 0,
        change: Callable[[Any], Any] = lambda model: None,
        **fields: Any,
    ) -> Path:
        size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
        size["vocab_size"] = len(words)
        if labels:
            fields |= {"id2label": dict(enumerate(labels)), "label2id": {name: i for i, name in enumerate(labels)}}
        config = model_class.config_class(**size | fields)
        if task:
            config.finetuned_for = task_record(task, TASKS[task])
        torch.manual_seed(seed)
        model = model_class(config)
        change(model)
        model.save_pretrained(folder)
        words.save_pretrained(folder)
        return folder

    return make


@pytest.fixture(scope="session")
def change_config() -> Callable[..., Path]:
    """Change fields of a model folder's configuration, None to take one away; returns the folder."""

    def change(folder: Path, **fields: Any) -> Path:
        config = json.loads((folder / "config.json").read_text()) | fields
        kept = {name: value for name, value in config.items() if value is not None}
        (folder / "config.json").write_text(json.dumps(kept))
        return folder

    return change


@pytest.fixture(scope="session")
def documents() -> list[list[str]]:
    """Sixty documents of five to nine sentences of known words."""
    return [
        [
            " ".join(WORDS[(7 * document + 3 * sentence + 5 * word) % len(WORDS)] for word in range(4 + sentence))
            for sentence in range(5 + document % 5)
        ]
        for document in range(60)
    ]


@pytest.fixture
def text_file(tmp_path, documents) -> Path:
    """The documents as a file: one sentence a line, a blank line between documents."""
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join("\n".join(document) for document in documents) + "\n")
    return path


class Head:
    """A model class of MyBERT, transformers' class of the same name, and batches for both."""

    names = HEADS

    def __init__(self, name: str) -> None:
        self.name = name
        self.my_bert_class: Any = getattr(mybert, f"MyBert{name}")
        self.bert_class: Any = getattr(transformers, f"Bert{name}")

    def settings(self, **changes: Any) -> dict[str, Any]:
        """Configuration fields: tiny, one `dropout` or that of BERT, three labels if the head has labels."""
        labels = {} if self.name == "ForQuestionAnswering" else {"num_labels": NUM_LABELS}
        dropout = changes.pop("dropout", 0.1)
        dropouts = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
        return {**TINY, **labels, **dropouts, **changes}

    def matched_models(self, **changes: Any) -> tuple[Any, Any]:
        """MyBERT and BERT, in eval mode, with the same random weights."""
        attention = changes.pop("attn_implementation", "sdpa")
        bert = self.bert_class._from_config(
            transformers.BertConfig(**self.settings(**changes)), attn_implementation=attention
        )
        spread_weights(bert)
        my_bert = self.my_bert_class._from_config(
            mybert.MyBertConfig(**self.settings(**changes)), attn_implementation=attention
        )
        my_bert.load_state_dict(bert.state_dict())
        return my_bert.eval(), bert.eval()

    def model(self, **changes: Any) -> Any:
        """Our model, in eval mode."""
        model = self.my_bert_class(mybert.MyBertConfig(**self.settings(**changes)))
        spread_weights(model)
        return model.eval()

    def batch(self, padding: str | None = "right", labels: bool = False, batch_size: int = BATCH_SIZE) -> dict:
        """A batch; padding is `right`, `left`, `holes` (here and there) or None (no mask)."""
        generator = torch.Generator().manual_seed(7)
        choices = (NUM_CHOICES,) if self.name == "ForMultipleChoice" else ()
        shape = (batch_size, *choices, LENGTH)
        batch = {"input_ids": torch.randint(1, TINY["vocab_size"], shape, generator=generator)}
        if padding is not None:
            batch["attention_mask"] = padding_mask(padding, shape, generator)
        if labels:
            batch.update(self.labels(batch["input_ids"], generator))
        if padding is not None and batch.get("labels", batch["input_ids"][0]).shape == shape:
            batch["labels"] = batch["labels"].where(batch["attention_mask"].bool(), -100)
        return batch

    @staticmethod
    def at_tokens(output: torch.Tensor, batch: dict[str, Any]) -> torch.Tensor:
        """An output at real tokens only; a packed batch has no hidden states at padding."""
        mask = batch.get("attention_mask")
        if mask is None or mask.dim() == 4 or output.shape[:2] != mask.flatten(0, -2).shape:
            return output
        return output[mask.flatten(0, -2).bool()]

    def flattened(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The sequences of a padded batch one after the other, in a row, with their positions and boundaries."""
        mask = batch["attention_mask"].flatten(0, -2).bool()
        flat = {name: value for name, value in batch.items() if name != "attention_mask"}
        flat["position_ids"] = (mask.cumsum(1) - 1)[mask][None]
        for name in {"input_ids", "labels"} & batch.keys():
            if batch[name].shape == batch["input_ids"].shape:
                flat[name] = batch[name].flatten(0, -2)[mask][None]
        if self.name == "ForMultipleChoice":
            flat |= {name: flat[name][None] for name in ("input_ids", "position_ids")}
        ends = torch.nn.functional.pad(mask.sum(1).cumsum(0), (1, 0)).int()
        for side in "qk":
            flat |= {f"cu_seq_lens_{side}": ends, f"max_length_{side}": int(mask.sum(1).max())}
        return flat

    def known(self, batch: dict[str, Any], spare_labels: int = 0) -> dict[str, Any]:
        """The batch with the indices that a collator precomputes, plus some spare label positions."""
        more = {}
        if "attention_mask" in batch:
            more["token_indices"] = flat_indices(batch["attention_mask"])
        if self.name in ("ForPreTraining", "ForMaskedLM"):
            is_labeled = batch["labels"] != -100
            spare = flat_indices(~is_labeled)[:1].repeat(spare_labels)
            more["prediction_indices"] = torch.cat([flat_indices(is_labeled), spare])
        return {**batch, **more}

    def labels(self, input_ids: torch.Tensor, generator: torch.Generator) -> dict[str, torch.Tensor]:
        """Labels of a batch, some of them -100 where the head allows it."""

        def draw(high: int, shape: tuple[int, ...]) -> torch.Tensor:
            return torch.randint(0, high, shape, generator=generator)

        rows = (len(input_ids),)
        if self.name in ("ForMaskedLM", "ForPreTraining"):
            chosen = torch.rand(input_ids.shape, generator=generator) < 0.3
            labels = {"labels": input_ids.where(chosen, -100)}
            return labels if self.name == "ForMaskedLM" else {**labels, "next_sentence_label": draw(2, rows)}
        if self.name == "ForTokenClassification":
            labels = draw(NUM_LABELS, input_ids.shape)
            return {"labels": labels.where(torch.rand(input_ids.shape, generator=generator) < 0.7, -100)}
        if self.name == "ForQuestionAnswering":
            return {"start_positions": draw(LENGTH, rows), "end_positions": draw(LENGTH, rows)}
        classes = {"ForNextSentencePrediction": 2, "ForMultipleChoice": NUM_CHOICES}.get(self.name, NUM_LABELS)
        return {} if self.name == "Model" else {"labels": draw(classes, rows)}


def spread_weights(model: Any) -> None:
    """Draw weights so that every term matters: biases are not 0 and layer-norm gains are not 1."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            offset = 1.0 if name.endswith("LayerNorm.weight") else 0.0
            parameter.copy_(offset + 0.2 * torch.randn(parameter.shape, generator=generator))


def padding_mask(padding: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """1 at tokens, 0 at padding."""
    length = shape[-1]
    lengths = torch.randint(3, length + 1, (*shape[:-1], 1), generator=generator)
    if padding == "right":
        return (torch.arange(length) < lengths).long()
    if padding == "left":
        return (torch.arange(length) >= length - lengths).long()
    mask = (torch.rand(shape, generator=generator) < 0.6).long()
    mask[..., 0] = 1
    return mask


@pytest.fixture(params=HEADS)
def head(request: pytest.FixtureRequest) -> Head:
    """Each head in turn."""
    return Head(request.param)


@pytest.fixture(params=HEADS[1:])
def head_with_loss(request: pytest.FixtureRequest) -> Head:
    """Each head that takes labels in turn."""
    return Head(request.param)


@pytest.fixture(scope="session")
def heads() -> Callable[[str], Head]:
    """A head by name."""
    return Head


def shapes_of_inputs(module: torch.nn.Module, measure: Callable[[torch.Size], Any] = tuple) -> list[Any]:
    """Record the shape of the first input at each call, by a hook that counts as PyTorch's: batches stay packed."""
    shapes: list[Any] = []

    def record(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        shapes.append(measure(inputs[0].shape))

    record.__module__ = "torch.utils.flop_counter"
    module.register_forward_pre_hook(record)
    return shapes


@pytest.fixture
def watch() -> Callable[..., list[Any]]:
    """The recorder `shapes_of_inputs`."""
    return shapes_of_inputs
