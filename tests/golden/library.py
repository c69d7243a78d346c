"""Calls of the library's public names, whose results are written to files."""

import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from inputs import draw_weights
from record import Call, public_values

TINY = {"vocab_size": 61, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
TINY |= {"max_position_embeddings": 24}
HEADS = (
    "Model ForPreTraining ForMaskedLM ForNextSentencePrediction ForSequenceClassification ForMultipleChoice "
    "ForTokenClassification ForQuestionAnswering"
).split()
ROWS, CHOICES, LENGTH = 4, 2, 11


def plain(value: Any) -> Any:
    """A value as `json` can write it: tensors and arrays as lists, objects as text."""
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)


def write_json(name: str, value: Any) -> None:
    Path(name).write_text(json.dumps(plain(value), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write_tensors(name: str, tensors: dict[str, Any]) -> None:
    from safetensors.torch import save_file

    save_file({key: value.detach().contiguous().clone() for key, value in tensors.items()}, name)


# The model


def batches(head: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Batches with labels: padded in several ways, without a mask, and in one row with boundaries."""
    import torch

    generator = torch.Generator().manual_seed(7)
    choices = (CHOICES,) if head == "ForMultipleChoice" else ()
    shape = (ROWS, *choices, LENGTH)
    ids = torch.randint(1, TINY["vocab_size"], shape, generator=generator)
    labels = {} if head == "Model" else _labels(head, ids, generator)
    lengths = torch.randint(3, LENGTH + 1, (*shape[:-1], 1), generator=generator)
    positions = torch.arange(LENGTH)
    holes = (torch.rand(shape, generator=generator) < 0.6).long()
    holes[..., 0] = 1
    masks = {"right": (positions < lengths).long(), "left": (positions >= LENGTH - lengths).long(), "holes": holes}
    for name, mask in masks.items():
        yield name, {"input_ids": ids, "attention_mask": mask, **labels}
    yield "full", {"input_ids": ids, **labels}
    if not choices and head != "ForQuestionAnswering":
        tokens = masks["right"].bool()
        ends = torch.nn.functional.pad(tokens.sum(1).cumsum(0), (1, 0)).int()
        row = {name: value[tokens][None] if value.shape == shape else value for name, value in labels.items()}
        row |= {"input_ids": ids[tokens][None], "position_ids": positions.expand(shape)[tokens][None]}
        row |= {f"cu_seq_lens_{side}": ends for side in "qk"}
        yield "one_row", row | {f"max_length_{side}": int(tokens.sum(1).max()) for side in "qk"}


def _labels(head: str, ids: Any, generator: Any) -> dict[str, Any]:
    import torch

    def draw(high: int, shape: tuple[int, ...]) -> Any:
        return torch.randint(0, high, shape, generator=generator)

    chosen = torch.rand(ids.shape, generator=generator) < 0.3
    if head in ("ForMaskedLM", "ForPreTraining"):
        pairs = {"next_sentence_label": draw(2, (ROWS,))} if head == "ForPreTraining" else {}
        return {"labels": ids.where(chosen, -100), **pairs}
    if head == "ForTokenClassification":
        return {"labels": draw(3, ids.shape).where(~chosen, -100)}
    if head == "ForQuestionAnswering":
        return {"start_positions": draw(LENGTH, (ROWS,)), "end_positions": draw(LENGTH, (ROWS,))}
    return {"labels": draw({"ForNextSentencePrediction": 2, "ForMultipleChoice": CHOICES}.get(head, 3), (ROWS,))}


def forwards_of(head: str) -> Callable[[], None]:
    """Outputs and gradients of a head, evaluated and trained with dropout, on all batches."""

    def run() -> None:
        import torch

        import mybert

        labels = {} if head == "ForQuestionAnswering" else {"num_labels": 3}
        model = getattr(mybert, f"MyBert{head}")(mybert.MyBertConfig(**TINY, **labels))
        draw_weights(model)
        for name, batch in batches(head):
            tensors = {}
            for mode in ("eval", "train"):
                model.train(mode == "train")
                model.zero_grad()
                torch.manual_seed(5)
                outputs = model(**batch)
                value = outputs.last_hidden_state.square().mean() if head == "Model" else outputs.loss
                value.backward()
                tensors |= {f"{mode}.{key}": part for key, part in outputs.items() if torch.is_tensor(part)}
                gradients = {key: part.grad for key, part in model.named_parameters() if part.grad is not None}
                tensors |= {f"{mode}.gradient.{key}": part for key, part in gradients.items()}
            write_tensors(f"{name}.safetensors", tensors)

    run.__name__ = f"forwards of MyBert{head}"
    return run


def outputs_of_forward() -> None:
    """All that a forward returns on request, other ways to give its input, and the weights of a new model."""
    import torch

    import mybert

    torch.manual_seed(3)
    model = mybert.MyBertModel(mybert.MyBertConfig(**TINY), add_pooling_layer=True).eval()
    write_tensors("new_model.safetensors", model.state_dict())
    draw_weights(model)
    batch = dict(batches("Model"))["right"]
    mask = batch["attention_mask"]
    cases = {
        "hidden_states": {**batch, "output_hidden_states": True},
        "embeds": {"inputs_embeds": model.get_input_embeddings()(batch["input_ids"]), "attention_mask": mask},
        "four_dimensions": {**batch, "attention_mask": (mask[:, None, :, None] * mask[:, None, None, :]).bool()},
        "positions": {**batch, "position_ids": torch.arange(LENGTH).flip(0)[None], "token_type_ids": mask},
        "tuple": {**batch, "return_dict": False},
    }
    with torch.no_grad():
        for name, case in cases.items():
            outputs = model(**case)
            parts = outputs if isinstance(outputs, tuple) else outputs.to_tuple()
            flat = [tensor for part in parts for tensor in (part if isinstance(part, tuple) else (part,))]
            write_tensors(f"{name}.safetensors", {f"{index:02}": tensor for index, tensor in enumerate(flat)})
        model.set_attn_implementation("eager")
        attentions = model(**batch, output_attentions=True).attentions
        write_tensors("attentions.safetensors", {f"{index:02}": tensor for index, tensor in enumerate(attentions)})


def kernels() -> None:
    """A model wide enough for all kernels: a query, real lengths, a training step, each kernel, bfloat16."""
    import torch

    import mybert
    from mybert.modeling_mybert import set_linear_kernel

    size = {"num_hidden_layers": 2, "vocab_size": 500, "num_labels": 3, "max_position_embeddings": 64}
    model = mybert.MyBertForTokenClassification(mybert.MyBertConfig(**size))
    draw_weights(model, 0.03)
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(5, 500, (16, 64), generator=generator)
    lengths = torch.randint(4, 65, (16, 1), generator=generator)
    ragged = {"input_ids": ids, "attention_mask": (torch.arange(64) < lengths).long()}
    logits, gradients = {}, {}
    for kernel in ("auto", "mkl", "onednn"):
        set_linear_kernel(kernel)
        model.eval()
        with torch.inference_mode():
            logits[f"{kernel}.query"] = model(input_ids=ids[:1, :32]).logits.clone()
            logits[f"{kernel}.ragged"] = model(**ragged).logits.clone()
            logits[f"{kernel}.dense"] = model(input_ids=ids).logits.clone()
        model.train()
        torch.manual_seed(1)
        model.zero_grad()
        model(**ragged, labels=ids % 3).loss.backward()
        gradients |= {f"{kernel}.{name}": part.grad[..., :8] for name, part in model.named_parameters()}
    set_linear_kernel("auto")
    with torch.inference_mode():
        logits["bfloat16"] = model.eval().bfloat16()(**ragged).logits.clone()
    write_tensors("logits.safetensors", logits)
    write_tensors("gradients.safetensors", gradients)


# Text


def tokens() -> None:
    """Ids and offsets of difficult texts, one by one and in bulk, and vocabularies learned from them."""
    from mybert import MyBertTokenizer, train_wordpiece
    from mybert.tokenization import count_corpus_words, encode_words, extend_vocabulary

    tokenizer = MyBertTokenizer.from_pretrained("../inputs/tokenizer")
    texts = Path("../inputs/languages.txt").read_text(encoding="utf-8").splitlines()[:6]
    texts += [
        "",
        " ",
        "x" * 201,
        "The  CAT's [MASK]\tsat.\x00\u200d",
        "a\u0301b\u4e2d\u6587",
        "[CLS] in text",
        "U.S.-based",
    ]
    encodings = [tokenizer(text, return_offsets_mapping=True) for text in texts]
    write_json(
        "encodings.json", [{**encoding, "decoded": tokenizer.decode(encoding["input_ids"])} for encoding in encodings]
    )
    pairs = tokenizer(texts[:4], texts[4:8], truncation=True, max_length=16, padding=True)
    write_json("pairs.json", dict(pairs))
    write_json("bulk.json", [encode_words(texts, tokenizer, num_processes) for num_processes in (1, 2)])
    corpus = "../inputs/text.txt"
    for name, settings in {"bpe": {}, "wordpiece": {"algorithm": "wordpiece", "min_frequency": 4}}.items():
        learned = train_wordpiece(
            corpus, 110, vocab_layout="compact", show_progress=False, num_processes=1, **settings
        )
        learned.save_pretrained(name)
    words = count_corpus_words(
        Path(corpus).read_text(encoding="utf-8").splitlines(), tokenizer, 1, show_progress=False
    )
    extension = extend_vocabulary(tokenizer, words, 6, 3)
    write_json("extension.json", [words.most_common(20), extension.spellings, extension.tokens_per_word])


def batches_of_pretraining() -> None:
    """Batches of two epochs for every objective and masking unit."""
    from mybert import MyBertTokenizer
    from mybert.pretraining import (
        MaskingRates,
        PretrainingCollator,
        PretrainingDataset,
        TokenStore,
        build_token_store,
        read_documents,
    )

    tokenizer = MyBertTokenizer.from_pretrained("../inputs/tokenizer")
    documents = read_documents(["../inputs/text.txt"])
    build_token_store(documents, tokenizer, "tokens.safetensors", show_progress=False, num_processes=1)
    store = TokenStore("tokens.safetensors", tokenizer)
    ends = {"cls_token_id": tokenizer.cls_token_id, "sep_token_id": tokenizer.sep_token_id}
    for objective in ("mlm+nsp", "mlm", "ltr", "mlm+sop"):
        for unit, settings in (("token", {}), ("word", {"short_probability": 0.5}), ("span", {"pack": True})):
            if settings.get("pack"):
                settings = settings | {"row_length": 64}
            dataset = PretrainingDataset(store, **ends, seed=3, objective=objective, max_length=32, **settings)
            rates = MaskingRates(masking_unit="token" if objective == "ltr" else unit, mlm_probability=0.2)
            collator = PretrainingCollator(tokenizer, rates=rates, seed=4, objective=objective)
            lines = []
            for epoch in (0, 1):
                dataset.set_epoch(epoch)
                order = [0, 1, 2, 3, 4, 5, len(dataset) - 1]
                lines += [
                    dict(collator([dataset[index] for index in order[start : start + 2]])) for start in (0, 2, 4)
                ]
                lines.append({"length": len(dataset)})
            text = "".join(f"{json.dumps(plain(line))}\n" for line in lines)
            Path(f"{objective}_{unit}.jsonl").write_text(text)


# Tasks


def results_in_memory() -> None:
    """The functions of the package, on data in memory."""
    import mybert

    texts = [line for line in Path("../inputs/text.txt").read_text().splitlines() if line]
    rows = [{"text": text, "label": ("bad", "good", "mixed")[len(text) % 3]} for text in texts[:24]]
    settings = {"use_cpu": True, "disable_tqdm": True, "max_length": 24}
    training = settings | {"max_steps": 3, "per_device_train_batch_size": 4, "learning_rate": 1e-2}
    results: dict[str, Any] = {}
    results["finetune"] = mybert.finetune(
        model="../inputs/small", train_file=rows, validation_split=0.25, output_dir="tuned", **training
    )
    tuned = "../inputs/tuned/classification"
    results["predict"] = mybert.predict(tuned, texts[:5], probabilities=True, use_cpu=True)
    results["pairs"] = mybert.predict(
        "../inputs/tuned/next_sentence", list(zip(texts[:3], texts[3:6], strict=True)), use_cpu=True
    )
    results["words"] = mybert.predict("../inputs/tuned/tagging", [text.split() for text in texts[:3]], use_cpu=True)
    results["evaluate"] = mybert.evaluate("tuned", rows, use_cpu=True)
    results["compare"] = mybert.compare("tuned", tuned, rows, num_resamples=20, use_cpu=True)
    results["score"] = mybert.score("../inputs/pretrained", texts[:4], use_cpu=True)
    results["distill"] = mybert.distill(
        teacher="tuned", student="../inputs/small", new_head=True, train_file=rows, output_dir="student", **training
    )
    pretraining = {"vocab_size": 90, "vocab_layout": "compact", "model_size": "tiny", "hidden_size": 8}
    results["pretrain"] = mybert.pretrain(
        text=["../inputs/text.txt"], output_dir="pretrained", num_processes=1, **pretraining, **training
    )
    write_json("results.json", results)


def errors_in_memory() -> None:
    """Types and messages of exceptions."""
    import mybert
    from mybert.finetuning import FinetuningArguments, PredictArguments
    from mybert.pretraining import MaskingRates, PretrainingArguments

    rows = [("the cat sat", "a"), ("a dog ate", "b")] * 4
    tuning = {"model": "../inputs/small", "train_file": rows, "output_dir": "out", "use_cpu": True}
    calls: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = [
        (mybert.finetune, (), tuning | {"learning_rate": -1}),
        (mybert.finetune, (), tuning | {"lora": True, "freeze": "encoder"}),
        (mybert.finetune, (), tuning | {"task": "multiple_choice"}),
        (mybert.finetune, (), tuning | {"learning_rat": 1}),
        (FinetuningArguments, (), {"model": "m", "output_dir": "out", "train_file": rows, "validation_split": 2}),
        (PretrainingArguments, (), {"text": ["t"], "token_store": "s", "output_dir": "out"}),
        (PredictArguments, (), {"model": "m", "data": ["t"], "batch_size": 0}),
        (MaskingRates, (), {"mlm_probability": 2}),
        (mybert.predict, ("../inputs/small", ["text"]), {}),
        (mybert.predict, ("../inputs/tuned/classification", [1, 2]), {}),
        (mybert.evaluate, ("../inputs/tuned/classification", ["no labels"]), {}),
        (mybert.MyBertConfig, (), {"hidden_size": 10, "num_attention_heads": 4}),
        (mybert.MyBertTokenizer, (), {"vocab": ["a", "a"]}),
    ]
    lines = []
    for function, values, settings in calls:
        try:
            function(*values, **settings)
            lines.append(f"{function.__name__}: no error")
        except Exception as error:
            lines.append(f"{function.__name__}: {type(error).__name__}: {error}")
    Path("errors.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def answers_of_pipelines() -> None:
    """Each pipeline on a model of its kind."""
    from transformers import logging, pipeline

    import mybert  # noqa: F401  # registers MyBERT

    logging.set_verbosity_error()  # its reports of unused weights have no order

    context = "Ada Lovelace sat near the old house. The cat slept on the mat. " * 3
    answers = {}
    for task, model, inputs, settings in (
        ("fill-mask", "pretrained", "the [MASK] sat on the mat.", {"top_k": 2}),
        ("text-classification", "tuned/classification", ["the cat sat", "a dog"], {"top_k": None}),
        (
            "token-classification",
            "tuned/tagging",
            "Ada Lovelace sat near the river",
            {"aggregation_strategy": "simple"},
        ),
        ("question-answering", "tuned/squad_v2", {"question": "who sat?", "context": context}, {"top_k": 2}),
        ("next-sentence-prediction", "pretrained", {"text": "the cat sat", "text_pair": "it slept"}, {}),
        ("multiple-choice", "tuned/multiple_choice", {"prompt": "the cat", "choices": ["sat", "ran", "ate"]}, {}),
        ("feature-extraction", "pretrained", "the cat", {}),
    ):
        folder = f"../inputs/{model}"
        try:
            answers[task] = pipeline(task, model=folder, tokenizer=folder, device="cpu")(inputs, **settings)
        except Exception as error:
            answers[task] = f"{type(error).__name__}: {error}"
    write_json("answers.json", answers)


def numbers_of_metrics() -> None:
    """Metrics of fixed predictions."""
    import numpy as np

    from mybert import metrics

    generator = np.random.default_rng(5)
    gold, other = generator.integers(0, 3, 40), generator.integers(0, 3, 40)
    values, more = generator.random(40), generator.random(40)
    probabilities = generator.dirichlet([1, 1, 1], 40)
    several = generator.random((40, 3))
    tags = [["O", "B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "I-LOC", "O"]]
    answers = {"a": ["the cat", "cat"], "b": ["London"], "c": []}
    texts = {"a": "Cat!", "b": "in London", "c": ""}
    calls: dict[str, Callable[[], Any]] = {
        "accuracy": lambda: metrics.accuracy(other, gold),
        "f1": lambda: metrics.f1(other, gold, average="macro"),
        "matthews_correlation": lambda: metrics.matthews_correlation(other, gold),
        "pearson_spearman": lambda: metrics.pearson_spearman(values, more),
        "log_loss": lambda: metrics.log_loss(probabilities, gold),
        "calibration_bins": lambda: metrics.calibration_bins(probabilities, gold),
        "fit_temperature": lambda: metrics.fit_temperature(probabilities, gold),
        "held_out_temperatures": lambda: metrics.held_out_temperatures(probabilities, gold),
        "fit_thresholds": lambda: metrics.fit_thresholds(several, several > 0.4),
        "held_out_labels": lambda: metrics.held_out_labels(several, several > 0.4),
        "mcnemar": lambda: metrics.mcnemar(gold == other, gold > 0),
        "paired_bootstrap": lambda: metrics.paired_bootstrap(
            *[
                lambda weights, right=right: {"accuracy": metrics.weighted_mean(right, weights)}
                for right in (gold == other, gold > 0)
            ],
            rows=40,
            resamples=30,
        ),
        "entity_metrics": lambda: metrics.entity_metrics(tags, [tags[0][::-1], tags[1]]),
        "entity_report": lambda: vars(metrics.entity_report(tags, tags)),
        "class_report": lambda: vars(metrics.class_report(["a", "b", "a"], ["a", "a", "b"], ["a", "b"])),
        "squad_metrics": lambda: metrics.squad_metrics(texts, {name: answers[name] for name in "ab"}),
        "squad_v2_metrics": lambda: metrics.squad_v2_metrics(texts, answers, {"a": 0.1, "b": 0.5, "c": 0.9}),
        "masked_words": lambda: [
            vars(each) if hasattr(each, "__dict__") else each
            for each in metrics.masked_words([["the cat sat on the mat"] * 3], 2)
        ],
    }
    calls |= {
        task: lambda task=task: metrics.glue_metrics(task, gold % 2, other % 2) for task in ("cola", "mrpc", "rte")
    }
    results = {}
    for name, call in calls.items():
        try:
            results[name] = call()
        except Exception as error:
            results[name] = f"{type(error).__name__}: {error}"
    write_json("metrics.json", results)


def public_names() -> None:
    """Public names and their signatures."""
    lines = []
    for name, value in public_values().items():
        try:
            shown = str(inspect.signature(value)) if callable(value) else f"= {value!r}"
        except (TypeError, ValueError):
            shown = ""
        lines.append(f"{name} " + (shown.replace(", ", ",\n        ") if len(shown) > 100 else shown))
    Path("names.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


LIBRARY = [
    *(Call(f"forward_{head}", [forwards_of(head)]) for head in HEADS),
    Call("forward_outputs", [outputs_of_forward]),
    Call("forward_kernels", [kernels]),
    Call("library_tokens", [tokens]),
    Call("library_batches", [batches_of_pretraining]),
    Call("library_results", [results_in_memory]),
    Call("library_errors", [errors_in_memory]),
    Call("library_pipelines", [answers_of_pipelines]),
    Call("library_metrics", [numbers_of_metrics]),
    Call("library_names", [public_names]),
]
