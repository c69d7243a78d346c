"""Stand-ins for the files that pages name: tiny models, task data of a few rows, a small text."""

import gzip
import json
import shutil
import string
from pathlib import Path

import pytest
from transformers import BertForPreTraining

from mybert import (
    MyBertForMultipleChoice,
    MyBertForPreTraining,
    MyBertForQuestionAnswering,
    MyBertForSequenceClassification,
    MyBertForTokenClassification,
    MyBertTokenizer,
)
from mybert.conversion import export_google_checkpoint
from mybert.files.spreadsheets import write_sheet
from mybert.finetuning import TASKS
from mybert.hub_card import CardContent, write_card
from mybert.pretraining import build_token_store, read_documents

# As many layers and heads as BERT base has, so that a page can name any, and Google's activation.
SIZE = {
    "hidden_size": 24,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 48,
    "hidden_act": "gelu_pytorch_tanh",
}
TAGS = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]

TWO = ["LABEL_0", "LABEL_1"]  # as transformers names them

# Folder -> class and labels; the name of a fine-tuned one is that of its task, after "my-".
MODELS = {
    "my-bert": (MyBertForPreTraining, TWO),
    "path/to/model": (MyBertForPreTraining, TWO),
    "bert-base-folder": (BertForPreTraining, TWO),
    "bert-base-uncased": (BertForPreTraining, TWO),
    "klue/bert-base": (BertForPreTraining, TWO),
    "all-MiniLM-L6-v2": (BertForPreTraining, TWO),
    "my-rte": (MyBertForSequenceClassification, ["entailment", "not_entailment"]),
    "my-rte-small": (MyBertForSequenceClassification, ["entailment", "not_entailment"]),
    "my-sst2": (MyBertForSequenceClassification, ["0", "1"]),
    "my-stsb": (MyBertForSequenceClassification, ["value"]),
    "my-mrpc": (MyBertForSequenceClassification, ["0", "1"]),
    "my-ner": (MyBertForTokenClassification, TAGS),
    "my-squad": (MyBertForQuestionAnswering, TWO),
    "my-swag": (MyBertForMultipleChoice, TWO),
    "demo_output/pretrained": (MyBertForPreTraining, TWO),
    "demo_output/classifier": (MyBertForSequenceClassification, ["numpy", "python", "torch"]),
}

SENTENCES = ["the cat sat on the mat", "a dog ate the bread", "it was a very happy fish", "the tree was sad today"] * 4


def tsv(*columns: str, rows: int = 16, **values: list[str]) -> str:
    """A table whose texts are `SENTENCES` and whose other columns go through their values."""
    lines = ["\t".join(columns)]
    for row in range(rows):
        cells = [values[name][row % len(values[name])] if name in values else SENTENCES[row] for name in columns]
        lines.append("\t".join(cells))
    return "\n".join(lines) + "\n"


def squad(version: str) -> str:
    """Four questions in SQuAD's format; in version 2.0 every other has no answer."""
    context = "Ada Lovelace was born in London and lived in the city for many years."
    questions = []
    for number in range(4):
        impossible = version == "v2.0" and number % 2 == 1
        answers = [] if impossible else [{"text": "London", "answer_start": context.index("London")}]
        question = {"id": f"q{number}", "question": f"Where was she born {number}?", "answers": answers}
        questions.append(question | ({"is_impossible": impossible} if version == "v2.0" else {}))
    article = {"title": "Ada", "paragraphs": [{"context": context, "qas": questions}]}
    return json.dumps({"version": version, "data": [article]})


def csv(text: str) -> str:
    return text.replace("\t", ",")


