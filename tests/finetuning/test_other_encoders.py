"""Folders of other encoders of transformers: commands answer as transformers' own pipelines and models do."""

import json
import math
import shutil
from collections import Counter

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import mybert
from mybert.cli import main
from mybert.encoders.fast_linear import FastLinear
from mybert.files.checkpoint import Checkpoint
from mybert.files.loading import longest_sequence
from mybert.files.machine import cpu_features
from mybert.finetuning import FeaturesArguments, extract_features
from mybert.finetuning.prediction.predictor import Predictor
from mybert.finetuning.tasks.registry import task_of_model
from mybert.studies import engines

TEXTS = [
    "The cat sat on the mat.",
    "Zoé lives in Berlin, doesn't she?",
    "A dog's house is in 北京 today (or not).",
    "An unbelievably happy dog ate fish and bread .",
    "Ada Lovelace lived in London .",
    "naïve café 🙂 résumé",
    "the cats and dogs are walking",
    "sad; very sad indeed!!",
]
LONG = " ".join(TEXTS[:6])
PAIRS = list(zip(TEXTS[:4], TEXTS[4:], strict=True))
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
POSITIONS = 64

BERT_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
FAIRSEQ_TOKENS = ["<s>", "<pad>", "</s>", "<unk>"]


def byte_pairs():
    """A byte-level vocabulary and its merges, learned from the texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=340, show_progress=False, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(TEXTS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].__getitem__), list(map(tuple, model["merges"]))


def roberta():
    pieces, merges = byte_pairs()
    vocabulary = {piece: number for number, piece in enumerate([*FAIRSEQ_TOKENS, *pieces, "<mask>"])}
    mask = AddedToken("<mask>", lstrip=True, special=True)
    return transformers.RobertaTokenizer(vocab=vocabulary, merges=merges, mask_token=mask)


def modernbert():
    """As the published one: no space before the first word, offsets with the space before a word."""
    pieces, merges = byte_pairs()
    backend = Tokenizer(models.BPE(vocab={piece: number for number, piece in enumerate(pieces)}, merges=merges))
    backend.normalizer, backend.decoder = normalizers.NFC(), decoders.ByteLevel()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    names = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    backend.add_special_tokens([*names.values(), AddedToken("[MASK]", lstrip=True, special=True)])
    ends = [(token, backend.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    template = {"single": "[CLS]:0 $A:0 [SEP]:0", "pair": "[CLS]:0 $A:0 [SEP]:0 $B:0 [SEP]:0"}
    backend.post_processor = processors.TemplateProcessing(**template, special_tokens=ends)
    names |= {"mask_token": "[MASK]", "model_input_names": ["input_ids", "attention_mask"]}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **names)


def unigrams(special):
    """Pieces as SentencePiece has them, with their log-probabilities: characters, begins of words, frequent words."""
    words = [f"▁{word.strip('.,!?')}" for text in TEXTS for word in text.split()]
    frequent = Counter({word: count for word, count in Counter(words).items() if count > 1})
    pieces = frequent + Counter(word[:2] for word in words) + Counter("▁".join(TEXTS))
    return [(token, 0.0) for token in special] + [(p, math.log(n / pieces.total())) for p, n in pieces.items()]


def xlm_roberta():
    return transformers.XLMRobertaTokenizer(vocab=[*unigrams(FAIRSEQ_TOKENS), ("<mask>", 0.0)])


def camembert():
    special = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>"]
    return transformers.CamembertTokenizer(vocab=[*unigrams(special), ("<mask>", 0.0)])


def word_pieces(special):
    learned = mybert.train_wordpiece(texts=TEXTS, vocab_size=150, vocab_layout="compact").get_vocab()
    return {p: number for number, p in enumerate([*special, *sorted(learned.keys() - set(BERT_TOKENS))])}


SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
OF_FAIRSEQ = {"max_position_embeddings": POSITIONS + 2, "type_vocab_size": 1}
ENCODERS = {  # by model type: tokenizer, begin of the classes' names, fields of the configuration
    "roberta": (roberta, "Roberta", OF_FAIRSEQ),
    "xlm-roberta": (xlm_roberta, "XLMRoberta", OF_FAIRSEQ),
    "camembert": (camembert, "Camembert", OF_FAIRSEQ),
    "electra": (
        lambda: transformers.ElectraTokenizer(vocab=word_pieces(BERT_TOKENS)),
        "Electra",
        {"embedding_size": 8},
    ),
    "distilbert": (lambda: transformers.DistilBertTokenizer(vocab=word_pieces(BERT_TOKENS)), "DistilBert", {}),
    "modernbert": (
        modernbert,
        "ModernBert",
        {"local_attention": 8, "global_attn_every_n_layers": 2, "num_hidden_layers": 4},
    ),
    "mpnet": (
        lambda: transformers.MPNetTokenizer(vocab=word_pieces([*FAIRSEQ_TOKENS, "[UNK]", "<mask>"])),
        "MPNet",
        {"max_position_embeddings": POSITIONS + 2},
    ),
}
every_type = pytest.mark.parametrize("model_type", ENCODERS)


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """The folder of a model of a type with a head, and classes of these names; each is made once."""
    root, made, tokenizers = tmp_path_factory.mktemp("encoders"), {}, {}

    def make(model_type, head, labels=(), **fields):
        key = (model_type, head, *labels, *fields.items())
        if key not in made:
            make_tokenizer, prefix, own = ENCODERS[model_type]
            tokenizer = tokenizers.setdefault(model_type, make_tokenizer())
            tokenizer.model_max_length = POSITIONS
            names = ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
            ids = {name: getattr(tokenizer, name) for name in names}
            if labels:
                ids |= {"id2label": dict(enumerate(labels)), "label2id": {name: i for i, name in enumerate(labels)}}
            model_class = getattr(transformers, f"{prefix}{head}")
            sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": POSITIONS, "initializer_range": 0.5}
            torch.manual_seed(0)
            model = model_class(model_class.config_class(**SIZES | sizes | ids | own | fields))
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.ndim == 1:  # biases, which begin as 0
                        parameter.add_(0.1 * torch.randn_like(parameter))
            folder = made[key] = root / str(len(made))
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        return made[key]

    return make


def pipeline(task, folder, **options):
    return transformers.pipeline(task, model=str(folder), device="cpu", **options)


def stock(folder, auto_class):
    model = auto_class.from_pretrained(folder, dtype=torch.float32).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


@every_type
def test_predict_classes_of_texts_and_pairs_equal_those_of_the_pipeline(folder_of, model_type):
    folder = folder_of(model_type, "ForSequenceClassification", ["bad", "good", "so so"])
    classify = pipeline("text-classification", folder)
    for inputs, data in (
        ([*TEXTS, LONG], [*TEXTS, LONG]),
        ([{"text": first, "text_pair": second} for first, second in PAIRS], PAIRS),
    ):
        expected = classify(inputs, truncation=True)
        found = mybert.predict(folder, data, use_cpu=True)
        assert [row["label"] for row in found] == [row["label"] for row in expected]
        assert [row["score"] for row in found] == pytest.approx([row["score"] for row in expected], abs=1e-5)
    assert len({row["score"] for row in found}) > 1
    labeled = [{"text": text, "label": row["label"]} for text, row in zip(TEXTS, classify(TEXTS), strict=True)]
    assert mybert.evaluate(folder, labeled, use_cpu=True)["accuracy"] == 1.0


@every_type
def test_predict_labels_and_numbers_equal_those_of_the_pipeline(folder_of, model_type):
    folder = folder_of(
        model_type, "ForSequenceClassification", ["a", "b", "c"], problem_type="multi_label_classification"
    )
    found = mybert.predict(folder, TEXTS, probabilities=True, use_cpu=True)
    for row, expected in zip(found, pipeline("text-classification", folder, top_k=None)(TEXTS), strict=True):
        scores = {answer["label"]: answer["score"] for answer in expected}
        assert {name: row[f"probability_{name}"] for name in scores} == pytest.approx(scores, abs=1e-5)
        assert set(row["label"]) == {name for name, score in scores.items() if score > 0.5}
    folder = folder_of(model_type, "ForSequenceClassification", ["value"], problem_type="regression")
    expected = pipeline("text-classification", folder, function_to_apply="none")(TEXTS)
    found = mybert.predict(folder, TEXTS, use_cpu=True)
    assert [row["score"] for row in found] == pytest.approx([row["score"] for row in expected], abs=1e-5)


@every_type
def test_predict_tags_of_texts_equal_those_of_the_pipeline(folder_of, model_type):
    """A word has the tag of the first token that begins in it, or else of the token that it is in."""
    folder = folder_of(model_type, "ForTokenClassification", TAGS)
    found = mybert.predict(folder, TEXTS, use_cpu=True)
    expected = pipeline("token-classification", folder, ignore_labels=[])(TEXTS)
    for text, row, tokens in zip(TEXTS, found, expected, strict=True):
        starts = [token["end"] - len(text[token["start"] : token["end"]].lstrip()) for token in tokens]
        end = 0
        for word, tag, score in zip(row["words"], row["label"], row["score"], strict=True):
            start = text.index(word, end)
            end = start + len(word)
            inside = [token for token, first in zip(tokens, starts, strict=True) if start <= first < end]
            token = inside[0] if inside else next(token for token in tokens if token["end"] > start)
            assert (tag, score) == (token["entity"], pytest.approx(token["score"], abs=1e-5))
        assert "".join(row["words"]) == "".join(text.split())


@every_type
def test_predict_entities_equal_those_of_the_pipeline(folder_of, model_type):
    """Where words are between spaces, and no token is a space: the pipeline has another rule for other words."""
    folder = folder_of(model_type, "ForTokenClassification", TAGS)
    find = pipeline("token-classification", folder, aggregation_strategy="first")
    texts = ["Ada Lovelace lived in London", "the cats and dogs", "the mat is in Berlin", "a happy dog ate the fish"]
    offsets = find.tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    texts = [
        text for text, spans in zip(texts, offsets, strict=True) if all(text[slice(*span)].strip() for span in spans)
    ]
    assert len(texts) > 1
    for text, row, expected in zip(texts, mybert.predict(folder, texts, use_cpu=True), find(texts), strict=True):
        entities = [(e["label"], e["text"], pytest.approx(e["score"], abs=1e-5)) for e in row["entities"]]
        spans = [text[entity["start"] : entity["end"]].strip() for entity in expected]
        assert [(e["entity_group"], span, e["score"]) for e, span in zip(expected, spans, strict=True)] == entities


@every_type
def test_predict_tags_of_words_equal_those_of_their_text(folder_of, model_type):
    folder = folder_of(model_type, "ForTokenClassification", TAGS)
    texts = ["Ada Lovelace lived in London", "the dogs are walking"]
    of_texts = mybert.predict(folder, texts, use_cpu=True)
    of_words = mybert.predict(folder, [text.split() for text in texts], use_cpu=True)
    for text, words in zip(of_texts, of_words, strict=True):
        assert words["label"] == text["label"]
        assert words["score"] == pytest.approx(text["score"], abs=1e-5)
    tags = [{"tokens": text.split(), "tags": row["label"]} for text, row in zip(texts, of_texts, strict=True)]
    assert mybert.evaluate(folder, tags, task="tagging", use_cpu=True)["accuracy"] == 1.0


def reference_answer(folder, question, context, stride, longest=30):
    """The best span of all windows, one after the other, by the tokenizer's own overflow."""
    model, tokenizer = stock(folder, transformers.AutoModelForQuestionAnswering)
    options = {"truncation": "only_second", "max_length": POSITIONS, "stride": stride}
    batch = tokenizer(question, context, return_overflowing_tokens=True, return_offsets_mapping=True, **options)
    best = (-math.inf, "")
    for number in range(len(batch["input_ids"])):
        inputs = {name: torch.tensor([batch[name][number]]) for name in tokenizer.model_input_names}
        with torch.no_grad():
            outputs = model(**inputs)
        places = [place for place, side in enumerate(batch.sequence_ids(number)) if side == 1]
        for first in places:
            for last in range(first, min(first + longest, places[-1] + 1)):
                score = outputs.start_logits[0, first].item() + outputs.end_logits[0, last].item()
                span = batch["offset_mapping"][number][first][0], batch["offset_mapping"][number][last][1]
                best = max(best, (score, context[slice(*span)].strip()))
    return best[1]


