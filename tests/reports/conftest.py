import os
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def golden():
    """Compare a text with the file of that name; NORMBWD_WRITE_GOLDEN=1 writes it instead, for a person to review."""

    def check(name, text):
        path = GOLDEN / name
        if os.environ.get("NORMBWD_WRITE_GOLDEN"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return check
