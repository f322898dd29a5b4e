// A reference for quality that shares no code with its kernels, only the tables of code points and phrases. It works on
// lists of code points, as the definitions do.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "../math/quality_tables.cuh"
#include "check.hpp"

using Text = std::vector<uint32_t>;
using Pieces = std::vector<Text>;

// Decodes a string as Python's strict UTF-8 decoder does. Returns false if it is invalid.
static bool decode(const std::string &bytes, Text *text) {
    for (size_t i = 0; i < bytes.size();) {
        auto at = [&](size_t j) -> uint32_t { return j < bytes.size() ? static_cast<unsigned char>(bytes[j]) : 0; };
        uint32_t lead = at(i), count = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : lead >> 3 == 30 ? 4 : 0;
        if (count == 0) return false;
        uint32_t u = count == 1 ? lead : lead & ((0x80u >> count) - 1);
        for (uint32_t j = 1; j < count; j++) {
            if (at(i + j) >> 6 != 2) return false;
            u = u << 6 | (at(i + j) & 63);
        }
        const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
        if (u < least[count] || u > 0x10ffff || (u >= 0xd800 && u < 0xe000)) return false;
        text->push_back(u);
        i += count;
    }
    return true;
}

template <size_t kCount>
static bool contains(const uint32_t (&list)[kCount], uint32_t u) {
    for (uint32_t entry : list) {
        if (entry == u) return true;
    }
    return false;
}

static bool space(uint32_t u) { return contains(millrace::kQualityTables.space, u); }

static bool alphabetic(uint32_t u) {
    const millrace::QualityTables &t = millrace::kQualityTables;
    return u / 256 < millrace::kAlphabeticBlocks && (t.alphabetic_bits[t.alphabetic_index[u / 256]][u / 32 % 8] >> (u % 32) & 1);
}

static bool in(uint32_t u, const char *list) { return u != 0 && u < 0x80 && std::string(list).find(static_cast<char>(u)) != std::string::npos; }
static bool digit(uint32_t u) { return u >= '0' && u <= '9'; }
static bool letter(uint32_t u) { return (u >= 'a' && u <= 'z') || (u >= 'A' && u <= 'Z'); }
static bool hex(uint32_t u) { return digit(u) || in(u, "abcdefABCDEF"); }
static bool url_byte(uint32_t u) { return digit(u) || letter(u) || in(u, "$-_@.&+/:=?#~!*(),"); }

static Text of(const char *utf8) {
    Text text;
    decode(utf8, &text);
    return text;
}

static Text fold(Text text) {
    for (uint32_t &u : text) u = u >= 'A' && u <= 'Z' ? u + 32 : u == 0x212a ? 'k' : u;
    return text;
}

static bool same(const Text &text, size_t at, const Text &part) {
    if (at + part.size() > text.size()) return false;
    for (size_t i = 0; i < part.size(); i++) {
        if (text[at + i] != part[i]) return false;
    }
    return true;
}

static bool has(const Text &text, const char *part) {
    Text pattern = of(part);
    for (size_t i = 0; i < text.size(); i++) {
        if (same(text, i, pattern)) return true;
    }
    return false;
}

static bool ends(const Text &text, const char *part) {
    Text pattern = of(part);
    return text.size() >= pattern.size() && same(text, text.size() - pattern.size(), pattern);
}

static Text strip(const Text &text) {
    size_t from = 0, to = text.size();
    while (from < to && space(text[from])) from++;
    while (to > from && space(text[to - 1])) to--;
    return Text(text.begin() + static_cast<long>(from), text.begin() + static_cast<long>(to));
}

// Splits at every sequence of `length` newlines, from the left.
static Pieces split(const Text &text, size_t length) {
    Pieces pieces(1);
    Text separator(length, '\n');
    for (size_t i = 0; i < text.size();) {
        if (same(text, i, separator)) {
            pieces.emplace_back();
            i += length;
        } else {
            pieces.back().push_back(text[i++]);
        }
    }
    return pieces;
}