@every_type
def test_predict_answers_equal_those_of_every_span(folder_of, model_type):
    folder = folder_of(model_type, "ForQuestionAnswering")
    contexts = [TEXTS[0], TEXTS[2], LONG]
    data = [{"question": "Who is happy?", "context": context} for context in contexts]
    found = mybert.predict(folder, data, doc_stride=8, use_cpu=True)
    for context, row in zip(contexts, found, strict=True):
        assert row["answer"] == reference_answer(folder, "Who is happy?", context, 8)
        assert row["answer"] == context[row["start"] : row["end"]]


@every_type
def test_predict_masks_equal_those_of_the_pipeline(folder_of, model_type):
    folder = folder_of(model_type, "ForMaskedLM")
    fill = pipeline("fill-mask", folder, top_k=4)
    mask = fill.tokenizer.mask_token
    texts = [f"The {mask} sat on the {mask}.", f"a {mask} dog", f"{mask} cat"]
    for text, row in zip(texts, mybert.predict(folder, texts, top_k=4, use_cpu=True), strict=True):
        masks = fill(text)
        masks = masks if isinstance(masks[0], list) else [masks]
        for listed, best in zip(row["best"], masks, strict=True):
            assert [item["label"] for item in listed] == [item["token_str"].strip() for item in best]
            assert [item["score"] for item in listed] == pytest.approx([item["score"] for item in best], abs=1e-5)
        if text == texts[1]:  # the pipeline decodes such a text as a whole
            ids = fill.tokenizer(text, add_special_tokens=False)["input_ids"]
            ids = [masks[0][0]["token"] if token == fill.tokenizer.mask_token_id else token for token in ids]
            decoded = fill.tokenizer.decode(ids)
            assert row["filled"].replace(" dog", "dog") == decoded.replace(" dog", "dog")


