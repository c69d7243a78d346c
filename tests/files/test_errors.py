import pickle

import pytest

from mybert.files.errors import LONGEST_SENTENCE, SettingError, message_of, option_names, user_message, worded


def test_setting_error_names_option_value_and_expectation():
    error = SettingError("max_length", 2, "at least 3")
    assert isinstance(error, ValueError)
    assert (str(error), error.option, error.value) == ("max_length is 2; expected at least 3.", "max_length", 2)
    assert error.args[0].for_flags({"max_length"}) == "--max_length is 2; expected at least 3."
    assert error.args[0].for_flags({"length"}) == str(error)


def test_setting_error_of_known_words_lists_them():
    error = SettingError("task", "sst", known=["cola", "sst2"])
    assert str(error) == "task is 'sst'; expected one of cola, sst2."
    assert (error.args[0].known, error.args[0].unknown) == (["cola", "sst2"], ["sst"])
    assert str(SettingError("clean", "x", known=["html"], verb="has")) == "clean has 'x'; expected some of html."


def test_message_of_is_a_wording_if_there_is_one():
    assert message_of(OSError(wording := worded("{pack} is set."))) is wording
    assert message_of(FileNotFoundError(2, "No such file", "x")) == "[Errno 2] No such file: 'x'"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            RuntimeError("[pair.cc:553] Connection closed by peer [127.0.0.1]:1921"),
            "another process of this run has ended; its message says why.",
        ),
        (
            RuntimeError("NCCL error: remote process exited or there was a network error"),
            "another process of this run",
        ),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "not enough memory (DefaultCPUAllocator"),
        (MemoryError(), "not enough memory (an allocation failed)."),
        (OSError(28, "No space left on device", "x"), "x: the disk is full."),
    ],
)
def test_user_message_of_a_lack_of_resources_says_what_is_lacking(error, message):
    assert user_message(error).startswith(message)


@pytest.mark.parametrize("error", [RuntimeError("mat1 and mat2 shapes cannot be multiplied"), KeyError("a")])
def test_user_message_of_an_error_of_ours_is_empty(error):
    assert user_message(error) == ""


def test_setting_error_is_the_same_from_another_process():
    error = pickle.loads(pickle.dumps(SettingError.worded("{pack} is {}[ or {seed=}].", {"a": 1}, 3)))
    assert (error.option, error.value) == ("pack", {"a": 1})
    assert error.args[0].for_flags({"pack", "seed"}) == "--pack is {'a': 1} or --seed 3."


@pytest.mark.parametrize(
    ("wording", "text", "in_shell"),
    [
        (
            worded("{steps} is {} and {hours} {:.1f}; use either {steps} or {hours}.", 3, 0.5),
            "steps is 3 and hours 0.5; use either steps or hours.",
            "--steps is 3 and --hours 0.5; use either --steps or --hours.",
        ),
        (worded("Pass {steps=True}."), "Pass steps=True.", "Pass --steps."),
        (
            worded("Use {hours='few'} or {other='x'}."),
            "Use hours='few' or other='x'.",
            "Use --hours few or other='x'.",
        ),
        (worded("Pass {hours=}.", "cp949"), "Pass hours='cp949'.", "Pass --hours cp949."),
        (worded("Pass {hours=}.", 2), "Pass hours=2.", "Pass --hours 2."),
        (
            worded("{:option} is {!r}, not {other}.", "steps", "x"),
            "steps is 'x', not other.",
            "--steps is 'x', not other.",
        ),
        (
            worded("{} are not set.", option_names("steps", "other", joint=" or ")),
            "steps or other are not set.",
            "--steps or other are not set.",
        ),
        (
            worded("{}: {}", "a.yaml", worded("{steps} is {}.", [3])),
            "a.yaml: steps is [3].",
            "a.yaml: --steps is [3].",
        ),
        # what is not in the template is no option, whatever it looks like
        (
            worded("{}, row {}: {!r} in {}.", "steps", 1, "{hours}", "--hours[1]"),
            "steps, row 1: '{hours}' in --hours[1].",
            "steps, row 1: '{hours}' in --hours[1].",
        ),
    ],
)
def test_worded_names_options_as_keywords_or_flags(wording, text, in_shell):
    assert (wording, wording.for_flags({"steps", "hours"})) == (text, in_shell)


def test_worded_leaves_out_advice_for_commands_without_its_options():
    wording = worded("{} exists; name another[ or pass {steps=True} and {hours}]. It has {}.", "x", "[y]")
    assert wording == "x exists; name another or pass steps=True and hours. It has [y]."
    assert wording.for_flags({"steps", "hours"}) == "x exists; name another or pass --steps and --hours. It has [y]."
    assert wording.for_flags({"hours"}) == "x exists; name another. It has [y]."


@pytest.mark.parametrize(
    ("wording", "in_shell"),
    [
        (worded("{task} is {!r}; expected {}.", "a", "b"), "--task is 'a'. Did you mean b? Expected b."),
        (
            worded("{task} is {}; or c. Expected {}; expected.", 1, 2),
            "--task is 1. Did you mean b? Expected 2; expected.",
        ),
        (worded("{} has no {task}.", "f"), "f has no --task. Did you mean b?"),
        (
            worded("{}: {}", "f", worded("{task} is {}; expected {}.", 1, 2)),
            "f: --task is 1. Did you mean b? Expected 2.",
        ),
    ],
)
def test_for_flags_puts_a_suggestion_before_the_expectation(wording, in_shell):
    assert wording.for_flags({"task"}, " Did you mean b?") == in_shell


@pytest.mark.parametrize(("template", "values"), [("{} is {}.", [1]), ("{task}.", [1]), ("[{task}", [])])
def test_worded_of_other_values_than_the_template_has_is_our_own_error(template, values):
    with pytest.raises((AssertionError, StopIteration)):
        worded(template, *values)


@pytest.mark.parametrize("length", [LONGEST_SENTENCE, LONGEST_SENTENCE + 1])
def test_user_message_of_up_to_500_characters_is_whole(length):
    message = user_message(ValueError("a" * length))
    assert LONGEST_SENTENCE == 500 and (" ... " in message) == (length > LONGEST_SENTENCE)
    assert len(message) <= LONGEST_SENTENCE
