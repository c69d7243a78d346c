import dataclasses
import json
import math
import re

import numpy as np
import pytest
import torch
from huggingface_hub import EvalResult, ModelCard
from huggingface_hub.repocard_data import model_index_to_eval_results
from markdown_it import MarkdownIt
from safetensors.torch import save_file

from mybert import MyBertForSequenceClassification
from mybert.hub_card import (
    CardContent,
    Comparison,
    Example,
    ModelDescription,
    PipelineCall,
    TrainingDescription,
    describe_model,
    head_examples,
    render_card,
    run_example,
    run_pipelines,
    write_card,
)

RESULTS = [
    EvalResult(
        task_type="text-classification",
        task_name="Library of a paragraph",
        dataset_type="python-documentation",
        dataset_name="Python documentation",
        dataset_split="held-out modules",
        metric_type="accuracy",
        metric_name="Accuracy",
        metric_value=0.84125,
    ),
    EvalResult(
        task_type="fill-mask",
        dataset_type="python-documentation",
        dataset_name="Python documentation",
        metric_type="perplexity",
        metric_value=np.float32(12.5),
    ),
]

FULL = CardContent(
    name="tiny: a model",
    summary="A small English BERT.",
    model=ModelDescription(architecture="MyBertForPreTraining", model_type="mybert", parameters=4385920, layers=2),
    training=TrainingDescription(
        corpus="Documentation of **Python** packages.",
        documents=7860,
        sentences=250000,
        tokens=5000000,
        vocabulary="8,000 entries, WordPiece",
        hyperparameters={"learning_rate": 5e-4, "batch_size": 4096, "mask": "15 % | 80-10-10", "packed": True},
        seeds=[42],
        hardware="2 cores",
        wall_time=252.4,
        versions={"torch": "2.13.0", "mybert": "0.1.0"},
    ),
    curves="training_curves.png",
    results=RESULTS,
    comparisons=[
        Comparison(
            "On the held-out modules:", {"tiny": {"accuracy": 0.841, "F1": 0.8}, "from scratch": {"accuracy": 0.7}}
        )
    ],
    examples=[Example("Fill-mask", 'print("```")\n', "```\n")],
    limits=["It has read only documentation.", "It knows English only."],
    license="apache-2.0",
    languages=["en"],
    base_model="someone/base",
    datasets=("someone/text",),  # YAML has no tuples
    tags=["demo"],
)


def save_model_folder(folder):
    config = {
        "architectures": ["MyBertForSequenceClassification"],
        "model_type": "deberta",
        "num_hidden_layers": 2,
        "hidden_size": 32,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "vocab_size": 30522,
        "max_position_embeddings": 128,
        "id2label": {"2": "c", "0": "a", "1": "b"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"weight": torch.zeros(3, 5), "bias": torch.zeros(5)}, folder / "model.safetensors")
    return folder


def test_minimal_card_says_nothing_it_does_not_know():
    text = render_card(CardContent(name="tiny"))
    assert text == "---\nlibrary_name: transformers\ntags:\n- mybert\n---\n\n# tiny\n"
    assert ModelCard(text).data.to_dict() == {"library_name": "transformers", "tags": ["mybert"]}
    assert render_card(CardContent(name="tiny", model=ModelDescription(), training=TrainingDescription())) == text


def test_full_card_has_every_section():
    text = render_card(FULL)
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# tiny: a model",
        "## Model",
        "## How it was made",
        "## Results",
        "## Examples",
        "### Fill-mask",
        "## Limits",
        "## License",
    ]
    for line in (
        "A small English BERT.",
        "| Parameters | 4,385,920 |",
        "Documentation of **Python** packages.",
        "| Tokens | 5,000,000 |",
        "| learning_rate | 0.0005 |",
        "| batch_size | 4,096 |",
        r"| mask | 15 % \| 80-10-10 |",
        "| packed | True |",
        "| Seed | 42 |",
        "| Training time | 4 min 12 s |",
        "| Versions | torch 2.13.0, mybert 0.1.0 |",
        "![Training curves](training_curves.png)",
        "| Library of a paragraph | Python documentation | held-out modules | Accuracy | 0.8413 |",
        "| fill-mask | Python documentation |  | perplexity | 12.5 |",
        "| tiny | 0.841 | 0.8 |",
        "| from scratch | 0.7 |  |",
        '````python\nprint("```")\n````\n\n````text\n```\n````',
        "- It has read only documentation.\n- It knows English only.",
        "apache-2.0",
    ):
        assert line in text.splitlines() or ("\n" in line and line in text)
    assert "\n\n\n" not in text and text.endswith("\n") and not text.endswith("\n\n")
    assert "None" not in text


