"""The question answering pipeline against one plain loop, all forms of input, and its place in transformers."""

import logging

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    BertForQuestionAnswering,
    DistilBertConfig,
    DistilBertForQuestionAnswering,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForQuestionAnswering,
    pipeline,
)
from transformers.modeling_outputs import QuestionAnsweringModelOutput

import mybert
from mybert._registration import register
from mybert.pipelines import best_answers, make_windows

CONTEXT = "The cat lives in Berlin, the dog lives in a house. Who is Zoé? 가나 🙂 sat! " * 3
QUESTIONS = ["Where is the cat?", "Who?", "What did the dog of Berlin sit in?"]


@pytest.fixture(scope="module")
def answerer(tokenizer, tiny):
    return pipeline("question-answering", model=tiny(BertForQuestionAnswering), tokenizer=tokenizer)


def plain_loop(model, tokenizer, question, context, max_seq_len, doc_stride, max_answer_len, null):
    """All answers from one window at a time: what the pipeline has to equal. `test_spans.py` tests their parts."""
    (windowed,) = make_windows(tokenizer, [question], [context], max_seq_len, doc_stride)
    with torch.no_grad():
        outputs = [
            model(**{name: torch.tensor(values, device=model.device)[None] for name, values in window.inputs.items()})
            for window in windowed.windows
        ]
    starts, ends = ([output[name][0].cpu().numpy() for output in outputs] for name in ("start_logits", "end_logits"))
    answers, no_answer = best_answers(windowed, starts, ends, 100_000, max_answer_len)
    ranked = sorted([*answers, *([no_answer] if null else [])], key=lambda answer: -answer.score)
    return [
        {"score": answer.probability, "start": answer.start, "end": answer.end, "answer": answer.text}
        for answer in ranked
    ]


def assert_same_answers(found, expected):
    assert [{**answer, "score": 0} for answer in found] == [{**answer, "score": 0} for answer in expected]
    np.testing.assert_allclose([a["score"] for a in found], [a["score"] for a in expected], rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize(("max_seq_len", "doc_stride"), [(64, 20), (32, 8), (40, 0)])
def test_equals_the_plain_loop(answerer, max_seq_len, doc_stride, null):
    settings = {"max_seq_len": max_seq_len, "doc_stride": doc_stride, "max_answer_len": 7}
    for question in QUESTIONS:
        expected = plain_loop(answerer.model, answerer.tokenizer, question, CONTEXT, **settings, null=null)
        for top_k in (25, 100_000):
            found = answerer(question, CONTEXT, top_k=top_k, handle_impossible_answer=null, **settings)
            assert len(found) == min(top_k, len(expected))
            assert_same_answers(found[:25], expected[:25])


def test_short_context_scores_are_those_of_transformers_4(answerer):
    """Softmax over context and [CLS] of one window, product of start and end."""
    encoded = answerer.tokenizer("who?", "the dog sat", return_tensors="pt").to(answerer.device)
    with torch.no_grad():
        output = answerer.model(**encoded)
    kept = [0, 4, 5, 6]
    start, end = output.start_logits[0, kept].softmax(0), output.end_logits[0, kept].softmax(0)
    product = torch.triu(torch.outer(start, end))
    expected = product[1:, 1:].max()
    found = answerer("who?", "the dog sat", handle_impossible_answer=False)
    assert found["score"] == pytest.approx(expected.item(), rel=1e-5)
    null = [a for a in answerer("who?", "the dog sat", handle_impossible_answer=True, top_k=9) if not a["answer"]]
    assert null == [{"score": pytest.approx(product[0, 0].item(), rel=1e-5), "start": 0, "end": 0, "answer": ""}]


def test_old_arguments_without_effect(answerer, tokenizer):
    expected = answerer("who?", "the dog sat")
    assert answerer("who?", "the dog sat", padding="max_length", num_workers=2) == expected
    again = pipeline("question-answering", model=answerer.model, tokenizer=tokenizer, padding=True, num_workers=2)
    assert again("who?", "the dog sat") == expected


def test_batches_change_nothing(answerer):
    contexts = [CONTEXT[: 30 * (number + 1)] for number in range(6)]
    examples = [{"question": question, "context": context} for context in contexts for question in QUESTIONS]
    alone = [answerer(example, top_k=3, max_seq_len=40) for example in examples]
    for batch_size in (1, 3, 1000):
        together = answerer(examples, top_k=3, max_seq_len=40, batch_size=batch_size)
        for found, expected in zip(together, alone, strict=True):
            assert_same_answers(found, expected)


def test_forms_of_input(answerer):
    question, other, context = QUESTIONS[0], QUESTIONS[1], CONTEXT[:60]
    one = answerer(question=question, context=context)
    two = [one, answerer(question=other, context=context)]
    assert set(one) == {"score", "start", "end", "answer"}
    assert [type(value) for value in one.values()] == [float, int, int, str]
    assert answerer(question, context) == answerer(question, context=context) == one
    assert answerer({"question": question, "context": context, "id": 7}) == one
    rows = [{"question": question, "context": context}, {"question": other, "context": context}]
    for found in (
        answerer(rows),
        answerer(tuple(rows)),
        answerer(*rows),
        answerer(question=[question, other], context=context),
        answerer(question=[question, other], context=[context, context]),
        answerer({"question": [question, other], "context": [context, context]}),
        list(answerer(row for row in rows)),
    ):
        assert isinstance(found, list)
        for answer, expected in zip(found, two, strict=True):
            assert_same_answers([answer], [expected])
    assert_same_answers(answerer(rows[:1]), [one])
    assert answerer([]) == []
    assert len(answerer(question=question, context=[context, "the dog"])) == 2


def test_generators_are_read_as_they_are_needed(answerer, monkeypatch):
    monkeypatch.setattr("mybert.pipelines.batching.EXAMPLES_AT_ONCE", 2)
    read = []

    def rows():
        for number in range(5):
            read.append(number)
            yield {"question": "who?", "context": "the dog sat"}

    results = answerer(rows())
    assert read == []
    next(results)
    assert read == [0, 1]
    assert len(list(results)) == 4


def test_question_answering_of_a_dataset_gives_the_same_answers(answerer):
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"question": QUESTIONS, "context": [CONTEXT] * 3})
    expected = answerer(question=QUESTIONS, context=CONTEXT)
    assert_same_answers(list(answerer(data)), expected)
    assert_same_answers(answerer(question=data["question"], context=data["context"]), expected)


