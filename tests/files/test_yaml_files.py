"""YAML files: what is no YAML, or no value, is an error with its place."""

import pytest

from mybert.files.yaml_files import read_yaml


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("day: 2001-02-30", "'2001-02-30' is not of the type timestamp"),
        ("steps: !!int many", "'many' is not of the type int"),
        ("a: &part [*part]", "aliases repeat it without limit"),
        ("a: 1\na: 2", "names a twice, again in line 2"),
        ("a: [1", "is not YAML"),
        ("[" * 5000, "is nested too deeply"),
    ],
)
def test_read_yaml_of_what_is_no_value_names_the_file(tmp_path, text, said):
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=said) as error:
        read_yaml(path)
    assert str(path) in str(error.value)