def test_metadata_round_trips_through_the_hub_client():
    data = ModelCard(render_card(FULL)).data
    assert data.license == "apache-2.0" and data.language == ["en"] and data.library_name == "transformers"
    assert data.pipeline_tag == "fill-mask" and data.base_model == "someone/base" and data.tags == ["mybert", "demo"]
    assert data.metrics == ["accuracy", "perplexity"] and data.datasets == ["someone/text"]
    name, results = model_index_to_eval_results(data.to_dict()["model-index"])
    assert name == FULL.name
    assert results == RESULTS


@pytest.mark.parametrize("value", [math.nan, math.inf, np.float32("nan"), "0.9", True, None])
def test_results_must_be_finite_numbers(value):
    result = dataclasses.replace(RESULTS[0], metric_value=value)
    with pytest.raises(ValueError, match=r"accuracy on Python documentation is .*; expected a finite number"):
        render_card(CardContent(name="tiny", results=[result]))


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(CardContent) if f.name != "name"])
def test_each_field_stands_alone(field):
    text = render_card(CardContent(name="tiny", **{field: getattr(FULL, field)}))
    lines = text.split("---\n", 2)[2].splitlines()
    assert ModelCard(text).data.library_name == "transformers"
    for position, line in enumerate(lines):
        if line.startswith("## "):
            following = [other for other in lines[position + 1 :] if other]
            assert following and not following[0].startswith("## "), f"{line} is empty"


def test_describe_model_reads_the_folder(tmp_path):
    assert describe_model(save_model_folder(tmp_path)) == ModelDescription(
        architecture="MyBertForSequenceClassification",
        model_type="deberta",
        parameters=20,
        layers=2,
        hidden_size=32,
        attention_heads=4,
        intermediate_size=64,
        vocabulary_size=30522,
        max_positions=128,
        labels=("a", "b", "c"),
    )
    (tmp_path / "config.json").write_text('{"model_type": "deberta", "id2label": {"1": 5, "0": 3}}')
    assert describe_model(tmp_path).labels == ("3", "5")
    (tmp_path / "config.json").write_text('{"model_type": "deberta", "num_hidden_layers": 3}')
    description = describe_model(tmp_path)
    assert (description.layers, description.hidden_size, description.labels) == (3, 768, ())  # 768: its default


