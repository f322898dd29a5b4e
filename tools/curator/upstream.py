"""NeMo Curator's own filters, from a checkout of its repository, and how their scores follow from the counters of `quality`.

Only the modules of the filters are loaded, without the packages around them. They need the Python package regex.
"""
import importlib
import importlib.util
import pathlib
import sys
import types

import counters


def over(numerator, denominator, empty=None):
    """A score that divides. empty is the score if the denominator is 0; None means that Curator raises an exception."""
    if denominator == 0:
        return "raises" if empty is None else empty
    return numerator / denominator


def by_paragraph_chars(c):
    chars = c["chars"] - 2 * (c["paragraphs"] - 1)
    return over(chars - c["repeated_paragraph_chars"], chars)


def by_ngram_chars(n):
    """The score of RepeatingDuplicateNGramsFilter, as a function of the counters."""
    return lambda c: 1.0 if c["words"] < n else over(c[f"duplicate_{n}gram_chars"], c["chars"])


SCORES = {  # by class, and n of the n-grams: the score as a function of the counters
    "NonAlphaNumericFilter": lambda c: over(c["chars"] - c["alnum_chars"], c["chars"], 1.0),
    "SymbolsToWordsFilter": lambda c: over(c["symbol_words"], c["words"]),
    "NumbersFilter": lambda c: over(c["digit_chars"], c["chars"], 1.0),
    "UrlsFilter": lambda c: over(c["url_chars"], c["chars"], 1.0),
    "BulletsFilter": lambda c: over(c["bullet_lines"], c["lines"]),
    "WhiteSpaceFilter": lambda c: over(c["white_chars"], c["chars"], 1.0),
    "ParenthesesFilter": lambda c: over(c["paren_chars"], c["chars"], 1.0),
    "LongWordFilter": lambda c: c["longest_word"] if c["words"] else "raises",
    "WordCountFilter": lambda c: c["words"],
    "BoilerPlateStringFilter": lambda c: 1.0 if c["lorem_paragraphs"] else over(c["policy_paragraphs"], c["paragraphs"]),
    "MeanWordLengthFilter": lambda c: over(c["word_chars"], c["words"]),
    "PunctuationFilter": lambda c: over(c["lines"] - c["endmark_lines"], c["lines"]),
    "EllipsisFilter": lambda c: over(c["ellipsis_lines"], c["lines"]),
    "CommonEnglishWordsFilter": lambda c: min(c["common_words"], 2),
    "WordsWithoutAlphabetsFilter": lambda c: over(c["alpha_words"], c["words"]),
    "PornographicUrlsFilter": lambda c: int(c["porn_urls"] > 0),
    "RepeatedLinesFilter": lambda c: over(c["lines"] - c["repeated_lines"], c["lines"]),
    "RepeatedLinesByCharFilter": lambda c: over(c["line_chars"] - c["repeated_line_chars"], c["line_chars"]),
    "RepeatedParagraphsFilter": lambda c: over(c["paragraphs"] - c["repeated_paragraphs"], c["paragraphs"]),
    "RepeatedParagraphsByCharFilter": by_paragraph_chars,
    **{f"RepeatingDuplicateNGramsFilter {n}": by_ngram_chars(n) for n in counters.NGRAMS},
}


def load(checkout, alphabetic):
    """Returns an object of Curator's class for each of SCORES, by name.

    WordsWithoutAlphabetsFilter isn't among them if the package regex differs from alphabetic, the result of
    counters.alphabetic_words. The package then has another version of Unicode."""
    folder = pathlib.Path(checkout)
    for package in ("", "stages", "stages/text", "stages/text/utils", "stages/text/filters", "stages/text/filters/heuristic",
                    "stages/text/filters/heuristic/repetition"):
        path = folder / "nemo_curator" / package
        if not path.is_dir():
            raise SystemExit(f"{checkout} is no checkout of NeMo Curator: it has no {path}")
        module = types.ModuleType(".".join(["nemo_curator", *package.split("/")]).rstrip("."))
        module.__path__ = [str(path)]
        sys.modules[module.__name__] = module
    if importlib.util.find_spec("loguru") is None:
        sys.modules["loguru"] = types.ModuleType("loguru")
        sys.modules["loguru"].logger = None  # the filters for English don't log
    modules = [importlib.import_module(f"nemo_curator.stages.text.filters.{name}") for name in ("heuristic.string", "heuristic.repetition.repetition")]
    filters = {}
    for name in SCORES:
        kind, *n = name.split()
        filters[name] = next(getattr(m, kind) for m in modules if hasattr(m, kind))(*map(int, n))
    matches = importlib.import_module("regex").compile("[[:alpha:]]").match
    if any(bool(matches(c)) != alphabetic([c]) for c in map(chr, range(0x110000))):
        del filters["WordsWithoutAlphabetsFilter"]
    return filters


def scores(filters, text):
    """Returns the filters' scores of a text, or "raises"."""
    found = {}
    for name, curator in filters.items():
        try:
            found[name] = curator.score_document(text)
        except (ZeroDivisionError, ValueError):
            found[name] = "raises"
    return found