def test_settings_of_the_pipeline_are_defaults_of_the_call(tokenizer, answerer):
    fixed = pipeline(
        "question-answering", model=answerer.model, tokenizer=tokenizer, top_k=4, max_answer_len=2, batch_size=2
    )
    row = {"question": QUESTIONS[0], "context": CONTEXT}
    assert_same_answers(fixed(row), answerer(row, top_k=4, max_answer_len=2))
    assert len(fixed(row, top_k=2)) == 2
    assert isinstance(fixed(row, top_k=1), dict)


def test_topk_of_transformers_4_is_top_k_with_a_warning(answerer):
    row = {"question": QUESTIONS[0], "context": CONTEXT}
    with pytest.warns(FutureWarning, match="use top_k") as told:
        assert_same_answers(answerer(row, topk=2), answerer(row, top_k=2))
    assert [warning.filename for warning in told] == [__file__]
    assert len(answerer(row, topk=2, top_k=3)) == 3


class MarkedModel(BertForQuestionAnswering):
    """Points at "cat"; believes in "no answer" in every window, but least where it sees "berlin"."""

    cat, berlin = 0, 0

    def forward(self, input_ids, **kwargs):
        logits = (input_ids == self.cat) * 5.0
        logits[:, 0] = torch.where((input_ids == self.berlin).any(1), self.null, 9.0)
        return QuestionAnsweringModelOutput(start_logits=logits, end_logits=logits)


@pytest.mark.parametrize(("null", "answer"), [(4.0, "cat"), (6.0, "")])
def test_impossible_questions_over_several_windows(tokenizer, tiny, null, answer):
    model = tiny(MarkedModel)
    model.cat, model.berlin = tokenizer.convert_tokens_to_ids(["cat", "berlin"])
    model.null = null
    marked = pipeline("question-answering", model=model, tokenizer=tokenizer, max_seq_len=16, doc_stride=2)
    context = "the dog sat in the house of the dog . the cat lives in the house of the dog in berlin ."
    found = marked(question="who?", context=context, handle_impossible_answer=True)
    assert found["answer"] == answer == context[found["start"] : found["end"]]
    both = marked(question="who?", context=context, handle_impossible_answer=True, top_k=2)
    assert {found["answer"] for found in both} == {"", "cat"}
    assert marked(question="who?", context=context)["answer"] == "cat"


def test_dropout_is_off(tokenizer, tiny):
    model = tiny(BertForQuestionAnswering).train()
    answerer = pipeline("question-answering", model=model, tokenizer=tokenizer)
    assert answerer("who?", CONTEXT) == answerer("who?", CONTEXT)


def test_models_without_token_types(tokenizer, tiny):
    sizes = {"dim": 32, "n_layers": 1, "n_heads": 2, "hidden_dim": 32, "initializer_range": 0.4}
    model = tiny(DistilBertForQuestionAnswering, DistilBertConfig, **sizes)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
        unk_token="[UNK]", model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip
    answerer = pipeline("question-answering", model=model, tokenizer=tokenizer)
    expected = plain_loop(model, tokenizer, QUESTIONS[0], CONTEXT, 64, 16, 15, False)
    assert_same_answers(answerer(QUESTIONS[0], CONTEXT, top_k=9, doc_stride=16), expected[:9])


