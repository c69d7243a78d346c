"""MyBERT is registered with transformers after `import mybert`, whichever of the two is imported first."""

import compileall
import importlib
import json
import sys
from pathlib import Path

import pytest
import transformers

import mybert
from mybert._lazy_names import modules_of_names
from mybert._registration import is_command

LABELS = {
    "AutoModel": {},
    "AutoModelForPreTraining": {"labels": [[-100, 2, -100]], "next_sentence_label": [1]},
    "AutoModelForMaskedLM": {"labels": [[-100, 2, -100]]},
    "AutoModelForNextSentencePrediction": {"labels": [1]},
    "AutoModelForSequenceClassification": {"labels": [1]},
    "AutoModelForMultipleChoice": {"labels": [0]},
    "AutoModelForTokenClassification": {"labels": [[1, 0, 1]]},
    "AutoModelForQuestionAnswering": {"start_positions": [1], "end_positions": [2]},
}
AUTO_CLASSES = {auto: auto.replace("AutoModel", "MyBert", 1) for auto in LABELS} | {"AutoModel": "MyBertModel"}
QUESTIONS = """
import json, sys
import mybert, transformers
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING
from transformers.pipelines import PIPELINE_REGISTRY

sizes = dict(vocab_size=9, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4)
config = transformers.AutoConfig.for_model("mybert", **sizes)
assert type(config) is mybert.MyBertConfig
recurrent = transformers.AutoConfig.for_model("mybert-bilstm", **sizes)
models = {auto: getattr(transformers, auto).from_config(config) for auto in json.loads(sys.argv[-1])}
assert all(type(model) is getattr(mybert, type(model).__name__) for model in models.values())
print(json.dumps({
    "models": {auto: type(model).__name__ for auto, model in models.items()},
    "tokenizer": str(TOKENIZER_MAPPING[mybert.MyBertConfig]),
    "recurrent": type(transformers.AutoModelForTokenClassification.from_config(recurrent)).__name__,
    "tasks": PIPELINE_REGISTRY.get_supported_tasks(),
    "copies": sum(str(getattr(m, "__file__", "")).endswith("modeling_mybert.py") for m in list(sys.modules.values())),
}))
"""


@pytest.fixture
def python(run_python):
    """Run code in a new interpreter; returns what it prints."""

    def run(code: str, *arguments: str, **environment: str) -> str:
        return run_python("-W", "error::UserWarning:mybert", "-c", code, *arguments, **environment).stdout

    return run


