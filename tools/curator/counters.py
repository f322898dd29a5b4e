"""The counters of the operator `quality`, computed with Python's own str type and its module re.

NeMo Curator and datatrove define their filters by these methods of Python, so this program uses them directly: split, strip,
splitlines, lower. It shares no code with Millrace's implementations. docs/quality.md defines the counters.

The code points and phrases come from NVIDIA NeMo Curator 1e2e4275, nemo_curator/stages/text/utils/constants.py, and TERMINAL
from Hugging Face datatrove a649de79. Both are under Apache-2.0.
"""
import hashlib
import pathlib
import re

NAMES = """chars newlines alnum_chars digit_chars white_chars paren_chars words word_chars longest_word symbol_words common_words
url_chars porn_urls lines line_chars bullet_lines endmark_lines ellipsis_lines paragraphs policy_paragraphs lorem_paragraphs dt_lines
dt_bullet_lines dt_ellipsis_lines terminal_lines short_lines long_lines alpha_words repeated_lines repeated_line_chars
repeated_paragraphs repeated_paragraph_chars gr_paragraphs gr_repeated_paragraphs gr_repeated_paragraph_chars gr_lines
gr_repeated_lines gr_repeated_line_chars duplicate_5gram_chars duplicate_6gram_chars duplicate_7gram_chars duplicate_8gram_chars
duplicate_9gram_chars duplicate_10gram_chars""".split()
NGRAMS = range(5, 11)  # the last counters of NAMES, only with ngrams=true

DIGITS = b"0123456789"
ALNUM = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" + DIGITS + b"\n?!,."
WHITE = b"\b\t\n\r "
PARENS = b"()[]{}"

MARKS = {"...", "[...]", "(...)", "\u2026", "[\u2026]", "-\u00bb"}
LINE_MARKS = (*MARKS, "read more", "read more..")
COMMON = {"the", "be", "to", "of", "and", "that", "have", "with"}
BULLETS = frozenset("\u2022\u2023\u2043\u204c\u204d\u2219\u25cb\u25cf\u25d8\u25e6\u29be\u29bf")
ENDMARKS = frozenset(".?!\"'")
LOREM = "lorem ipsum"
POLICIES = [  # in lower case
    "terms of use", "privacy policy", "cookie policy", "uses cookies", "privacy overview", "use of cookies", "use cookies",
    "privacy & cookies policy", "privacy and cookies policy",
    "necessary cookies are absolutely essential for the website to function properly. this category only includes cookies that "
    "ensures basic functionalities and security features of the website. these cookies do not store any personal information.",
    "any cookies that may not be particularly necessary for the website to function and is used specifically to collect user "
    "personal data via analytics, ads, other embedded contents are termed as non-necessary cookies. it is mandatory to procure "
    "user consent prior to running these cookies on your website.",
    "if you continue to browse this site without changing your cookie settings, you agree to this use. acceptread more",
]
TERMINAL = frozenset(chr(int(code, 16)) for code in """
21 2e 3f 589 61d 61e 61f 6d4 700 701 702 7f9 837 839 83d 83e 964 965 104a 104b 1362 1367 1368 166e 1735 1736 17d4 17d5 17d6 17d9
17da 1803 1809 1944 1945 1aa8 1aa9 1aaa 1aab 1b5a 1b5b 1b5e 1b5f 1b7d 1b7e 1c3b 1c3c 1c7e 1c7f 203c 203d 2047 2048 2049 2e2e 2e3c
2e53 2e54 3002 a4ff a60e a60f a6f3 a6f7 a876 a877 a8ce a8cf a92f a9c8 a9c9 aa5d aa5e aa5f aaf0 aaf1 abeb fe52 fe56 fe57 ff01 ff0e
ff1f ff61 10a56 10a57 10f55 10f56 10f57 10f58 10f59 10f86 10f87 10f88 10f89 11047 11048 110be 110bf 110c0 110c1 11141 11142 11143
111c5 111c6 111cd 111de 111df 11238 11239 1123b 1123c 112a9 1144b 1144c 115c2 115c3 115c9 115ca 115cb 115cc 115cd 115ce 115cf
115d0 115d1 115d2 115d3 115d4 115d5 115d6 115d7 11641 11642 1173c 1173d 1173e 11944 11946 11a42 11a43 11a9b 11a9c 11c41 11c42
11ef7 11ef8 11f43 11f44 16a6e 16a6f 16af5 16b37 16b38 16b44 16e98 1bc9f 1da88""".split())

URL = re.compile(r"https?://(?:[A-Za-z0-9$\-_@.&+/:=?#~!*(),]|%[0-9A-Fa-f][0-9A-Fa-f])+")
HASHES = re.compile("#+")
NEWLINES, BLANK_LINES = re.compile("\n+"), re.compile("\n\n+")


