"""The names of the tasks in `task_table`, for help and for checks that need no task: importing it loads no library."""

OWN_DATA = {
    "classification": {"text": "text_column", "label": "label_column"},
    "multilabel": {"text": "text_column", "labels": "label_column"},
    "regression": {"text": "text_column", "score": "label_column"},
    "scores": {"text": "text_column"},
    "multiple_choice": {"text": "text_column", "label": "label_column", "choices": "choice_columns"},
    "tagging": {"tokens": "text_column", "tags": "label_column"},
    "question_answering": {"question": "text_column", "answers": "label_column", "context": "text_pair_column"},
    "next_sentence": {"text": "text_column", "label": "label_column", "text_pair": "text_pair_column"},
    "fill_mask": {"text": "text_column", "label": "label_column"},
}
"""The tasks on a user's own data -> the columns of labeled data, each with the setting that names it."""

BENCHMARKS = "cola sst2 mrpc stsb qqp mnli qnli rte wnli squad squad_v2 swag ner".split()
"""The tasks whose files are read as published."""


def listed_tasks(*without: str) -> str:
    """The tasks, as the help lists them."""
    own = [name for name in OWN_DATA if name not in without]
    return f"on your own data {', '.join(own)}; benchmarks {', '.join(BENCHMARKS)}"
