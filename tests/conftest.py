"""What all tests share: no network, few threads, tiny text."""

import gc
import importlib
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny tensors: more threads only get in each other's way
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # pytest's workers share the cores

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.utils import logging as transformers_logging

from mybert import MyBertForPreTraining, MyBertTokenizer

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

WORDS = "the cat dog sat ran on under a mat tree and slept ate fish bread it was happy sad very today".split()


@pytest.fixture(scope="module", autouse=True)
def what_is_loaded_is_no_garbage() -> None:
    """`Trainer` collects garbage several times a run: a third of a second each, with all libraries."""
    gc.collect()
    gc.freeze()


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
    from mybert.modeling_mybert import batch_mybert

    meta = torch.device("meta")
    monkeypatch.setattr(TrainingArguments, "device", property(lambda self: self._setup_devices and meta))
    monkeypatch.setattr(Accelerator, "device", property(lambda self: meta))
    optimizers = importlib.import_module("torch.optim.optimizer")
    fused_on = optimizers._get_fused_kernels_supported_devices()
    monkeypatch.setattr(optimizers, "_get_fused_kernels_supported_devices", lambda: [*fused_on, "meta"])
    monkeypatch.setattr(MyBertModel, "_supports_varlen", lambda model, words: request.param)
    monkeypatch.setattr(batch_mybert, "varlen_attn", lambda query, *args, **kwargs: query.clone(), raising=False)


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
        assert done.returncode == status, done.stderr[-4000:]
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
    """Make a model folder with random weights, the tokenizer, and these fields of the configuration."""

    def make(folder: Path, model_class: Any = MyBertForPreTraining, **fields: Any) -> Path:
        size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
        size["vocab_size"] = len(tokenizer)
        torch.manual_seed(0)
        model_class(model_class.config_class(**size | fields)).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return make


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
