"""MyBERT's registration with transformers, and when it happens."""

import sys
from itertools import dropwhile
from pathlib import Path

# Of pipelines that are given none, as before transformers 5.
_DEFAULT_MODELS = {
    "question-answering": {"default": {"model": ("distilbert/distilbert-base-cased-distilled-squad", "564e9b5")}}
}


def is_command() -> bool:
    """Whether this process is `mybert` or `python -m mybert`, which sets the environment before it imports torch."""
    if sys.argv[:1] == ["-m"]:  # Python is looking for the module
        return [*dropwhile(lambda word: word != "-m", sys.orig_argv)][1:2] == ["mybert"]
    return Path(*sys.argv[:1]).stem == "mybert"


def register() -> None:
    """Register configuration, tokenizer, models and pipelines; a second call changes nothing."""
    import transformers

    from . import modeling_mybert
    from .modeling_mybert import MyBertConfig
    from .modeling_mybert.bilstm import BILSTM_HEADS, MyBertBiLstmConfig
    from .pipelines.openvino_model import OpenVinoConfig, OpenVinoModel
    from .tokenization import MyBertTokenizer

    for config_class in (MyBertConfig, MyBertBiLstmConfig):
        transformers.AutoConfig.register(config_class.model_type, config_class, exist_ok=True)
        transformers.AutoTokenizer.register(config_class, fast_tokenizer_class=MyBertTokenizer, exist_ok=True)
    for auto_class, source in modeling_mybert.auto_map().items():
        if auto_class != "AutoConfig":
            model_class = getattr(modeling_mybert, source.rpartition(".")[2])
            getattr(transformers, auto_class).register(MyBertConfig, model_class, exist_ok=True)
            getattr(transformers, auto_class).register(OpenVinoConfig, OpenVinoModel, exist_ok=True)
    for auto_class, model_class in BILSTM_HEADS.items():
        getattr(transformers, auto_class).register(MyBertBiLstmConfig, model_class, exist_ok=True)
    _register_pipelines()


def _register_pipelines() -> None:
    """Add the tasks of `pipelines/` to those of `transformers.pipeline`, except names that are registered already.

    transformers rejects the name `"question-answering"` before it looks into the registry, so the name is removed from
    its list of removed tasks, in versions that have one.
    """
    import transformers
    from transformers import pipelines

    from .pipelines import MultipleChoicePipeline, NextSentencePredictionPipeline, QuestionAnsweringPipeline

    getattr(pipelines, "REMOVED_TASKS", {}).pop("question-answering", None)
    tasks = pipelines.PIPELINE_REGISTRY.supported_tasks
    for task, pipeline_class, model_class in (
        ("question-answering", QuestionAnsweringPipeline, transformers.AutoModelForQuestionAnswering),
        ("next-sentence-prediction", NextSentencePredictionPipeline, transformers.AutoModelForNextSentencePrediction),
        ("multiple-choice", MultipleChoicePipeline, transformers.AutoModelForMultipleChoice),
    ):
        # Not by `register_pipeline`, after which `save_pretrained` would declare custom code in the configuration: the
        # folder could not be loaded without trust_remote_code, although the pipeline is in this package.
        tasks.setdefault(
            task, {"impl": pipeline_class, "pt": (model_class,), "type": "text"} | _DEFAULT_MODELS.get(task, {})
        )