def assert_registered(answers: str) -> None:
    """Check the answers to `QUESTIONS`."""
    known = json.loads(answers)
    assert known["models"] == AUTO_CLASSES
    assert "MyBertTokenizer" in known["tokenizer"]
    assert known["recurrent"] == "MyBertBiLstmForTokenClassification"
    assert {"question-answering", "next-sentence-prediction", "fill-mask"} <= set(known["tasks"])
    assert known["copies"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("first", ["import transformers.modeling_utils", "import mybert.modeling_mybert.heads_mybert"])
def test_order_of_imports(first, python):
    assert_registered(python(f"{first}\n{QUESTIONS}", json.dumps(list(AUTO_CLASSES))))


CHANGES = """
import copy, json, sys
from transformers import TextClassificationPipeline, pipelines
try:
    from peft.utils import constants
except ImportError:
    constants = None

class Users(TextClassificationPipeline): ...

for task in json.loads(sys.argv[1]):
    pipelines.PIPELINE_REGISTRY.register_pipeline(task, Users)
seen = {
    "tasks": lambda: pipelines.PIPELINE_REGISTRY.supported_tasks,
    "aliases": lambda: pipelines.PIPELINE_REGISTRY.task_aliases,
    "removed": lambda: getattr(pipelines, "REMOVED_TASKS", {}),
    "finders": lambda: dict.fromkeys(map(id, sys.meta_path)),
    "peft": lambda: {k: str(v) for k, v in vars(constants).items() if k.isupper()} if constants else {},
}
before = {name: copy.copy(look()) for name, look in seen.items()}
import mybert
changes = {
    name: [key for key in {**before[name], **look()} if before[name].get(key) != look().get(key)]
    for name, look in seen.items()
}
print(json.dumps({name: keys for name, keys in changes.items() if keys}))
"""


@pytest.mark.parametrize(
    "users", [["question-answering", "text-classification"], pytest.param([], marks=pytest.mark.slow)]
)
def test_import_after_transformers_changes_two_lists_and_no_registration_of_a_user(users, python):
    changes, answers = python(CHANGES + QUESTIONS, json.dumps(users), json.dumps(list(AUTO_CLASSES))).splitlines()
    assert_registered(answers)
    added = {"question-answering", "next-sentence-prediction", "multiple-choice"} - set(users)
    expected = {"tasks": added}
    if hasattr(transformers.pipelines, "REMOVED_TASKS"):  # transformers 5.13 lacks it
        expected["removed"] = {"question-answering"}
    assert {name: set(keys) for name, keys in json.loads(changes).items()} == expected


@pytest.mark.parametrize(
    "users",
    [
        pytest.param((transformers.RobertaConfig, "RobertaFor"), id="roberta"),
        pytest.param((transformers.DistilBertConfig, "DistilBertFor"), id="distilbert"),
        pytest.param((mybert.MyBertConfig, "MyBertFor"), id="mybert"),
    ],
)
def test_stock_pipelines_are_transformers_own(users, tmp_path, tokenizer):
    config_class, prefix = users
    config = config_class(vocab_size=len(tokenizer), hidden_size=16, num_attention_heads=2, num_hidden_layers=1)
    module = mybert if config_class is mybert.MyBertConfig else transformers
    tokenizer.save_pretrained(tmp_path)
    for kind in ("Text", "Token"):
        head = getattr(module, f"{prefix}{kind.replace('Text', 'Sequence')}Classification")
        head(config).save_pretrained(tmp_path)
        stock = transformers.pipeline(f"{kind.lower()}-classification", model=str(tmp_path), tokenizer=tokenizer)
        assert type(stock) is getattr(transformers, f"{kind}ClassificationPipeline")


THREADS = """
import faulthandler, sys, threading
faulthandler.dump_traceback_later(100, exit=True)
import mybert
barrier = threading.Barrier(len(sys.argv) - 1)
loaded = []
def load(statement):
    barrier.wait()
    exec(statement)
    loaded.append(statement)
threads = [threading.Thread(target=load, args=(statement,)) for statement in sys.argv[1:]]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(loaded) == len(threads)
"""


@pytest.mark.parametrize(
    "statements",
    [
        (
            "import transformers.modeling_utils",
            "import transformers.pipelines",
            "from mybert import MyBertForMaskedLM",
        ),
        pytest.param(
            ("from transformers import pipeline", "from transformers import Trainer", "import mybert.finetuning"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_threads_import_at_once(statements, python):
    python(THREADS, *statements)


@pytest.mark.parametrize(
    ("argv", "original", "expected"),
    [
        (["/usr/bin/mybert", "--help"], ["python", "/usr/bin/mybert", "--help"], True),
        (["-m", "--help"], ["python", "-m", "mybert", "--help"], True),
        (["-m", "--help"], ["python", "-X", "dev", "-u", "-m", "mybert", "--help"], True),
        (["-m", "mybert"], ["python", "-m", "app", "-m", "mybert"], False),
        (["app.py", "-m", "mybert"], ["python", "app.py", "-m", "mybert"], False),
        ([""], ["python"], False),
        ([], ["app"], False),
    ],
)
def test_is_command_by_argv_finds_the_command(argv, original, expected, monkeypatch):
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "orig_argv", original)
    assert is_command() is expected


def test_command_lists_its_commands_without_libraries(python):
    code = "import sys; sys.argv = ['mybert', '--help']; from mybert.__main__ import main; main(); print(*sys.modules)"
    *usage, loaded = python(code).splitlines()
    assert "usage: mybert <command>" in usage[0] and "mybert.cli" in loaded
    assert not {"torch", "transformers", "numpy", "tokenizers", "datasets", "matplotlib"} & set(loaded.split())


@pytest.mark.parametrize("package", [mybert, mybert.modeling_mybert, mybert.pretraining], ids=lambda one: one.__name__)
def test_public_names_are_those_that_type_checkers_see(package):
    assert all(getattr(package, name) is not None for name in package.__all__)
    assert set(package.__all__) <= set(dir(package))
    assert {*package.__all__} - {"__version__"} == modules_of_names(package.__name__).keys()
    with pytest.raises(AttributeError, match=f"'{package.__name__}' has no attribute 'Nothing'"):
        _ = package.Nothing


def test_lazy_names_without_source_load(tmp_path, monkeypatch):
    """As in an installation of .pyc files only."""
    package = tmp_path / "compiled_only"
    package.mkdir()
    (package / "part.py").write_text("class First: ...\nsecond = 2\n")
    (package / "__init__.py").write_text(
        "from typing import TYPE_CHECKING\nfrom mybert._lazy_names import lazy_names\nif TYPE_CHECKING:\n"
        "    from .part import First, second\n__getattr__, __dir__ = lazy_names(__name__)\n"
    )
    compileall.compile_dir(package, legacy=True, quiet=1)
    for source in package.glob("*.py"):
        source.unlink()
    monkeypatch.syspath_prepend(tmp_path)
    loaded = importlib.import_module("compiled_only")
    assert modules_of_names("compiled_only") == {"First": ".part", "second": ".part"}
    assert loaded.second == 2 and loaded.First.__module__ == "compiled_only.part" and "First" in dir(loaded)


def test_auto_classes_load_a_saved_model(head, tmp_path, no_complaints):
    head.model().save_pretrained(tmp_path)
    auto = getattr(transformers, "AutoModel" + head.name.removeprefix("Model"))
    assert type(auto.from_pretrained(tmp_path)) is head.my_bert_class


LOAD = """
import json, sys
sys.modules["mybert"] = None  # `import mybert` fails, as where it is not installed
import torch, transformers
for auto, (folder, other, labels) in json.loads(sys.argv[1]).items():
    model = getattr(transformers, auto).from_pretrained(folder, trust_remote_code=True).train()
    labels = {name: torch.tensor(values) for name, values in labels.items()}
    ids = torch.tensor([[1, 2, 3]])
    outputs = model(ids[None] if "Choice" in auto else ids, **labels)
    loss = outputs.loss if labels else outputs.last_hidden_state.sum()
    loss.backward()
    # The code of all heads went along with the one that was saved.
    others = dict(trust_remote_code=True, num_labels=2, ignore_mismatched_sizes=True)
    another = type(getattr(transformers, other).from_pretrained(folder, **others))
    package = type(model).__module__.split(".")[0]
    packs = not model.base_model._scan().is_changed  # its modules count as unchanged there, too
    print(auto, type(model).__name__, package, loss.isfinite().item(), packs, another.__name__)
"""


def save_with_code(model, folder, monkeypatch) -> None:
    """Save a model with its code, as for the Hub."""
    auto = "AutoModel" + type(model).__name__.removeprefix("MyBert").removeprefix("Model")
    # Both calls set an attribute of the class; monkeypatch resets it after the test.
    monkeypatch.setattr(mybert.MyBertConfig, "_auto_class", None)
    monkeypatch.setattr(type(model), "_auto_class", None)
    mybert.MyBertConfig.register_for_auto_class()
    type(model).register_for_auto_class(auto)
    model.save_pretrained(folder)
    code = sorted(path.name for path in folder.glob("*.py"))
    assert code == sorted(path.name for path in Path(mybert.modeling_mybert.__file__).parent.glob("*_mybert.py"))
    written = json.loads((folder / "config.json").read_text())
    everything = mybert.modeling_mybert.auto_map()
    assert written["auto_map"] == {name: everything[name] for name in ("AutoConfig", auto)}
    (folder / "config.json").write_text(json.dumps({**written, "auto_map": everything}))  # as in a published model


@pytest.mark.slow
def test_code_saved_with_a_model_runs_without_the_package(heads, tmp_path, monkeypatch, python):
    """Every head, in one new process: loading, its loss and gradients."""
    jobs = {}
    for number, (auto, labels) in enumerate(LABELS.items()):
        folder = tmp_path / auto
        save_with_code(heads(auto.removeprefix("AutoModel") or "Model").model(), folder, monkeypatch)
        jobs[auto] = (str(folder), list(LABELS)[number - 1], labels)
    printed = python(LOAD, json.dumps(jobs), HF_MODULES_CACHE=str(tmp_path / "modules"))
    loaded = [line.split() for line in printed.splitlines()]
    assert loaded == [
        [auto, AUTO_CLASSES[auto], "transformers_modules", "True", "True", AUTO_CLASSES[other]]
        for auto, (_, other, _) in jobs.items()
    ]


def test_installed_classes_win_over_saved_code(heads, tmp_path, monkeypatch):
    save_with_code(heads("ForMaskedLM").model(), tmp_path, monkeypatch)
    model = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path, trust_remote_code=True)
    assert type(model) is mybert.MyBertForMaskedLM
