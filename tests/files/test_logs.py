"""What other libraries say is kept out for a while only."""

import pytest
from transformers.utils import logging

from mybert.files import only_errors


def test_only_errors_for_a_while():
    verbosity = logging.get_verbosity()
    with pytest.raises(ValueError, match="inside"), only_errors():
        assert logging.get_verbosity() == logging.ERROR
        raise ValueError("inside")
    assert logging.get_verbosity() == verbosity < logging.ERROR