@every_type
@pytest.mark.parametrize("method", ["original", "within_word_l2r"])
def test_score_equals_the_sum_of_each_masked_token(folder_of, model_type, method):
    folder = folder_of(model_type, "ForMaskedLM")
    model, tokenizer = stock(folder, transformers.AutoModelForMaskedLM)
    texts = [TEXTS[0], TEXTS[5]]
    for text, row in zip(texts, mybert.score(folder, texts, method=method, use_cpu=True), strict=True):
        encoded = tokenizer(text)
        words, total = encoded.word_ids(), 0.0
        for place, word in enumerate(words):
            if word is None:
                continue
            later = [other for other in range(place, len(words)) if words[other] == word]
            ids = torch.tensor([encoded["input_ids"]])
            ids[0, later if method == "within_word_l2r" else [place]] = tokenizer.mask_token_id
            with torch.no_grad():
                logits = model(input_ids=ids).logits[0, place]
            total += logits.log_softmax(-1)[encoded["input_ids"][place]].item()
        assert row["num_tokens"] == len(words) - words.count(None)
        assert row["score"] == pytest.approx(total, abs=1e-4)


@every_type
def test_score_computes_logits_of_masked_tokens_only(folder_of, monkeypatch, model_type):
    folder, shapes = folder_of(model_type, "ForMaskedLM"), []
    product = torch.nn.functional.linear
    size = stock(folder, transformers.AutoModelForMaskedLM)[0].config.vocab_size

    def record(states, weight, bias=None):
        if len(weight) == size:
            shapes.append(states.shape)
        return product(states, weight, bias)

    monkeypatch.setattr(torch.nn.functional, "linear", record)
    monkeypatch.setattr(FastLinear, "forward", torch.nn.Linear.forward)
    (row,) = mybert.score(folder, [TEXTS[0]], use_cpu=True)
    assert [math.prod(shape[:-1]) for shape in shapes] == [row["num_tokens"]]


