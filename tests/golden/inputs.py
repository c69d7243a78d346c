"""Inputs of the calls: tiny models with weights drawn here, text and tables, and folders of an earlier version."""

import json
import os
import random
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

EARLIER_VERSION = Path(__file__).resolve().parents[1] / "fixtures" / "earlier_version" / "folders.tar.xz"
WORDS = (
    "the cat dog bird fish sat ran slept ate sang on under near with a mat tree bread house river and but it was is "
    "happy sad very today yesterday old young red blue small large they we she he saw found"
).split()
NAMES = "Ada Lovelace London Paris Grace Hopper".split()
ENDINGS = ["##s", "##ing", "##ed", "##ly"]
SIZE: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 32}
SIZE |= {"max_position_embeddings": 48}
GOOGLE_SIZE = SIZE | {"hidden_act": "gelu_pytorch_tanh"}
SMALL_SIZE = SIZE | {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def write_inputs() -> None:
    """Write all inputs to the current folder."""
    chooser = random.Random(1)
    documents = [[_sentence(chooser, chooser.randint(4, 12)) for _ in range(chooser.randint(3, 8))] for _ in range(60)]
    sentences = [sentence for document in documents for sentence in document]
    _write("text.txt", "\n\n".join("\n".join(document) for document in documents))
    _write("more.txt", "\n\n".join("\n".join(document[::-1]) for document in documents[:25]))
    _write("wrapped.txt", "\n\n".join(_wrapped(" ".join(sentences[row : row + 12])) for row in range(0, 120, 12)))
    _write("pages.txt", "\n".join(f"<p>{text} &amp; {text}</p>" for text in sentences[:60]))
    noise = ["=== == === ===", "αβγ δεζ.", "a b c d e f g h i j", *sentences[:3], *sentences[:3]]
    _write("noise.txt", "\n\n".join("\n".join(noise + document) for document in documents[:20]))
    korean = [
        "고양이가 매트 위에서 잔다.",
        "개가 강 옆에서 뛴다.",
        "Ünïcödé naïve café!",
        "日本語のテキスト。",
        "x\u00a0y\u200bz 😀 don't",
    ]
    _write("languages.txt", "\n".join(korean * 6))
    _write("masks.txt", "\n".join(text.replace(" the ", " [MASK] ") for text in sentences if " the " in text))
    _write("sentences.txt", "\n".join([*sentences[:12], "", "un known wörds", "the cat ||| a dog", "x" * 30]))
    _write_tables(chooser, sentences)
    _write_tags(chooser, documents)
    _write_questions(chooser, sentences)
    pairs = [{"good": text, "bad": " ".join(text.split()[::-1])} for text in sentences[:6]]
    _write("pairs.jsonl", "\n".join(map(json.dumps, pairs)))
    grouped = [pair | {"UID": f"p{row % 3}", "term": "ab"[row % 3 > 1]} for row, pair in enumerate(pairs)]
    _write("groups.jsonl", "\n".join(map(json.dumps, grouped)))
    _write("broken.yaml", "max_length: [1\nseed")
    Path("latin.txt").write_bytes("caf\u00e9 au lait\n".encode("latin-1") * 5)
    _write("lora.json", json.dumps({"peft_type": "LORA", "r": 2, "target_modules": ["query"]}))
    sst2 = "{task: sst2, data_dir: sst2}"
    files = {"train_file": "../inputs/rows.tsv", "validation_file": ["../inputs/dev.tsv"]}
    training = {"model": "../inputs/pretrained", "max_steps": 4, "max_length": 20, "use_cpu": True, "lora": True}
    _write("training.yaml", json.dumps(files | training | {"learning_rate": 1e-2}))
    _write("suite.yaml", f"title: Tiny\ntasks: {{first: {sst2}, second: {{task: stsb, data_dir: stsb}}}}\n")
    _write_models()
    if EARLIER_VERSION.exists():
        unpack_earlier_version(Path())
    for folder, _, names in os.walk("."):
        for name in names:  # so that records of files have the same times
            os.utime(Path(folder, name), (1.6e9, 1.6e9))


def unpack_earlier_version(folder: Path) -> None:
    """Unpack what the version before the rewrites wrote: `tuned/TASK` and `interrupted/`, see README there."""
    with tarfile.open(EARLIER_VERSION) as archive:
        archive.extractall(folder, filter="data")


def _sentence(chooser: random.Random, length: int) -> str:
    words = [chooser.choice(WORDS) + (chooser.choice(("s", "ing", "")) if chooser.random() < 0.2 else "")]
    words += [chooser.choice(WORDS) for _ in range(length - 1)]
    return f"{' '.join(words).capitalize()}."


def _wrapped(text: str) -> str:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) > 64:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return "\n".join(lines)


