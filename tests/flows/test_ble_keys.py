"""The file with devices' keys: its permissions, and that no message shows a key."""

import pytest

from fogline.errors import Misconfigured
from fogline_cloud.flows.driver.ble_keys_file import load_keys

KEY = "231d39c1d7cc1ab1aee224cd096db932"
ADDRESS = "54:48:E6:8F:80:A5"


@pytest.fixture
def write(tmp_path):
    def make(text, mode=0o600):
        path = tmp_path / "keys.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path.chmod(mode)
        return str(path)

    return make


def test_keys_are_found_by_address_and_by_name(write):
    keys = load_keys(write(f'"{ADDRESS.lower()}" = "{KEY}"\n"shed.1" = "{KEY[:24]}"\n'))
    assert keys.find("d-1", ADDRESS) == bytes.fromhex(KEY)
    assert keys.find("shed.1", None) == bytes.fromhex(KEY[:24])
    assert keys.find("d-1", None) is None


def test_without_a_file_there_are_no_keys():
    assert load_keys(None).find("d-1", ADDRESS) is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_others_may_read_is_refused(write, mode):
    with pytest.raises(Misconfigured, match=rf"others than its owner .*mode 0{mode:o}\): chmod 600"):
        load_keys(write(f'"{ADDRESS}" = "{KEY}"', mode))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f'"{ADDRESS}" = "{KEY[:-1]}"', f"the key of {ADDRESS} is not 32 hex digits"),
        (f'"{ADDRESS}" = "{KEY[:-2]}zz"', f"the key of {ADDRESS} is not 32 hex digits"),
        (f'"{ADDRESS}" = 231', f"the key of {ADDRESS} is not 32 hex digits"),
        (f'"kitchen lamp" = "{KEY}"', "'kitchen lamp' is neither"),
        (f'"{ADDRESS}" = {KEY}', "this is not TOML (at line 1, column"),
        (f'"{ADDRESS}" = "{KEY}', "this is not TOML (at end of document)"),
        (f'"{ADDRESS}" = "{KEY}"\n"{ADDRESS.lower()}" = "{KEY[::-1]}"', "there are two keys of"),
        (b'"\xff"', "this is not UTF-8"),
    ],
)
def test_an_error_in_the_file_is_reported_in_one_line_without_a_key(write, text, says):
    with pytest.raises(Misconfigured) as caught:
        load_keys(write(text))
    said = str(caught.value)
    assert says in said
    assert "\n" not in said
    assert KEY[:8] not in said
    assert KEY[::-1][:8] not in said
    assert caught.value.__cause__ is None


def test_the_error_for_a_missing_file_names_the_file(tmp_path):
    with pytest.raises(Misconfigured, match=r"\[flow\] ble_keys = .*none.toml: the file cannot be read: No such file"):
        load_keys(str(tmp_path / "none.toml"))
