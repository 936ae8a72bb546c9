"""The generated pages of docs/ agree with the types that they describe."""

import pytest

from docs import columns_page, metrics_page, settings_page


@pytest.mark.parametrize("module", [settings_page, columns_page, metrics_page], ids=["settings", "columns", "metrics"])
def test_a_generated_page_agrees_with_the_types(module):
    assert module.PAGE.read_text("utf-8") == module.page(), f"{module.PAGE} differs from the types: run `make docs`"
