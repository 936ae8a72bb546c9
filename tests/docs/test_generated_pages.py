"""The generated pages of docs/ agree with the code that they describe."""

import pytest

from docs import columns_page, command_line_page, metrics_page, pictures, settings_page

PAGES = [settings_page, columns_page, metrics_page, command_line_page, pictures]


@pytest.mark.parametrize("module", PAGES, ids=lambda module: module.PAGE.stem)
def test_a_generated_page_agrees_with_the_code(module):
    assert module.PAGE.read_text("utf-8") == module.page(), f"{module.PAGE} differs from the code: run `make docs`"