// Splits at maximal sequences of at least `least` newlines.
static Pieces split_runs(const Text &text, size_t least) {
    Pieces pieces(1);
    for (size_t i = 0; i < text.size();) {
        size_t run = 0;
        while (i + run < text.size() && text[i + run] == '\n') run++;
        if (run >= least) {
            pieces.emplace_back();
        } else {
            pieces.back().insert(pieces.back().end(), text.begin() + static_cast<long>(i), text.begin() + static_cast<long>(i + (run == 0 ? 1 : run)));
        }
        i += run == 0 ? 1 : run;
    }
    return pieces;
}

static Pieces split_lines(const Text &text) {
    Pieces pieces(1);
    for (size_t i = 0; i < text.size(); i++) {
        if (!contains(millrace::kQualityTables.line_end, text[i])) {
            pieces.back().push_back(text[i]);
            continue;
        }
        if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') i++;
        pieces.emplace_back();
    }
    if (pieces.back().empty()) pieces.pop_back();
    return pieces;
}

using Counters = std::map<std::string, uint32_t>;

static void count_characters(const Text &text, Counters &c) {
    for (uint32_t u : text) {
        c["chars"]++;
        c["newlines"] += u == '\n';
        c["alnum_chars"] += digit(u) || letter(u) || in(u, "\n?!,.");
        c["digit_chars"] += digit(u);
        c["white_chars"] += in(u, "\b\t\n\r ");
        c["paren_chars"] += in(u, "()[]{}") || u == 0x27e8 || u == 0x27e9;
    }
}

static void count_word(const Text &word, Counters &c) {
    uint32_t runs = 0, length = static_cast<uint32_t>(word.size());
    bool alpha = false, symbol = false, common = false;
    for (size_t i = 0; i < word.size(); i++) {
        runs += word[i] == '#' && (i == 0 || word[i - 1] != '#');
        alpha = alpha || alphabetic(word[i]);
    }
    static const Pieces marks = {of("..."), of("[...]"), of("…"), of("(...)"), of("[…]"), of("-»")};
    static const Pieces words = {of("the"), of("be"), of("to"), of("of"), of("and"), of("that"), of("have"), of("with")};
    for (const Text &mark : marks) symbol = symbol || word == mark;
    for (const Text &other : words) common = common || word == other;
    c["words"]++, c["word_chars"] += length, c["alpha_words"] += alpha, c["common_words"] += common;
    c["symbol_words"] += symbol || 2 * runs > length;
    if (length > c["longest_word"]) c["longest_word"] = length;
}

static Pieces split_words(const Text &text) {
    Pieces words;
    bool in_word = false;
    for (uint32_t u : text) {
        if (!space(u) && !in_word) words.emplace_back();
        in_word = !space(u);
        if (in_word) words.back().push_back(u);
    }
    return words;
}

// Counts the characters of duplicate n-grams with the iteration that defines them. An n-gram is a string of its words' numbers.
// `counted` is the number of its first words that are already counted.
static uint32_t duplicate_characters(const Pieces &words, const std::u32string &numbers, size_t n) {
    std::unordered_set<std::u32string> seen;
    size_t counted = 0, total = 0;
    for (size_t i = 0; i + n <= words.size(); i++) {
        if (!seen.insert(numbers.substr(i, n)).second) {
            for (size_t w = i + counted; w < i + n; w++) total += words[w].size();
            total += std::min(n - counted, n - 1);
            counted = n;
        }
        if (counted > 0) counted--;
    }
    return static_cast<uint32_t>(total);
}

static void count_words(const Text &text, Counters &c) {
    Pieces words = split_words(text);
    std::map<Text, char32_t> numbers;
    std::u32string all;
    for (const Text &word : words) {
        count_word(word, c);
        all += numbers.emplace(word, static_cast<char32_t>(numbers.size())).first->second;
    }
    for (size_t n = 5; n <= 10; n++) c["duplicate_" + std::to_string(n) + "gram_chars"] = duplicate_characters(words, all, n);
}