@every_type
@pytest.mark.parametrize("head", ["Model", "ForMaskedLM"])
def test_features_equal_the_states_of_the_model(folder_of, tmp_path, model_type, head):
    """Whatever head the folder has."""
    folder = folder_of(model_type, head)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))

    def features(**options):
        output = tmp_path / "features.safetensors"
        files = {"text": [str(tmp_path / "texts.txt")], "output": str(output)}
        extract_features(FeaturesArguments(model=str(folder), **files, **options))
        return load_file(output)

    model, tokenizer = stock(folder, transformers.AutoModel)
    with torch.no_grad():
        outputs = [
            model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states for text in TEXTS
        ]
    pool = {"mean": lambda states: states.mean(0), "cls": lambda states: states[0], "max": lambda s: s.max(0).values}
    for pooling, function in pool.items():
        found = features(pooling=pooling, features="last", overwrite=True, use_cpu=True)
        expected = np.stack([function(states[-1][0]).numpy() for states in outputs])
        np.testing.assert_allclose(found["features"], expected, atol=1e-5)
    found = features(layer=1, overwrite=True, use_cpu=True)
    np.testing.assert_allclose(found["features"], np.concatenate([s[1][0].numpy() for s in outputs]), atol=1e-5)
    offsets = tokenizer(TEXTS[1], return_offsets_mapping=True)["offset_mapping"]
    start, end = found["text_starts"][1:3]
    assert found["offsets"][start:end].tolist() == [list(pair) for pair in offsets]


