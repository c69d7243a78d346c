"""transformers.js runs published folders: needs Node, and MYBERT_NODE_MODULES, where it is installed.

npm install --ignore-scripts @huggingface/transformers
MYBERT_NODE_MODULES=$PWD/node_modules pytest tests/ecosystem/test_transformers_js.py
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import transformers

from mybert.hub_card import write_publishable

NODE, NODE_MODULES = shutil.which("node"), os.environ.get("MYBERT_NODE_MODULES")
SCRIPT = Path(__file__).with_name("transformers_js.mjs")
TEXTS = ["the cat sat on a mat .", "a dog ran", "it was a very happy tree and the cat slept under it ."]
HEADS = {
    "MyBertForSequenceClassification": ("text-classification", {"top_k": None}),
    "MyBertForTokenClassification": ("token-classification", {"ignore_labels": []}),
    "MyBertModel": ("feature-extraction", {}),
}

pytestmark = pytest.mark.skipif(
    not (NODE and NODE_MODULES),
    reason="needs Node and MYBERT_NODE_MODULES, a folder node_modules that has @huggingface/transformers",
)
pytest.importorskip("onnxscript", reason="needs the extra 'onnx'")


def run_transformers_js(models, requests):
    command, given = [NODE, SCRIPT, NODE_MODULES, models], json.dumps(requests)
    return json.loads(subprocess.run(command, input=given, check=True, stdout=subprocess.PIPE, text=True).stdout)


def by_label(answer):
    """Labels and scores of a text or its tokens, in the order of labels or tokens."""
    if not isinstance(answer[0], dict):  # states
        return [], np.array(answer)
    rows = sorted(answer, key=lambda row: row.get("index", row.get("label")))
    return [row.get("entity", row.get("label")) for row in rows], np.array([row["score"] for row in rows])


@pytest.mark.slow
@pytest.mark.parametrize("head", HEADS)
def test_transformers_js_gives_labels_and_scores_of_pipelines(head, model_dir, tmp_path):
    task, options = HEADS[head]
    folder = write_publishable(model_dir(head), tmp_path / "models" / "me" / "model", "me/model", graphs=["onnx"])
    request = {"model": "me/model", "task": task, "texts": TEXTS, "options": options}
    exact, quantized = run_transformers_js(
        f"{tmp_path / 'models'}/", [request | {"dtype": dtype} for dtype in ("fp32", "q8")]
    )
    pipeline = transformers.pipeline(task, model=str(folder), device="cpu")
    for text, answer, rounded in zip(TEXTS, exact, quantized, strict=True):
        labels, scores = by_label(pipeline(text, **options))
        found_labels, found_scores = by_label(answer)
        assert found_labels == labels
        np.testing.assert_allclose(found_scores, scores, atol=1e-4)
        assert np.isfinite(by_label(rounded)[1]).all()
