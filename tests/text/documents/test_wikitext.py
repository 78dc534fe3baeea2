import pytest

from rag_jax.text.documents.wikitext import plain_text

NAMES = ("file", "datei", "kategorie", "category")


@pytest.mark.parametrize(
    ("wikitext", "expected"),
    [
        # Templates
        ("a {{x|{{y|z={{w}}}}|[[Link|{{q}}]]}} b", "a b"),
        ("{{Infobox\n| name = x\n| map = [[File:m.png|thumb]]\n}}\nProse.", "Prose."),
        ("a {{{argument|default}}} b", "a b"),
        ("a {{never closed b", "a never closed b"),
        ("a never opened}} b", "a never opened b"),
        ("Veln ({{lang|xx|Wełn}}; old) and ({{x}}) and ({{x}}, {{y}}) end", "Veln (old) and and end"),
        # Tables
        ("a\n{| class=x\n|-\n! h\n| b\n{|\n| inner\n|}\n| c\n|}\nd", "a\nd"),
        ("a\n{|\n| row\n|-\n| never closed\nd", "a\nd"),
        ("a\n|}\nb", "a\nb"),
        ("a\n<table><tr><td>cell</td></tr></table>\nb", "a\nb"),
        # References, comments
        ("a<ref>[http://x y] {{cite|t=''u''}}</ref> b<ref name=r /> c", "a b c"),
        ("a<ref name=x>first b<ref>second</ref> c", "a first b c"),
        ("a<ref>never closed. B", "a never closed. B"),
        ("a</ref> b", "a b"),
        ("a<references><ref name=x>d</ref></references>b", "ab"),
        ("a<!-- [[b]] -->c<!-- d\n -->e", "ace"),
        ("a <!-- never closed\n\nb", "a"),
        ("a <!-- closed --> b <!-- open <!-- c", "a b"),
        # Links
        ("[[Ithaca]] [[Ithaca|the '''island''']] [[Ithaca#Port]]", "Ithaca the island Ithaca#Port"),
        ("a [[File:b.jpg|thumb|right|c [[d]] {{e}}<ref>f</ref>]] g", "a g"),
        ("a [[Datei:b.jpg|mini|c]] [[ Kategorie : D]] g", "a g"),
        ("a [[:Category:Ports]] [[:Category:Ports|ports]] [[:File:x.png]]", "a Ports ports x.png"),
        ("a [[fr:Veln]][[zh-min-nan:Veln]] [[wikt:quay|quay]]", "a quay"),
        ("a [[Star Trek: Discovery]] b", "a Star Trek: Discovery b"),
        ("a [[never closed b", "a never closed b"),
        ("a [http://x.example the ''account''] [http://y.example] http://z.example b", "a the account b"),
        # Quotes
        ("''i'' '''b''' '''''bi''''' ''never closed", "i b bi never closed"),
        ("l''''amour''' and it's", "l'amour and it's"),
        ("''unbalanced {{template}} [[link]]'''", "unbalanced link"),
        # Elements
        ("a<br>b<br/>c</br>d <hr /> e", "a\nb\nc\nd\ne"),
        ("H<sub>2</sub>O <small>and</small> <span style='x'>more</span> <b>words</b>", "H2O and more words"),
        ("a <math>x^{2}</math> b <gallery>\nFile:x.jpg|c\n</gallery> d", "a b d"),
        ("a <nowiki>[[not]] ''a'' {{link}} &lt;x&gt;</nowiki> b", "a [[not]] ''a'' {{link}} <x> b"),
        ("a <code>s == ''</code> b", "a s == b"),
        ("a <syntaxhighlight lang=c>int x[[1]];</syntaxhighlight> b", "a b"),
        ("<blockquote>quoted</blockquote><poem>one\ntwo</poem>", "quoted\none\ntwo"),
        ("a <includeonly>b</includeonly><noinclude>c</noinclude>", "a c"),
        ("a </small> b <ref", "a b"),
        # Characters
        ("a&nbsp;b &ndash; &#8212; &lt;tag&gt; &amp; &unknown; &#x110000;", "a b – — <tag> & &unknown; &#x110000;"),
        ("a&amp;nbsp;b", "a&nbsp;b"),
        ("x < y and y > z; a <b then", "x < y and y > z; a <b then"),
        ("__NOTOC__ __FORCETOC__ a _b_", "a _b_"),
        # Headings and lists
        ("== One ==\na\n=== Two ===\nb\n==Three==", "a\nb"),
        ("a\n* b\n** [[c]]\n# d\n: e\n; f : g\nh", "a\nh"),
        ("a <ul><li>b</li><li>c</ul> d", "a d"),
        ("a # b * c : d", "a # b * c : d"),
        ("", ""),
        ("\n\n {{x}} \n", ""),
    ],
)
def test_prose_stays_and_markup_goes(wikitext, expected):
    assert plain_text(wikitext, NAMES) == expected


@pytest.mark.parametrize(
    "sign", ["{{", "[[", "<ref>", "{|\n", "''", "{{{a|", "[http://a ", "<!--", "<div>", "\n;a:b", "("]
)
def test_a_page_of_one_sign_alone_is_read(sign):
    text = plain_text("word\n" + sign * 100)
    assert text.startswith("word")
    assert not any(markup in text for markup in ("{{", "[[", "<ref", "{|", "''", "<!--"))