@pytest.mark.parametrize("limit", [62, None])
def test_question_answering_with_a_roberta_tokenizer(tiny, limit):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = {piece: number for number, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", *alphabet])}
    backend = Tokenizer(models.BPE(pieces, [], unk_token="<unk>"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", cls_token="<s>", sep_token="</s>", unk_token="<unk>",
        model_max_length=limit, model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip
    model = tiny(RobertaForQuestionAnswering, RobertaConfig, vocab_size=len(pieces), pad_token_id=1)
    answerer = pipeline("question-answering", model=model, tokenizer=tokenizer)
    found = answerer("Zoé?", CONTEXT, top_k=50)
    assert len(found) == 50
    for answer in found:
        assert answer["answer"] == CONTEXT[answer["start"] : answer["end"]] == answer["answer"].strip() != ""


def test_saved_pipeline_is_a_plain_model_folder(answerer, tmp_path):
    answerer.save_pretrained(tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}
    again = pipeline("question-answering", model=str(tmp_path))
    assert_same_answers(again("who?", CONTEXT, top_k=5), answerer("who?", CONTEXT, top_k=5))


def test_registration_is_idempotent_and_needs_no_list_of_removed_tasks(monkeypatch, caplog):
    monkeypatch.delattr(transformers.pipelines, "REMOVED_TASKS", raising=False)
    before = dict(transformers.pipelines.PIPELINE_REGISTRY.supported_tasks)
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    register()
    register()
    assert transformers.pipelines.PIPELINE_REGISTRY.supported_tasks == before
    assert {"question-answering", "next-sentence-prediction", "multiple-choice"} <= before.keys()
    assert not caplog.records


def test_model_of_another_kind_is_reported(tokenizer, tiny, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    pipeline("question-answering", model=tiny(transformers.BertForMaskedLM), tokenizer=tokenizer)
    assert "'BertForMaskedLM' is not supported for question-answering" in caplog.text
    caplog.clear()
    pipeline("question-answering", model=tiny(BertForQuestionAnswering), tokenizer=tokenizer)
    assert not caplog.records


def test_evaluator_of_evaluate(answerer, tmp_path):
    datasets, evaluate = pytest.importorskip("datasets"), pytest.importorskip("evaluate")
    answers = [{"text": ["Berlin"], "answer_start": [17]}] * 3
    data = datasets.Dataset.from_dict(
        {"id": ["0", "1", "2"], "question": QUESTIONS, "context": [CONTEXT] * 3, "answers": answers}
    )
    metric = mybert.metrics.load("squad", cache_dir=str(tmp_path))
    result = evaluate.evaluator("question-answering").compute(
        answerer.model, data, metric=metric, tokenizer=answerer.tokenizer, squad_v2_format=False
    )
    texts = [found["answer"] for found in answerer(question=QUESTIONS, context=CONTEXT)]
    expected = mybert.metrics.squad_metrics(dict(enumerate(texts)), {number: ["Berlin"] for number in range(3)})
    assert {name: result[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda ask: ask(), "nothing to answer"),
        (lambda ask: ask(question="who?"), "found None as context"),
        (lambda ask: ask("who?", question="who?", context="a"), "found a question or context twice"),
        (lambda ask: ask(question="who?", context="  "), "found '  ' as context"),
        (lambda ask: ask(["who?"]), "expected a dict with the keys question and context"),
        (lambda ask: ask(question=["who?"], context=["a", "b"]), "found 1 questions and 2 contexts"),
        (lambda ask: ask(question="who?", context=7), "context is 7; expected a text or a list of texts"),
        (lambda ask: ask("who?", CONTEXT, doc_stride=64, max_seq_len=64), "doc_stride is 64; expected 0 or more"),
        (lambda ask: ask("who?", CONTEXT, doc_stride=60), r"doc_stride \(60\) is not less than the space"),
        (lambda ask: ask("who?", CONTEXT, max_seq_len=65), "max_seq_len is 65, but the model takes at most 64"),
    ],
)
def test_question_answering_wrong_inputs_are_errors(answerer, call, message):
    with pytest.raises(ValueError, match=message):
        call(answerer)


def test_unknown_parameters_are_refused(answerer):
    with pytest.raises(TypeError, match="max_anwser_len"):
        answerer("who?", CONTEXT, max_anwser_len=3)


@pytest.mark.parametrize(("positions", "longest"), [(512, 384), (256, 256)])
def test_windows_have_384_tokens_or_those_of_the_model(tokenizer, tiny, positions, longest):
    model = tiny(BertForQuestionAnswering, max_position_embeddings=positions)
    ask = pipeline("question-answering", model=model, tokenizer=tokenizer)
    (question,) = ask.preprocess([{"question": "who ?", "context": "the cat sat " * 400}])
    assert max(len(window.inputs["input_ids"]) for window in question.windows) == longest