@every_type
def test_bench_engines_agree_with_the_pipeline(
    folder_of, run_processes_here, monkeypatch, tmp_path, capsys, model_type
):
    run_processes_here(engines)
    monkeypatch.setattr(engines, "bfloat16_features", lambda: ())
    monkeypatch.setattr(engines, "_converted", lambda *_: {})
    folder = folder_of(model_type, "ForSequenceClassification", ["bad", "good", "so so"])
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    words = ["bench", "--model", folder, "--data", tmp_path / "texts.txt", "--repeats", "1", "--threads", "1"]
    assert main([str(word) for word in words]) == 0
    table = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    rows = {name.strip(): [cell.strip() for cell in cells] for name, *cells in table}
    pipeline = "transformers' pipeline, batches of 32"
    assert list(rows)[-3:] == [pipeline, f"{pipeline}, sorted", "PyTorch"]
    for *_, equal, difference in list(rows.values())[-3:]:
        assert equal == "100.0%" and float(difference) < 1e-5


@every_type
def test_predictions_are_sped_up(folder_of, model_type):
    folder = folder_of(model_type, "ForSequenceClassification", ["bad", "good", "so so"])
    model = Predictor(folder, use_cpu=True).load().model
    assert any(isinstance(module, FastLinear) for module in model.modules())


@every_type
def test_longest_text_is_that_of_the_positions(folder_of, model_type):
    folder = folder_of(model_type, "ForSequenceClassification", ["bad", "good", "so so"])
    assert longest_sequence(Checkpoint(folder).config) == POSITIONS
    _, task = task_of_model(Checkpoint(folder))
    assert task.max_length == POSITIONS


