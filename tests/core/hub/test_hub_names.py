"""Names of models, and which files of a repository they mean."""

from pathlib import Path

import pytest

from pumice import HubError
from pumice.hub.choice import choose, models_in
from pumice.hub.names import CatalogueName, HubName, WebName, parse_name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hf.co/a/b", HubName("a/b")),
        ("hf.co/a/b:Q4_K_M", HubName("a/b", tag="Q4_K_M")),
        ("hf.co/a/b:latest", HubName("a/b")),
        ("hf.co/a/b:dir/x.gguf", HubName("a/b", "dir/x.gguf")),
        ("hf.co/a/b/dir/x.gguf", HubName("a/b", "dir/x.gguf")),
        ("huggingface.co/a/b-GGUF", HubName("a/b-GGUF")),
        ("hf://a/b/x.gguf", HubName("a/b", "x.gguf")),
        ("hf://a/b@v1.0/x.gguf", HubName("a/b", "x.gguf", revision="v1.0")),
        ("a/b", HubName("a/b")),
        ("a/b:q8_0", HubName("a/b", tag="q8_0")),
        ("https://huggingface.co/a/b", HubName("a/b")),
        ("https://huggingface.co/a/b/tree/main", HubName("a/b")),
        ("https://huggingface.co/a/b/blob/main/x.gguf", HubName("a/b", "x.gguf")),
        ("https://hf.co/a/b/resolve/f00/d/x%20y.gguf?download=true", HubName("a/b", "d/x y.gguf", revision="f00")),
        ("https://example.org/x.gguf", WebName("https://example.org/x.gguf")),
        ("http://localhost:8000/x.gguf", WebName("http://localhost:8000/x.gguf")),
        ("known:8b", CatalogueName("known:8b")),
        ("x.gguf", Path("x.gguf")),
        ("a/x.gguf", Path("a/x.gguf")),
        ("./a/b", Path("a/b")),
        ("/a/b", Path("/a/b")),
        ("a/b/c", Path("a/b/c")),
        ("~/x.gguf", Path("~/x.gguf").expanduser()),
        (Path("a/b"), Path("a/b")),
    ],
)
def test_a_name_means(text, expected, home):
    assert parse_name(text, {"known:8b"}.__contains__) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "name of the model is empty"),
        ("  ", "name of the model is empty"),
        ("ftp://example.org/x.gguf", "https://"),
        ("http://example.org/x.gguf", "use https://"),
        ("https:///x.gguf", "not an address"),
        ("hf.co/a", "hf.co/owner/repository"),
        ("hf://a/b/x.gguf:Q4_0", "hf.co/owner/repository"),
        ("hf://a/b/model.safetensors", "not a GGUF file"),
        ("hf://a/../x.gguf", "hf.co/owner/repository"),
        ("hf://a/b/../x.gguf", "not the path of a file"),
        ("hf.co/a/b:../x.gguf", "not the path of a file"),
        ("hf.co/a/b:d//x.gguf", "not the path of a file"),
        ("hf.co/a/b:d:x.gguf", "not the path of a file"),
        ("hf.co/a/b:d/x", "not a quantization"),
        ("https://[::1", "not an address"),
        ("https://[x]/m.gguf", "not an address"),
        ("~\0", "NUL"),
        ("hf.co/a/b:d/\n.gguf", "not the path of a file"),
        ("hf.co/a\nb", "hf.co/owner/repository"),
    ],
)
def test_a_wrong_name_is_one_line(text, says, home):
    with pytest.raises(HubError, match=says) as error:
        parse_name(text)
    assert "\n" not in str(error.value)


FILES = [
    *("README.md", "M-BF16/M-BF16-00001-of-00002.gguf", "M-BF16/M-BF16-00002-of-00002.gguf", "M-IQ4_XS.gguf"),
    *("M-Q4_K_M.gguf", "M-Q4_K_S.gguf", "M-Q8_0.gguf", "M-UD-Q4_K_M.gguf", "M-UD-Q4_K_XL.gguf"),
    *("M-Q6_K-00001-of-00003.gguf", "imatrix.gguf", "mmproj-M-F16.gguf", "mtp-M-Q4_K_M.gguf"),
]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (HubName("a/b"), ["M-Q4_K_M.gguf"]),
        (HubName("a/b", tag="q4_k_m"), ["M-Q4_K_M.gguf"]),
        (HubName("a/b", tag="UD-Q4_K_M"), ["M-UD-Q4_K_M.gguf"]),
        (HubName("a/b", tag="Q4_K_XL"), ["M-UD-Q4_K_XL.gguf"]),
        (HubName("a/b", tag="iq4_xs"), ["M-IQ4_XS.gguf"]),
        (HubName("a/b", tag="BF16"), FILES[1:3]),
        (HubName("a/b", FILES[2]), FILES[1:3]),
        (HubName("a/b", "M-Q8_0.gguf"), ["M-Q8_0.gguf"]),
    ],
)
def test_a_name_chooses(name, expected):
    assert list(choose(name, models_in(FILES)).files) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["x-F16.gguf", "x-Q8_0.gguf"], "x-Q8_0.gguf"),
        (["x-q2_k.gguf", "x-f16.gguf"], "x-f16.gguf"),
        (["gpt-oss-20b-mxfp4.gguf"], "gpt-oss-20b-mxfp4.gguf"),
        (["Q4_K_M/x.gguf", "Q8_0/x.gguf"], "Q4_K_M/x.gguf"),
    ],
)
def test_without_a_tag_the_default_is_chosen(files, expected):
    assert choose(HubName("a/b"), models_in(files)).files == (expected,)


@pytest.mark.parametrize(
    ("files", "name", "says"),
    [
        (FILES, HubName("a/b", tag="Q4_K"), "has no Q4_K; it has BF16, IQ4_XS, Q4_K_M, Q4_K_S, Q8_0"),
        (FILES, HubName("a/b", "x.gguf"), "has no x.gguf"),
        (["README.md"], HubName("a/b"), "no GGUF file"),
        (["A-Q4_0.gguf", "B-Q4_0.gguf"], HubName("a/b", tag="Q4_0"), "several .*: A-Q4_0.gguf, B-Q4_0.gguf"),
        (["A-Q4_K_M.gguf", "B-Q4_K_M.gguf"], HubName("a/b"), "several"),
    ],
)
def test_a_name_that_chooses_none_or_several_lists_what_there_is(files, name, says):
    with pytest.raises(HubError, match=says):
        choose(name, models_in(files))