@pytest.mark.parametrize(
    ("fields", "layers", "longest"),
    [
        ({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}, 12, 512),
        ({"model_type": "distilbert", "n_layers": 4, "max_position_embeddings": 256}, 4, 256),
        ({"model_type": "xlnet", "n_layer": 5}, 5, None),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else "",
)
def test_describe_model_knows_names_and_positions_of_other_encoders(fields, layers, longest, tmp_path):
    save_model_folder(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(fields))
    description = describe_model(tmp_path)
    assert (description.layers, description.max_positions) == (layers, longest)


def test_write_card_describes_the_folder_and_shows_its_curves(tmp_path):
    save_model_folder(tmp_path)
    path = write_card(tmp_path, CardContent(name="tiny", curves="training_curves.png"))
    assert path == tmp_path / "README.md"
    text = path.read_text(encoding="utf-8")
    assert "| Labels | a, b, c |" in text and "training_curves" not in text

    (tmp_path / "training_curves.png").write_bytes(b"")
    write_card(tmp_path, CardContent(name="tiny – ä"))
    text = path.read_text(encoding="utf-8")
    assert "![Training curves](training_curves.png)" in text and "# tiny – ä" in text
    assert ModelCard.load(path).data.pipeline_tag == "text-classification"
    assert len(list(tmp_path.iterdir())) == 4


def test_an_example_shows_more_than_it_runs_and_keeps_what_it_printed():
    example = run_example("Sum", "print(total)", "from nowhere import total\n", total=3)
    assert example == Example("Sum", "from nowhere import total\nprint(total)", "3")
    with pytest.raises(ZeroDivisionError):
        run_example("Broken", "1 / 0")


def test_head_examples_model_in_training_mode_runs_without_dropout(tmp_path, tiny_model):
    dropout = {"hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.5}
    folder = tiny_model(tmp_path / "model", MyBertForSequenceClassification, **dropout)
    model = MyBertForSequenceClassification.from_pretrained(folder).train()  # as after training without evaluation
    assert head_examples(folder, model=model) == head_examples(folder)


def test_run_pipelines_loads_the_tokenizer_that_is_not_given(tmp_path, tiny_model, tokenizer):
    folder = tiny_model(tmp_path / "model", MyBertForSequenceClassification)
    calls = [PipelineCall("One", "text-classification", "print(run('the cat'))")]
    (example,) = run_pipelines(calls, folder)
    assert [example] == run_pipelines(calls, folder, tokenizer=tokenizer) and "score" in example.output


HOSTILE = [
    "<script>alert(1)</script>",
    "[a](javascript:alert(1)) ![b](http://c/d.png) <http://e>",
    "*a* _b_ `c` ~~d~~ $e$ | f &lt; g\\",
    "# a\n\n- b\n\n---\n",
    "1. a\n```\nb",
    "+ a",
    "=====",
    "a\x00\u202eb\ud800",
    "\n---\ntags: [x]\n---\n",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_card_with_markup_in_data_keeps_it_as_text(text):
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    card = CardContent(
        name=f"x {text}",
        model=ModelDescription(architecture=text, labels=(text, "b")),
        training=TrainingDescription(
            vocabulary=text, hyperparameters={text: text}, hardware=text, versions={text: text}
        ),
        results=[dataclasses.replace(RESULTS[0], task_name=text, dataset_name=text, metric_name=text)],
        comparisons=[Comparison("On it:", {text: {text: 1.0}})],
        examples=[Example(text, "print(1)", text)],
        license=text,
        languages=["en"],
        tags=[text],
    )
    rendered = render_card(card)
    data = ModelCard(rendered.encode(errors="replace").decode()).data
    assert data.language == ["en"] and len(data.tags) == 2
    body = rendered.split("\n---\n\n# x ", 1)[1]
    tokens = parser.parse("# x " + body)
    assert {token.type for token in tokens} <= {
        *(f"{name}_{end}" for name in ("heading", "paragraph") for end in ("open", "close")),
        *(f"{name}_{end}" for name in ("table", "thead", "tbody", "tr", "th", "td") for end in ("open", "close")),
        *("inline", "fence"),
    }
    inline = [child for token in tokens if token.children for child in token.children]
    assert {child.type for child in inline} <= {"text", "text_special"}
    shown = " ".join(re.sub("[\x00\u202e\ud800]", " ", f"{text}, b").split())
    (labels,) = (t.content for t in tokens if t.type == "inline" and t.content.endswith(", b"))
    assert "".join(child.content for child in parser.parseInline(labels)[0].children) == shown


def test_render_card_single_text_counts_as_list_of_one():
    text = render_card(CardContent(name="a", limits="English only.", languages="en"))
    assert "- English only.\n" in text and "language:\n- en\n" in text


def test_markdown_of_ones_own_has_no_html():
    text = render_card(CardContent(name="a", summary="**b** <img src=x>", limits=["<b>", "*c*"]))
    assert "**b** &lt;img src=x>" in text and "- &lt;b>\n- *c*" in text
