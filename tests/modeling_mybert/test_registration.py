"""transformers knows MyBERT after `import mybert`, whichever of the two is imported first."""

import json
import os
import subprocess
import sys

import pytest
import transformers

import mybert

AUTO_CLASSES = {
    "AutoModel": "MyBertModel",
    "AutoModelForPreTraining": "MyBertForPreTraining",
    "AutoModelForMaskedLM": "MyBertForMaskedLM",
    "AutoModelForNextSentencePrediction": "MyBertForNextSentencePrediction",
    "AutoModelForSequenceClassification": "MyBertForSequenceClassification",
    "AutoModelForMultipleChoice": "MyBertForMultipleChoice",
    "AutoModelForTokenClassification": "MyBertForTokenClassification",
    "AutoModelForQuestionAnswering": "MyBertForQuestionAnswering",
}
QUESTIONS = """
import json, sys
import mybert, transformers
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING
from transformers.pipelines import PIPELINE_REGISTRY

sizes = dict(vocab_size=9, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4)
config = transformers.AutoConfig.for_model("mybert", **sizes)
assert type(config) is mybert.MyBertConfig
models = {auto: getattr(transformers, auto).from_config(config) for auto in json.loads(sys.argv[1])}
assert all(type(model) is getattr(mybert, type(model).__name__) for model in models.values())
print(json.dumps({
    "models": {auto: type(model).__name__ for auto, model in models.items()},
    "tokenizer": str(TOKENIZER_MAPPING[mybert.MyBertConfig]),
    "tasks": PIPELINE_REGISTRY.get_supported_tasks(),
    "copies": sum(str(getattr(m, "__file__", "")).endswith("modeling_mybert.py") for m in list(sys.modules.values())),
}))
"""


def python(code: str, *arguments: str, **environment: str) -> str:
    """Run code in a new interpreter; returns what it prints."""
    result = subprocess.run(
        [sys.executable, "-W", "error::UserWarning:mybert", "-c", code, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def answers(first: str) -> dict:
    """What transformers knows after `first` was run."""
    return json.loads(python(f"{first}\n{QUESTIONS}", json.dumps(list(AUTO_CLASSES))))


@pytest.mark.parametrize(
    "first",
    [
        "import mybert",
        "from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoTokenizer, pipeline",
        *(
            pytest.param(first, marks=pytest.mark.slow)
            for first in (
                "import transformers",
                "from transformers import AutoConfig",
                "from transformers import AutoModel",
                "from transformers import AutoTokenizer",
                "from transformers import pipeline",
                "from transformers import BertModel",
                "import transformers.modeling_utils",
                "from mybert import MyBertForMaskedLM",
                "from mybert import MyBertTokenizer",
                "import mybert.modeling_mybert.modeling_mybert",
                "import mybert.pipelines.question_answering",
                "import mybert; from transformers import pipeline",
                "import mybert; from transformers import BertForMaskedLM",
            )
        ),
    ],
)
def test_order_of_imports(first):
    known = answers(first)
    assert known["models"] == AUTO_CLASSES
    assert "MyBertTokenizer" in known["tokenizer"]
    assert {"question-answering", "next-sentence-prediction", "fill-mask"} <= set(known["tasks"])
    assert known["copies"] == 1


def test_importing_the_package_alone_is_light():
    loaded = python("import mybert, sys; print(*sys.modules)").split()
    assert not {"torch", "transformers", "numpy", "tokenizers", "datasets", "matplotlib"} & set(loaded)


def test_reading_a_configuration_does_not_load_the_network():
    loaded = python("from mybert import MyBertConfig; import sys; print(*sys.modules)").split()
    assert "mybert.modeling_mybert.configuration_mybert" in loaded
    assert "mybert.modeling_mybert.modeling_mybert" not in loaded


def test_every_public_name_exists():
    assert all(getattr(mybert, name) is not None for name in mybert.__all__)
    assert set(mybert.__all__) <= set(dir(mybert))
    with pytest.raises(AttributeError, match="has no attribute 'MyBertForNothing'"):
        _ = mybert.MyBertForNothing
    with pytest.raises(AttributeError, match="has no attribute 'MyBertForNothing'"):
        _ = mybert.modeling_mybert.MyBertForNothing


def test_auto_classes_load_a_saved_model(head, tmp_path, no_complaints):
    head.model().save_pretrained(tmp_path)
    auto = getattr(transformers, "AutoModel" + head.name.removeprefix("Model"))
    assert type(auto.from_pretrained(tmp_path)) is head.ours


LOAD = """
import sys
sys.modules["mybert"] = None  # `import mybert` fails, as where it is not installed
import torch
from transformers import AutoModelForMaskedLM
model = AutoModelForMaskedLM.from_pretrained(sys.argv[1], trust_remote_code=True)
loss = model.train()(torch.tensor([[1, 2, 3]]), labels=torch.tensor([[-100, 2, -100]])).loss
loss.backward()
print(type(model).__name__, type(model).__module__.split(".")[0], loss.isfinite().item())
"""


@pytest.fixture
def folder_with_code(heads, tmp_path, monkeypatch):
    """A model saved with its code, as for the Hub."""
    # Both calls leave a mark on the class; this takes it away after the test.
    monkeypatch.setattr(mybert.MyBertConfig, "_auto_class", None)
    monkeypatch.setattr(mybert.MyBertForMaskedLM, "_auto_class", None)
    mybert.MyBertConfig.register_for_auto_class()
    mybert.MyBertForMaskedLM.register_for_auto_class("AutoModelForMaskedLM")
    heads("ForMaskedLM").model().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_code_saved_with_a_model_runs_without_the_package(folder_with_code, tmp_path):
    code = sorted(path.name for path in folder_with_code.glob("*.py"))
    assert code == ["configuration_mybert.py", "modeling_mybert.py", "padding_mybert.py"]
    assert json.loads((folder_with_code / "config.json").read_text())["auto_map"] == {
        "AutoConfig": "configuration_mybert.MyBertConfig",
        "AutoModelForMaskedLM": "modeling_mybert.MyBertForMaskedLM",
    }
    printed = python(LOAD, str(folder_with_code), HF_MODULES_CACHE=str(tmp_path / "modules"))
    assert printed.split() == ["MyBertForMaskedLM", "transformers_modules", "True"]


def test_installed_classes_win_over_saved_code(folder_with_code):
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder_with_code, trust_remote_code=True)
    assert type(model) is mybert.MyBertForMaskedLM
