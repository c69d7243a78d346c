"""Invalid examples and numbers: one sentence from each pipeline, not an internal traceback."""

import pytest
import torch
from transformers import (
    BertForMultipleChoice,
    BertForNextSentencePrediction,
    BertForQuestionAnswering,
    pipeline,
)

from mybert.pipelines import (
    MultipleChoicePipeline,
    NextSentencePredictionPipeline,
    OpenVinoModel,
    QuestionAnsweringPipeline,
)

MODELS = {
    "question-answering": BertForQuestionAnswering,
    "next-sentence-prediction": BertForNextSentencePrediction,
    "multiple-choice": BertForMultipleChoice,
}
EXAMPLES = {
    "question-answering": {"question": "who?", "context": "the dog sat"},
    "next-sentence-prediction": {"text": "who?", "text_pair": "the dog sat"},
    "multiple-choice": {"prompt": "who?", "choices": ["the dog", "the cat"]},
}
NO_EXAMPLES = [None, 5, 1.5, float("nan"), True, b"x", complex(1), "", {}, [None], [5], [[None]], ["a", None], (5, 6)]
NO_EXAMPLES += ["the cat", ["the cat"], ("the cat", ""), [("a", "b", "c")], [["a"]], {"prompt": "who", "choices": []}]
NO_EXAMPLES += [{"text": "the cat"}, {"prompt": "who"}, {"prompt": "", "choices": ["a"]}, {"question": "who?"}]


@pytest.fixture(params=MODELS)
def one(request, tiny, tokenizer):
    """A pipeline and an example of it."""
    run = pipeline(request.param, model=tiny(MODELS[request.param]), tokenizer=tokenizer)
    return run, EXAMPLES[request.param]


@pytest.mark.parametrize("inputs", NO_EXAMPLES, ids=repr)
def test_pipeline_rejects_what_is_no_example(one, inputs):
    run, example = one
    with pytest.raises(ValueError, match=r"found .*; expected ") as caught:
        run(inputs)
    assert len(str(caught.value)) < 300
    with pytest.raises(ValueError, match=r"found .*; expected "):
        run([example, inputs])
    with pytest.raises(ValueError, match=r"found .*; expected "):
        list(run(iter([inputs])))


@pytest.mark.parametrize("value", [None, 5, [None], [5], {}, "", ["a", None]], ids=repr)
def test_pipeline_rejects_parts_that_are_no_texts(one, value):
    run, example = one
    for name in example:
        with pytest.raises(ValueError, match="expected"):
            run(**{**example, name: value})
        with pytest.raises(ValueError, match="expected"):
            run([{**example, name: value}])


@pytest.mark.parametrize("value", ["3", 1.5, [1], 0, -1])
def test_pipeline_rejects_numbers_below_one(one, value):
    run, example = one
    names = ["batch_size", *(["top_k"] if "text_pair" not in example else [])]
    if "context" in example:
        names += ["max_answer_len", "max_seq_len", "max_question_len", *(["doc_stride"] if value != 0 else [])]
    for name in names:
        with pytest.raises(ValueError, match=rf"{name} is .*; expected ") as caught:
            run(**example, **{name: value})
        assert repr(value) in str(caught.value)


@pytest.mark.parametrize("task", MODELS)
def test_pipeline_of_a_graph_answers_with_a_tokenizer_without_name(task, tiny, tokenizer):
    model = tiny(MODELS[task])
    graph = OpenVinoModel.__new__(OpenVinoModel)  # which has no `name_or_path`
    torch.nn.Module.__init__(graph)
    graph.config, graph.forward = model.config, model.forward
    found, expected = (pipeline(task, model=each, tokenizer=tokenizer)(EXAMPLES[task]) for each in (graph, model))
    assert not tokenizer.name_or_path and found == expected
    graph.config = type(model.config)(vocab_size=9)
    with pytest.raises(ValueError, match="The tokenizer in the pipeline has the id"):
        pipeline(task, model=graph, tokenizer=tokenizer)


@pytest.mark.parametrize(
    "pipeline_class", [MultipleChoicePipeline, NextSentencePredictionPipeline, QuestionAnsweringPipeline]
)
def test_pipeline_class_without_tokenizer_raises_one_sentence(pipeline_class, tiny):
    with pytest.raises(ValueError, match="tokenizer is None; expected the tokenizer that the model was trained with"):
        pipeline_class(model=tiny(BertForNextSentencePrediction))