def files() -> dict[str, str]:
    """Name -> content of the data."""
    two, three = ["0", "1"], ["entailment", "neutral", "contradiction"]
    entailment = ["entailment", "not_entailment"]
    binary = tsv("sentence", "label", label=two)
    pairs = tsv("index", "sentence1", "sentence2", "label", index=list(map(str, range(16))), label=entailment)
    mnli = tsv("index", "sentence1", "sentence2", "gold_label", index=["1"], gold_label=three)
    mrpc = tsv("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String", Quality=two)
    similar = tsv("index", "sentence1", "sentence2", "score", index=["1"], score=["5.0", "1.2", "0.0"])
    swag = csv(tsv("sent1", "sent2", "ending0", "ending1", "ending2", "ending3", "label", label=list("0123")))
    cosmos = csv(tsv("context", "question", "answer0", "answer1", "answer2", "answer3", "label", label=list("0123")))
    verdicts = csv(tsv("premise", "hypothesis", "verdict", verdict=three))
    conll = "Ada B-PER\nLovelace I-PER\nlived O\nin O\nLondon B-LOC\n. O\n\n" * 6
    korean = tsv(
        "id", "document", "label", id=["1"], document=["정말 재미있는 영화", "지루하고 아쉬운 영화"], label=two
    )
    answers = {f"q{number}": "London" for number in range(4)}
    result: dict[str, str] = {
        "texts.txt": "the cat sat\nis this true ? ||| it is true\n",
        "reviews.txt": "\n".join(SENTENCES) + "\n",
        "pairs.jsonl": '{"good": "the cat sat", "bad": "cat sat the"}\n',
        "train.tsv": tsv("text", "label", label=two),
        "dev.tsv": binary,
        "train.csv": verdicts,
        "dev.csv": verdicts,
        "cosmos.csv": cosmos,
        "dev-v1.1.json": squad("1.1"),
        "dev-v2.0.json": squad("v2.0"),
        "predictions.json": json.dumps(answers),
        "glue/CoLA/dev.tsv": "x\t1\t\tthe cat sat\nx\t0\t*\tcat the sat\n",
        "nsmc_train.tsv": korean + "9\t\t1\n",
        "nsmc_test.tsv": korean,
        "wiki_ko.txt": "서울은 대한민국의 수도이다.\n한강이 도시를 지난다.\n\n" * 150
        + "고양이가 잔다.\n개가 뛴다.\n\n" * 150,
    }
    for split in ("train", "dev", "test"):
        result |= {f"glue/SST-2/{split}.tsv": binary, f"glue/RTE/{split}.tsv": pairs, f"glue/MRPC/{split}.tsv": mrpc}
        result |= {f"glue/STS-B/{split}.tsv": similar, f"wnut17/{split}.conll": conll}
    for name in ("train", "dev_matched", "dev_mismatched"):
        result[f"glue/MNLI/{name}.tsv"] = mnli
    for name in ("train", "dev"):
        result |= {f"squad/{name}-v1.1.json": squad("1.1"), f"squad/{name}-v2.0.json": squad("v2.0")}
    for name in ("support", "four", "labels", "nsmc", "korean"):
        result[f"{name}.yaml"] = "tasks: {sst2: {data_dir: glue/SST-2}, stsb: {}, mrpc: {}}\n"
    for name in ("train", "valid", "test"):
        result[f"conll2003/{name}.txt"] = conll
    return result | {"swag/train.csv": swag, "swag/val.csv": swag}


@pytest.fixture(scope="session")
def stand_ins(tmp_path_factory, documents, tiny_model) -> Path:
    """A folder with everything that readers are told to bring."""
    folder = tmp_path_factory.mktemp("stand_ins")
    (folder / "blimp" / "data").mkdir(parents=True)
    pair = {"sentence_good": "the cats", "sentence_bad": "cats the", "UID": "order", "linguistics_term": "order"}
    (folder / "blimp" / "data" / "order.jsonl").write_text(json.dumps(pair) + "\n")
    report = {"accuracy": 0.5, "groups": {"linguistics_term": {"order": 0.5}}}
    (folder / "other-bert.json").write_text(json.dumps(report))
    for name, content in files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    write_sheet(folder / "reviews.xlsx", [["text"], *([sentence] for sentence in SENTENCES)])

    halves = ["\n\n".join("\n".join(document) for document in documents[half::2]) + "\n" for half in (0, 1)]
    (folder / "corpus").mkdir()
    (folder / "corpus.txt").write_text(halves[0])
    for number in range(8):  # enough that one document in a hundred can be held out
        (folder / "corpus" / f"part{number}.txt").write_text(halves[number % 2])
    (folder / "more.txt.gz").write_bytes(gzip.compress(halves[1].encode()))

    words = sorted({word for document in documents for sentence in document for word in sentence.split()})
    letters = [prefix + letter for prefix in ("", "##") for letter in string.ascii_lowercase + string.digits]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = dict.fromkeys([*special, *string.punctuation, *letters, *words])
    tokenizer = MyBertTokenizer(vocab=list(pieces))
    for name in ("tokenizer", "my-tokenizer"):
        tokenizer.save_pretrained(folder / name)
    for name in ("tokens.safetensors", "store.safetensors"):
        build_token_store(read_documents([folder / "corpus"]), tokenizer, folder / name)

    for name, (model_class, labels) in MODELS.items():
        task = name.removeprefix("my-") if name.removeprefix("my-") in TASKS else None
        tiny_model(folder / name, model_class, labels=labels, task=task, words=tokenizer, **SIZE)
        if model_class is not BertForPreTraining:  # every recipe ends with a card
            write_card(folder / name, CardContent(name=Path(name).name))

    curve = [{"step": step, "loss": 10 / step, "learning_rate": 1e-4} for step in (1, 2, 3)]
    for name in ("pretrained", "classifier"):
        (folder / "demo_output" / name / "trainer_state.json").write_text(json.dumps({"log_history": curve}))

    google = folder / "google" / "uncased_L-12_H-768_A-12"
    export_google_checkpoint(folder / "my-bert", google / "bert_model.ckpt")
    shutil.make_archive(str(folder / google.name), "zip", google.parent, google.name)
    mnli = tmp_path_factory.mktemp("of_google") / "model"
    classes = ("contradiction", "entailment", "neutral")
    tiny_model(mnli, MyBertForSequenceClassification, labels=classes, words=tokenizer, **SIZE)
    export_google_checkpoint(mnli, folder / "my_mnli_checkpoint" / "model.ckpt-36815")
    return folder