def alphabetic_words(path):
    """Returns a function that counts the words with a character that is Alphabetic in Unicode 17.

    path is the list of those characters. Its digest is the one of the bitmap that Curator's module regex gives."""
    ranges = re.findall(r"^([0-9A-F]+)(?:\.\.([0-9A-F]+))?\s*; Alphabetic$", pathlib.Path(path).read_text(), re.M)
    ranges = [(int(first, 16), int(last or first, 16)) for first, last in ranges]
    bitmap = bytearray(0x110000 // 8)
    for first, last in ranges:
        for code in range(first, last + 1):
            bitmap[code >> 3] |= 1 << (code & 7)
    if hashlib.sha256(bitmap).hexdigest() != "536778604c4c442ddd49aebe9bfdd5bde7dd64e58f29b6e5653113778f03151a":
        raise SystemExit(f"{path} isn't the property Alphabetic of Unicode 17")
    search = re.compile("[" + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges) + "]").search
    return lambda words: sum(1 for word in words if search(word))


def repeats(parts):
    """Returns the number of parts that are equal to an earlier one, and their characters."""
    distinct = set(parts)
    if len(distinct) == len(parts):
        return 0, 0
    return len(parts) - len(distinct), sum(map(len, parts)) - sum(map(len, distinct))


def duplicates(words):
    """Returns the characters of the duplicate n-grams for each n of NGRAMS."""
    found = []
    for n in NGRAMS:
        grams = list(zip(*(words[i:] for i in range(n))))
        if len(set(grams)) == len(grams):
            break  # without a duplicate, there is also none of more words
        found.append(duplicate_chars(words, n, grams))
    return found + [0] * (len(NGRAMS) - len(found))


def duplicate_chars(words, n, grams):
    """Returns the characters of the duplicates among grams, which are all sequences of n words, and of the spaces in them."""
    earlier, total, counted = set(), 0, 0  # counted: the word after the last duplicate
    for first, gram in enumerate(grams):
        if gram in earlier:
            new = words[max(first, counted):first + n]
            total += sum(map(len, new)) + min(len(new), n - 1)
            counted = first + n
        else:
            earlier.add(gram)
    return total


def is_symbol(word):
    return word in MARKS or 2 * len(HASHES.findall(word)) > len(word)


def count(text, alphabetic):
    """Returns the counters of a text in the order of NAMES. alphabetic is the result of alphabetic_words."""
    encoded = text.encode()
    size = len(encoded)
    words = text.split()
    urls = URL.findall(text) if "://" in text else ()
    pieces = text.split("\n")
    lines = [piece for piece in pieces if piece and not piece.isspace()]
    stripped = [line.strip() for line in lines]
    lower = text.lower()
    policy = lorem = 0
    paragraphs = text.split("\n\n")
    if LOREM in lower or any(phrase in lower for phrase in POLICIES):
        folded = [paragraph.lower() for paragraph in paragraphs]
        policy = sum(1 for paragraph in folded if any(phrase in paragraph for phrase in POLICIES))
        lorem = sum(1 for paragraph in folded if LOREM in paragraph)
    dt_lines = text.splitlines()
    gr_paragraphs = BLANK_LINES.split(text.strip())
    gr_lines = NEWLINES.split(text)
    return (
        len(text), len(pieces) - 1,
        *(size - len(encoded.translate(None, characters)) for characters in (ALNUM, DIGITS, WHITE)),
        size - len(encoded.translate(None, PARENS)) + text.count("\u27e8") + text.count("\u27e9"),
        len(words), sum(map(len, words)), max(map(len, words), default=0),
        sum(map(is_symbol, words)) if "#" in text else sum(1 for word in words if word in MARKS),
        sum(1 for word in words if word in COMMON),
        sum(map(len, urls)), sum(1 for url in urls if "porn" in url),
        len(lines), sum(map(len, lines)),
        sum(1 for line in stripped if line[0] in BULLETS),
        sum(1 for line in stripped if line[-1] in ENDMARKS),
        sum(1 for line in stripped if line.lower().endswith(LINE_MARKS)),
        len(paragraphs), policy, lorem,
        len(dt_lines), sum(1 for line in dt_lines if line.lstrip().startswith(("\u2022", "-"))),
        sum(1 for line in dt_lines if line.rstrip().endswith(("...", "\u2026"))),
        sum(1 for line in lines if line[-1] in TERMINAL),
        sum(1 for line in lines if len(line) <= 30), sum(1 for piece in pieces if len(piece) >= 200),
        alphabetic(words), *repeats(lines), *repeats(paragraphs),
        len(gr_paragraphs), *repeats(gr_paragraphs), len(gr_lines), *repeats(gr_lines), *duplicates(words),
    )
