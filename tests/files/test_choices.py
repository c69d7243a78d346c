"""Alternatives of settings: an option belongs to those that declare it, and flags replace a settings file's."""

from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from mybert.files.choices import choice, choices_of, superseded
from mybert.files.errors import SettingError
from mybert.files.options import option, options_of
from mybert.files.settings import Parts, assemble, build, flat


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Options of two alternatives."""

    rate: float = option(0.5, "A rate.")


@dataclass(frozen=True, kw_only=True)
class Train(Rates):
    name: ClassVar[str] = "train"
    layers: int = option(-1, "Layers.")


@dataclass(frozen=True, kw_only=True)
class Frozen:
    name: ClassVar[str] = "train"
    why: ClassVar[str] = "which trains the head alone"
    freeze: bool = option(False, "Train the head.")


@dataclass(frozen=True, kw_only=True)
class Both(Rates):
    name: ClassVar[str] = "both"
    candidates: int = option(2, "Candidates.")


@dataclass(frozen=True, kw_only=True)
class Probe:
    name: ClassVar[str] = "probe"
    why: ClassVar[str] = "which has no steps"
    lacks: ClassVar[tuple[str, ...]] = ("steps",)


@dataclass(frozen=True, kw_only=True)
class Length:
    steps: int = option(10, "Steps.")
    files: list[str] = option([], "Files.")


@dataclass(frozen=True, kw_only=True)
class Run(Parts):
    trained: Train | Frozen | Both | Probe = choice(Train, "approach", "train", "How it is trained.")
    length: Length = field(default_factory=Length)
    output: str = option("", "Output.")


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({}, Train),
        ({"rate": 0.1}, Train),
        ({"freeze": True}, Frozen),
        ({"approach": "both", "rate": 0.1}, Both),
        ({"approach": "probe"}, Probe),
        ({"approach": "train", "layers": 2}, Train),
    ],
)
def test_build_takes_the_alternative_that_is_named_or_asked_for(given, kind):
    settings = build(Run, given | {"output": "o"})
    assert type(settings.trained) is kind and settings.approach == kind.name
    assert all(getattr(settings, name) == value for name, value in given.items())
    assert build(Run, flat(settings)) == settings
    assert settings.layers == given.get("layers", -1)  # the default where the alternative has none


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"approach": "probe", "layers": 2}, "layers is 2 with approach 'probe', which has no steps; leave it out."),
        ({"approach": "probe", "rate": 0.1}, "rate is 0.1 with approach 'probe', which has no steps; leave it out."),
        ({"approach": "probe", "steps": 3}, "steps is 3 with approach 'probe', which has no steps; leave it out."),
        ({"freeze": True, "layers": 2}, "layers is 2 with freeze, which trains the head alone; leave it out."),
        ({"candidates": 3}, "candidates is 3 without approach 'both', so it has no effect; give both or neither."),
        ({"approach": "some"}, "approach is 'some'; expected one of train, both, probe."),
    ],
)
def test_build_option_of_another_alternative_is_an_error(given, message):
    with pytest.raises(ValueError) as error:
        build(Run, given)
    assert str(error.value) == message


def test_build_unknown_option_is_an_error_with_the_nearest():
    with pytest.raises(TypeError, match=r"^'step' is no setting\. Did you mean steps\?$"):
        build(Run, {"step": 3})


@pytest.mark.parametrize(
    ("given", "earlier", "gone"),
    [
        ({"layers": 2}, {"approach": "probe"}, {"approach"}),
        ({"approach": "probe"}, {"layers": 2, "rate": 0.1, "steps": 3}, {"layers", "rate", "steps"}),
        ({"approach": "both"}, {"layers": 2, "rate": 0.1}, {"layers"}),  # which both have stays
        ({"rate": 0.2}, {"approach": "both", "candidates": 3}, set()),
        ({"freeze": True}, {"layers": 2, "rate": 0.1, "steps": 3}, {"layers", "rate"}),
        ({"steps": 3}, {"approach": "both", "rate": 0.1}, set()),
        ({"layers": -1}, {"approach": "probe"}, set()),  # turned off
    ],
)
def test_superseded_names_what_flags_replace_of_a_settings_file(given, earlier, gone):
    assert superseded(Run, given, earlier) & earlier.keys() == gone
    kept = {name: value for name, value in earlier.items() if name not in superseded(Run, given, earlier)}
    assert all(getattr(build(Run, kept | given), name) == value for name, value in given.items())


def test_superseded_of_a_settings_file_with_an_unknown_alternative_is_an_error():
    with pytest.raises(SettingError, match=r"^approach is 'some'; expected one of train, both, probe\.$"):
        superseded(Run, {"rate": 0.2}, {"approach": "some"})


def test_parts_are_read_flat_and_frozen():
    settings = build(Run, {"files": "a.txt", "steps": 3})
    assert settings.files == settings.length.files == ["a.txt"]
    assert set(options_of(Run)) == set(flat(settings))
    assert build(Run, flat(settings) | {"steps": 4}).steps == 4
    with pytest.raises(AttributeError, match="Run has no setting 'size'"):
        assert settings.size
    with pytest.raises(AttributeError):
        settings.output = "o"
    assert assemble(Run, {}).output == ""
    assert [part.name for part in choices_of(Run)["trained"].alternatives] == ["train", "train", "both", "probe"]