def test_longest_text_of_a_model_with_8192_positions_is_not_truncated(folder_of):
    folder = folder_of("modernbert", "ForSequenceClassification", ["a", "b"], max_position_embeddings=8192)
    settings = folder / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"model_max_length": 8192}))
    assert task_of_model(Checkpoint(folder))[1].max_length == 8192


def test_predict_by_an_electra_discriminator_names_what_it_can_do(folder_of):
    folder = folder_of("electra", "ForPreTraining")
    with pytest.raises(ValueError, match=r"is ElectraForPreTraining, without a head for a task; .* features") as error:
        mybert.predict(folder, TEXTS)
    assert "fill_mask" not in str(error.value)
    with pytest.raises(ValueError, match=r"has no head for this task \(it is a ElectraForPreTraining\)"):
        mybert.score(folder, TEXTS)


@pytest.mark.parametrize("model_type", ["gpt2", "t5"])
@pytest.mark.parametrize(
    "command",
    [
        "predict MODEL TEXTS",
        "evaluate ROWS --model MODEL",
        "features TEXTS --model MODEL --output OUT.jsonl",
        "score MODEL TEXTS",
        "bench --model MODEL --data TEXTS",
        "convert onnx MODEL OUT",
        "convert openvino MODEL OUT",
        "finetune --model MODEL --train_file ROWS --output_dir OUT",
    ],
    ids=lambda command: command.split(" MODEL")[0].split(" --")[0],
)
def test_commands_with_a_generator_name_the_encoders_that_they_take(tmp_path, capsys, model_type, command):
    model = tmp_path / "model"
    transformers.AutoConfig.for_model(model_type).save_pretrained(model)
    (model / "model.safetensors").write_bytes(b"not read")
    (tmp_path / "texts.txt").write_text("a cat\n")
    (tmp_path / "rows.csv").write_text("text,label\na cat,1\na dog,0\n")
    places = {"MODEL": model, "TEXTS": tmp_path / "texts.txt", "ROWS": tmp_path / "rows.csv"}
    places |= {"OUT": tmp_path / "out", "OUT.jsonl": tmp_path / "out.jsonl"}
    assert main([str(places.get(word, word)) for word in command.split()]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"{model} is of type {model_type}, which generates text; expected an encoder (bert, roberta," in message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "rows.csv", "texts.txt"]


HEADS = {
    "ForSequenceClassification": ["a", "b", "c"],
    "ForTokenClassification": TAGS,
    "ForQuestionAnswering": (),
    "ForMaskedLM": (),
}
slow = pytest.mark.slow
QUICK = {("roberta", "ForSequenceClassification"), ("modernbert", "ForTokenClassification")}


def rounded(answer):
    """An answer whose numbers may differ by rounding."""
    if isinstance(answer, dict):
        return {name: rounded(value) for name, value in answer.items()}
    if isinstance(answer, list):
        return list(map(rounded, answer))
    return pytest.approx(answer, abs=1e-5) if isinstance(answer, float) else answer


@pytest.mark.parametrize(
    ("model_type", "head"),
    [
        pytest.param(model_type, head, marks=[] if (model_type, head) in QUICK else slow)
        for model_type in ENCODERS
        for head in HEADS
    ],
)
def test_convert_openvino_answers_as_the_model(folder_of, tmp_path, model_type, head):
    pytest.importorskip("openvino", reason="needs the extra 'openvino'")
    from mybert.conversion import export_openvino

    folder = folder_of(model_type, head, HEADS[head])
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    report = export_openvino(folder, tmp_path / "graph", data=[str(tmp_path / "texts.txt")])
    assert report.largest_difference < 1e-4 and report.texts == len(TEXTS)
    assert json.loads((tmp_path / "graph" / "config.json").read_text())["model_type"] == model_type
    data = [*TEXTS, LONG]
    if head == "ForQuestionAnswering":
        data = [{"question": "Who is happy?", "context": text} for text in data]
    elif head == "ForMaskedLM":
        mask = transformers.AutoTokenizer.from_pretrained(folder).mask_token
        data = [f"{mask} {text} {mask}" for text in TEXTS]
    expected = mybert.predict(folder, data, use_cpu=True)
    assert rounded(mybert.predict(tmp_path / "graph", data, engine="openvino")) == expected


