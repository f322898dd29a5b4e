// The counters of quality, in the order of a record's result. runtime/builtin.cpp declares them.
#pragma once

#include <stdint.h>

namespace millrace {

enum QualityField : uint32_t {
    kChars, kNewlines, kAlnumChars, kDigitChars, kWhiteChars, kParenChars,
    kWords, kWordChars, kLongestWord, kSymbolWords, kCommonWords,
    kUrlChars, kPornUrls,
    kLines, kLineChars, kBulletLines, kEndmarkLines, kEllipsisLines,
    kParagraphs, kPolicyParagraphs, kLoremParagraphs,
    kDtLines, kDtBulletLines, kDtEllipsisLines,
    kTerminalLines, kShortLines, kLongLines,
    kAlphaWords,
    kScanFields, // the scan counts the fields before this line, and the search for repeats counts the fields after it
    kRepeatedLines = kScanFields, kRepeatedLineChars, kRepeatedParagraphs, kRepeatedParagraphChars,
    kGrParagraphs, kGrRepeatedParagraphs, kGrRepeatedParagraphChars,
    kGrLines, kGrRepeatedLines, kGrRepeatedLineChars,
    kQualityFields, // a result has the fields after this line only if the parameter ngrams is true
    kDuplicate5gramChars = kQualityFields, kDuplicate6gramChars, kDuplicate7gramChars,
    kDuplicate8gramChars, kDuplicate9gramChars, kDuplicate10gramChars,
    kQualityAllFields
};

constexpr const char *kQualityNames[kQualityAllFields] = {
    "chars", "newlines", "alnum_chars", "digit_chars", "white_chars", "paren_chars",
    "words", "word_chars", "longest_word", "symbol_words", "common_words",
    "url_chars", "porn_urls",
    "lines", "line_chars", "bullet_lines", "endmark_lines", "ellipsis_lines",
    "paragraphs", "policy_paragraphs", "lorem_paragraphs",
    "dt_lines", "dt_bullet_lines", "dt_ellipsis_lines",
    "terminal_lines", "short_lines", "long_lines",
    "alpha_words",
    "repeated_lines", "repeated_line_chars", "repeated_paragraphs", "repeated_paragraph_chars",
    "gr_paragraphs", "gr_repeated_paragraphs", "gr_repeated_paragraph_chars",
    "gr_lines", "gr_repeated_lines", "gr_repeated_line_chars",
    "duplicate_5gram_chars", "duplicate_6gram_chars", "duplicate_7gram_chars",
    "duplicate_8gram_chars", "duplicate_9gram_chars", "duplicate_10gram_chars",
};

// The status of a record that isn't UTF-8: the number of the operator's only reason.
constexpr uint8_t kInvalidUtf8 = 1;

} // namespace millrace
