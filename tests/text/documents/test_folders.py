import pytest

from rag_jax.text.documents.folders import read_folder
from rag_jax.text.documents.markdown import plain_text
from rag_jax.text.readers import ReadError, read_passages


def folder_of(tmp_path, files):
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return tmp_path


def test_each_text_is_a_document_named_by_its_path(tmp_path):
    folder = folder_of(
        tmp_path,
        {
            "b.md": "# The *Guide*\n\nText of the guide.",
            "a/notes.txt": "# not a heading in plain text",
            "a/deep/UPPER.MARKDOWN": "no heading",
            "a/picture.png": b"\x00\xff",
            "empty.txt": " \n",
            "only-title.md": "# Title",
            ".hidden.txt": "hidden",
            ".git/config.txt": "hidden",
        },
    )
    found = [(document.id, document.title, document.text) for document in read_folder(folder)]
    assert found == [
        ("a/deep/UPPER.MARKDOWN", "UPPER", "no heading"),
        ("a/notes.txt", "notes", "# not a heading in plain text"),
        ("b.md", "The Guide", "Text of the guide."),
    ]


def test_passages_of_a_folder_are_numbered_by_file(tmp_path):
    folder = folder_of(tmp_path, {"a.txt": "x " * 150, "b.txt": "\ufeffy"})
    found = [(passage.id, passage.title, len(passage.text.split())) for passage in read_passages(folder)]
    assert found == [("a.txt#0", "a", 100), ("a.txt#1", "a", 50), ("b.txt#0", "b", 1)]


def test_a_file_keeps_its_ids_when_others_come_and_go(tmp_path):
    folder = folder_of(tmp_path, {"m.txt": "x " * 150})
    before = list(read_passages(folder))
    folder_of(tmp_path, {"a.txt": "a", "z.txt": "z"})
    assert [passage for passage in read_passages(folder) if passage.title == "m"] == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"one\ntwo \xff\n", r"bad\.txt, line 2: not UTF-8 \(byte 0xff\)"),
        ("é".encode("utf-16"), r"bad\.txt, line 1: holds a NUL byte"),
        (b"one\ntwo\n\0", r"bad\.txt, line 3: holds a NUL byte"),
    ],
)
def test_what_is_no_text_is_refused_with_its_place(tmp_path, content, message):
    with pytest.raises(ReadError, match=message):
        list(read_folder(folder_of(tmp_path, {"bad.txt": content})))


def test_a_folder_without_text_is_refused(tmp_path):
    with pytest.raises(ReadError, match=r"no text in it; documents are files that end in \.txt, \.md, \.markdown"):
        list(read_passages(folder_of(tmp_path, {"a.rst": "text"})))
    with pytest.raises(FileNotFoundError, match="no such"):
        read_passages(tmp_path / "none")


def test_a_link_to_a_folder_above_is_not_followed(tmp_path):
    folder = folder_of(tmp_path, {"a/b.txt": "text"})
    (folder / "a" / "up").symlink_to(folder, target_is_directory=True)
    assert [document.id for document in read_folder(folder)] == ["a/b.txt"]


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("# T\n\na **b** _c_ ~~d~~ `e*f*`", ("T", "a b c d e*f*")),
        ("T\n===\n\na", ("T", "a")),
        ("intro\n\n## T `x`\n\na\n\n# U", ("T x", "intro\nT x\na\nU")),
        (
            "[the *text*](http://x.example 'title') ![alt](y.png) [r][1]\n\n[1]: http://z.example",
            ("", "the text alt r"),
        ),
        ("- a\n- b\n  1. c\n\n> d", ("", "a\nb\nc\nd")),
        ("a\\\nb  \nc<br>d \\*e\\*", ("", "a\nb\nc\nd *e*")),
        ("| a | b |\n|---|---|\n| c | **d** |", ("", "a\nb\nc\nd")),
        ("```py\nx = '**y**'  # z\n```\n\n    indented * code", ("", "x = '**y**'  # z\nindented * code")),
        ("a <b>b</b> <!-- c --> &amp; &lt;", ("", "a b  & <")),
        ("<div>\nd <!-- x\n --><script>y()</script> &lt;z&gt;\n</div>", ("", "d    <z>")),
        ("a\n\n---\n\nb", ("", "a\nb")),
        ("---\ntitle: x\n---\n# T\na", ("T", "a")),
        ("---\r\n# settings\r\ntitle: x\r\n---\r\na", ("", "a")),
        ("+++\ntitle = 'x'\n+++\na", ("", "a")),
        ("---\n\na\n\n---\n\nb", ("", "a\nb")),
        ("", ("", "")),
    ],
)
def test_markdown_gives_its_words(markdown, expected):
    assert plain_text(markdown) == expected
