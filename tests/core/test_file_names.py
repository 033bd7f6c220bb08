"""Names from outside that may become paths, and those that may not."""

import pytest

from pumice.file_names import is_safe_file_name


@pytest.mark.parametrize(
    "name",
    [
        *("x.gguf", "dir/x-00001-of-00002.gguf", "a b.gguf", "..x", "x..gguf", "modèle.gguf", "-", "console.gguf"),
        "com.gguf",
    ],
)
def test_a_name_in_a_folder_is_safe(name):
    assert is_safe_file_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "", ".", "..", "/x", "../x", "a/../x", "a/./x", "a//x", "a/", "\\x", "a\\..\\x", "C:x", "C:/x", "x:stream",
        "x\0", "x\n",
        "x\x1b[2J", "x\u202egguf", "\ud800", "nul", "NUL.gguf", "dir/aux.txt/x", "com1", "Com¹.gguf", "CON .x",
        "x.", "x ", "a./x",
        "x*", "x" * 256, "é" * 128, "/".join(["x" * 200] * 6),
    ],
)  # fmt: skip
def test_a_name_that_leads_elsewhere_on_some_system_is_not(name):
    assert not is_safe_file_name(name)