def _write(name: str, text: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text + "\n", encoding="utf-8")


def _write_table(name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], separator: str = "\t") -> None:
    _write(name, "\n".join(separator.join(map(str, row)) for row in ([columns] if columns else []) + [*rows]))


def _write_tables(chooser: random.Random, sentences: list[str]) -> None:
    columns = "text other third label score labels a b c".split()
    rows: list[list[Any]] = []
    for row in range(32):
        texts = [sentences[row], sentences[row + 40], sentences[row + 80]]
        labels = ("a", "b", "a;b", "a;c")[row % 4]
        length = len(texts[0].split())
        name = "bad" if length < 7 else "good" if length < 10 else "mixed"
        rows.append([*texts, name, round(chooser.uniform(0, 5), 2), labels, row % 2, int(row % 3 == 0), 1 - row % 2])
    rows[3][0] = " ".join(sentences[100:106])  # longer than max_length
    _write_table("rows.tsv", columns, rows)
    _write_table(
        "rows.csv", columns, [[f'"{cell}"' if " " in str(cell) else cell for cell in row] for row in rows], ","
    )
    _write("rows.jsonl", "\n".join(json.dumps(dict(zip(columns, row, strict=True))) for row in rows))
    _write_table("dev.tsv", columns, rows[20:])
    _write_table("texts.tsv", ["id", "text", "other"], [[row, *cells[:2]] for row, cells in enumerate(rows[:10])])
    _write_table("holes.tsv", columns, [["", *rows[0][1:]], *rows[1:12]])
    _write_table("many.tsv", ["text"], [[f"{sentences[row % 200]} {WORDS[row % 40]}"] for row in range(1500)])
    _write_table("choices.tsv", ["text", "other", "third", "label"], [[*row[:3], row[6]] for row in rows])
    pairs = [[row[0], row[1], ("0", "1")[index % 2]] for index, row in enumerate(rows)]
    _write_table("pairs.tsv", ["text", "text_pair", "label"], pairs)
    of_swag = [
        [row[0], row[1], row[2], row[0][:20], row[1][:20], row[2][:20], index % 4] for index, row in enumerate(rows)
    ]
    endings = ["sent1", "sent2", *(f"ending{index}" for index in range(4)), "label"]
    for name in ("train", "val", "test"):
        _write_table(f"swag/{name}.csv", endings, of_swag[: 24 if name == "train" else 8], ",")
    for name, size in (("train", 24), ("dev", 12), ("test", 8)):
        part = rows[-size:]
        _write_table(f"sst2/{name}.tsv", ["sentence", "label"], [[row[0], row[6]] for row in part])
        _write_table(f"cola/{name}.tsv", [], [["x", row[6], "*", row[0]] for row in part])
        quality = [[row[6], index, index, row[0], row[1]] for index, row in enumerate(part)]
        _write_table(f"mrpc/{name}.tsv", ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"], quality)
        scores = [[index, row[0], row[1], row[4]] for index, row in enumerate(part)]
        _write_table(f"stsb/{name}.tsv", ["index", "sentence1", "sentence2", "score"], scores)
    classes = ("contradiction", "entailment", "neutral")
    verdicts = [[index, row[0], row[1], classes[index % 3]] for index, row in enumerate(rows)]
    for name in ("train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched"):
        _write_table(f"mnli/{name}.tsv", ["index", "sentence1", "sentence2", "gold_label"], verdicts)


def _write_tags(chooser: random.Random, documents: list[list[str]]) -> None:
    lines = []
    for document in documents[:5]:
        lines += ["-DOCSTART- -X- O O", ""]
        for text in document:
            for word in text[:-1].lower().split():
                if chooser.random() < 0.2:
                    lines += ["Ada X X B-PER", "Lovelace X X I-PER"]
                lines.append(f"{word} X X {'B-LOC' if word in ('house', 'river') else 'O'}")
            lines += [". X X O", ""]
    _write("tags.conll", "\n".join(lines))
    _write("words.txt", "Ada Lovelace sat near the river .\nThe cat saw London yesterday.")


def _write_questions(chooser: random.Random, sentences: list[str]) -> None:
    for name, version in (("questions_v1", "1.1"), ("questions_v2", "2.0")):
        paragraphs = []
        for index in range(8):
            context = " ".join(sentences[6 * index : 6 * index + (2 if index % 2 else 6)])
            word = chooser.choice(context.split()).strip(".")
            answers = [{"text": word, "answer_start": context.index(word)}]
            question: dict[str, Any] = {
                "id": f"q{index}",
                "question": f"what was the {WORDS[index]}",
                "answers": answers,
            }
            if version == "2.0":
                question |= {"is_impossible": index % 3 == 0}
                question |= {"answers": []} if index % 3 == 0 else {}
            paragraphs.append({"context": context, "qas": [question]})
        _write(f"{name}.json", json.dumps({"version": version, "data": [{"title": "t", "paragraphs": paragraphs}]}))


def _write_models() -> None:
    from transformers import BertConfig, BertForPreTraining

    import mybert
    from mybert import MyBertConfig, MyBertForPreTraining, MyBertTokenizer

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "[unused1]"]
    words = [".", ",", "?", *WORDS, *(name.lower() for name in NAMES), *ENDINGS]
    letters = [*"bcdefghijklmnopqrstuvwxyz", *(f"##{letter}" for letter in "abcdefghijklmnopqrtuvwxyz")]
    for name, model_class, config_class, vocabulary, size in (
        ("pretrained", MyBertForPreTraining, MyBertConfig, [*special, *letters, *words], SIZE),
        ("bert", BertForPreTraining, BertConfig, [*special, *letters, *words], SIZE),
        ("like_google", MyBertForPreTraining, MyBertConfig, [*special, *letters, *words], GOOGLE_SIZE),
        ("small", MyBertForPreTraining, MyBertConfig, [*special, *words], SMALL_SIZE),
    ):
        model = model_class(config_class(**size, vocab_size=len(vocabulary)))
        draw_weights(model)
        model.save_pretrained(name)
        MyBertTokenizer(vocab=vocabulary).save_pretrained(name)
        if name == "pretrained":
            tokenizer = MyBertTokenizer(vocab=vocabulary)
            tokenizer.save_pretrained("tokenizer")
    for name, head, labels in (
        ("classification", mybert.MyBertForSequenceClassification, ["bad", "good", "mixed"]),
        ("regression", mybert.MyBertForSequenceClassification, ["value"]),
        ("ner", mybert.MyBertForTokenClassification, ["O", "B-PER", "I-PER", "B-LOC"]),
        ("squad", mybert.MyBertForQuestionAnswering, ["LABEL_0", "LABEL_1"]),
        ("multiple_choice", mybert.MyBertForMultipleChoice, ["LABEL_0", "LABEL_1"]),
    ):
        size = {**SIZE, "vocab_size": len(tokenizer), "id2label": dict(enumerate(labels))}
        model = head(MyBertConfig(**size, label2id={label: index for index, label in enumerate(labels)}))
        draw_weights(model)
        model.save_pretrained(f"random/{name}")
        tokenizer.save_pretrained(f"random/{name}")


def draw_weights(model: Any, std: float = 0.3) -> None:
    """Draw all weights in the order of their names, so that they do not depend on how a model draws its own."""
    import torch

    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            offset = 1.0 if name.endswith("LayerNorm.weight") else 0.0
            parameter.copy_(offset + std * torch.randn(parameter.shape, generator=generator))