static void count_urls(const Text &text, Counters &c) {
    static const Text http = of("http://"), https = of("https://");
    for (size_t i = 0; i < text.size(); i++) {
        size_t start = same(text, i, https) ? i + 8 : same(text, i, http) ? i + 7 : 0, j = start;
        if (start == 0) continue;
        for (;;) {
            if (j < text.size() && url_byte(text[j])) {
                j++;
            } else if (j + 2 < text.size() && text[j] == '%' && hex(text[j + 1]) && hex(text[j + 2])) {
                j += 3;
            } else {
                break;
            }
        }
        if (j == start) continue;
        c["url_chars"] += static_cast<uint32_t>(j - i);
        c["porn_urls"] += has(Text(text.begin() + static_cast<long>(i), text.begin() + static_cast<long>(j)), "porn");
        i = j - 1;
    }
}

static void count_lines(const Pieces &lines, Counters &c) {
    for (const Text &line : lines) {
        c["long_lines"] += line.size() >= 200;
        Text stripped = strip(line), folded = fold(stripped);
        if (stripped.empty()) continue;
        c["lines"]++, c["line_chars"] += static_cast<uint32_t>(line.size());
        c["bullet_lines"] += contains(millrace::kQualityTables.bullet, stripped[0]);
        c["endmark_lines"] += in(stripped.back(), ".?!\"'");
        bool ellipsis = false;
        for (const char *end : {"...", "[...]", "…", "(...)", "[…]", "-»", "read more..", "read more"}) ellipsis = ellipsis || ends(folded, end);
        c["ellipsis_lines"] += ellipsis;
        c["terminal_lines"] += contains(millrace::kQualityTables.terminal, line.back());
        c["short_lines"] += line.size() <= 30;
    }
}

static void count_paragraphs(const Pieces &paragraphs, Counters &c) {
    for (const Text &paragraph : paragraphs) {
        Text folded = fold(paragraph);
        bool policy = false;
        for (const char *phrase : millrace::kPolicyPhrases) policy = policy || has(folded, phrase);
        c["paragraphs"]++, c["policy_paragraphs"] += policy, c["lorem_paragraphs"] += has(folded, millrace::kLoremPhrase);
    }
}

static void count_dt_lines(const Pieces &lines, Counters &c) {
    for (const Text &line : lines) {
        Text stripped = strip(line);
        c["dt_lines"]++;
        if (stripped.empty()) continue;
        c["dt_bullet_lines"] += stripped[0] == 0x2022 || stripped[0] == '-';
        c["dt_ellipsis_lines"] += ends(stripped, "...") || ends(stripped, "…");
    }
}

static void count_repeats(const Pieces &pieces, uint32_t *count, uint32_t *characters) {
    std::set<Text> seen;
    for (const Text &piece : pieces) {
        if (!seen.insert(piece).second) *count += 1, *characters += static_cast<uint32_t>(piece.size());
    }
}

bool slow_quality(const std::string &row, Counters *counters) {
    Text text;
    Counters &c = *counters;
    c.clear();
    if (!decode(row, &text)) return false;
    count_characters(text, c), count_words(text, c), count_urls(text, c);
    Pieces all = split(text, 1), lines, paragraphs = split(text, 2), gr_paragraphs = split_runs(strip(text), 2), gr_lines = split_runs(text, 1);
    for (const Text &line : all) {
        if (!strip(line).empty()) lines.push_back(line);
    }
    count_lines(all, c), count_paragraphs(paragraphs, c), count_dt_lines(split_lines(text), c);
    count_repeats(lines, &c["repeated_lines"], &c["repeated_line_chars"]);
    count_repeats(paragraphs, &c["repeated_paragraphs"], &c["repeated_paragraph_chars"]);
    count_repeats(gr_paragraphs, &c["gr_repeated_paragraphs"], &c["gr_repeated_paragraph_chars"]);
    count_repeats(gr_lines, &c["gr_repeated_lines"], &c["gr_repeated_line_chars"]);
    c["gr_paragraphs"] = static_cast<uint32_t>(gr_paragraphs.size()), c["gr_lines"] = static_cast<uint32_t>(gr_lines.size());
    return true;
}