@slow
@every_type
def test_convert_openvino_gives_vectors(folder_of, tmp_path, model_type):
    pytest.importorskip("openvino", reason="needs the extra 'openvino'")
    from mybert.conversion import export_openvino

    folder = folder_of(model_type, "Model")
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS))
    export_openvino(folder, tmp_path / "graph")
    found = []
    for model in (folder, tmp_path / "graph"):
        output = str(tmp_path / f"{model.name}.safetensors")
        arguments = {"text": [str(texts)], "output": output, "pooling": "mean", "use_cpu": True}
        extract_features(FeaturesArguments(model=str(model), **arguments))
        found.append(load_file(output)["features"])
    np.testing.assert_allclose(found[1], found[0], atol=1e-5)


@slow
@pytest.mark.skipif(not any("VNNI" in name for name in cpu_features()), reason="this CPU has no int8 dot products")
def test_convert_openvino_of_another_encoder_to_int8(folder_of, tmp_path):
    pytest.importorskip("nncf", reason="needs the extra 'openvino'")
    from mybert.conversion import export_openvino

    folder = folder_of("roberta", "ForSequenceClassification", ["a", "b", "c"])
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    export_openvino(folder, tmp_path / "int8", dtype="int8", data=[str(tmp_path / "texts.txt")])
    expected = mybert.predict(folder, TEXTS, use_cpu=True)
    found = mybert.predict(tmp_path / "int8", TEXTS, dtype="int8")
    assert [row["score"] for row in found] == pytest.approx([row["score"] for row in expected], abs=0.3)


@slow
@pytest.mark.parametrize("head", [*HEADS, "Model"])
@every_type
def test_convert_onnx_computes_as_the_model(folder_of, tmp_path, model_type, head):
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra 'onnx'")
    pytest.importorskip("onnxscript", reason="needs the extra 'onnx'")
    from mybert.conversion import export_onnx

    folder = folder_of(model_type, head, HEADS.get(head, ()))
    report = export_onnx(folder, tmp_path / "onnx")
    assert report.largest_difference < 1e-4
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "model.onnx", providers=["CPUExecutionProvider"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "onnx")
    batch = tokenizer(TEXTS, padding=True, truncation=True, return_tensors="np")
    outputs = session.run(None, {name: values.astype(np.int64) for name, values in batch.items()})
    assert all(np.isfinite(values).all() for values in outputs)


def test_convert_openvino_of_other_heads_names_those_that_it_takes(folder_of, tmp_path):
    pytest.importorskip("openvino", reason="needs the extra 'openvino'")
    folder = folder_of("electra", "ForPreTraining")
    assert main(["convert", "openvino", str(folder), str(tmp_path / "graph")]) == 2
    assert not (tmp_path / "graph").exists()


def test_predict_of_a_folder_without_tokenizer_json_reads_its_vocabulary(folder_of, tmp_path):
    """As roberta-base was published at first: vocab.json and merges.txt."""
    source = folder_of("roberta", "ForSequenceClassification", ["bad", "good", "so so"])
    folder = shutil.copytree(source, tmp_path / "model")
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(map(" ".join, model["merges"])))
    assert rounded(mybert.predict(folder, TEXTS, use_cpu=True)) == mybert.predict(source, TEXTS, use_cpu=True)
    names = {path.rpartition("/")[2] for path in Checkpoint(folder).deciding_files}
    assert names >= {"vocab.json", "merges.txt"}
